"""Contents of the files that npuconv writes, as pydantic models, and all JSON schemas."""
