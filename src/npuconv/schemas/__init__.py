"""Contents of the files that npuconv writes, as records."""
