"""All of a check or a conversion as a Report."""
