"""Passes that give a model one spelling for any target: one rewrite a file."""
