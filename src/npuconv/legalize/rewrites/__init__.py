"""Passes that rewrite nodes which the target does not take: one rewrite a file."""
