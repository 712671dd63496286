"""The rules: one a module, named after the fault that it finds."""
