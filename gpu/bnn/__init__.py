"""Binarized networks on a device, layer by layer."""

from gpu.bnn.network import Answer, PreparedNetwork, prepare, run

__all__ = ["Answer", "PreparedNetwork", "prepare", "run"]
