"""How every int8 tensor is stored and how weights are rounded: tried on samples, then chosen."""
