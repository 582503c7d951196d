"""Calls of level-3 BLAS on machines of several devices: traces, predictions and ablations."""
