"""Which samples a model is calibrated on and which it is scored on, for every shared model."""
