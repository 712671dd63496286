"""How far an int8 model is from its float model, whole and layer by layer."""
