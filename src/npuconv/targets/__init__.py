"""The built-in target descriptions, one YAML file each."""
