"""A conversion as the rows and sentences of its report."""
