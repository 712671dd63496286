"""Quantization arithmetic: pure numpy, knows no graph."""
