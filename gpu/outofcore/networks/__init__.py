"""Training of sequential networks whose activations a device does not hold."""
