"""Calibration: statistics of tensors from one float pass over the samples."""
