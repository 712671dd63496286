"""Scales and zero points of all int8 tensors: candidates, and which of them is chosen."""
