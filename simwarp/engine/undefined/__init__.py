"""Values that may not be used: uninitialised bits, results without a definition, and foreign pointers."""
