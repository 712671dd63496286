"""Placement of nodes, choice of int8 tensors, and their cost."""
