"""Passes that change the float graph for accuracy: one rewrite a file."""
