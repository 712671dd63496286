"""Passes that rewrite what the target does not take: one rewrite a file."""
