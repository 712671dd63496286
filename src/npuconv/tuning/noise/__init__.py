"""The noise that rounding puts into the outputs: whose it is, and how much."""
