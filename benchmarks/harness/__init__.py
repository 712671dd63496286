"""Samples to calibrate on and samples to score on, for every shared model."""
