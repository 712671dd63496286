"""Emission: the forms a converted model can be written in, and the passes that make them."""
