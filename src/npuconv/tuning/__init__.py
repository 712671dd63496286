"""What makes the int8 model accurate: scales, rounding, and what is bought with more work."""
