"""Training of sequential networks whose activations do not fit on the device."""
