"""Passes that give a model one spelling, whatever the target: one rewrite a file."""
