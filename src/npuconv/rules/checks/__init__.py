"""The rules: each in a module that is named after the fault."""
