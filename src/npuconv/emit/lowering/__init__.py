"""Passes that turn a float graph into int8 operators: one rewrite a file."""
