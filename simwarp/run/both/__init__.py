"""Hold a launch on the simulator against the same launch on a second device, and find where they part."""
