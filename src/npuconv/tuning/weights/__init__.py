"""The weights of a layer, rounded with its data in view."""
