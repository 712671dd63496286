"""Layers and channels that are made several times: which, for how many multiplications."""
