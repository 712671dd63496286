"""Layers and channels that are made several times: in place of idle ones, or for a budget."""
