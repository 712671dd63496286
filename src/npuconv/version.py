"""Version of npuconv."""

__version__ = "0.1.0"
