"""Bit matrix products: packing and BMM-32 (BSTC, sections 4 and 5.1)."""

from gpu.bmm.packing import pack
from gpu.bmm.product import SCHEMES, bmm

__all__ = ["SCHEMES", "bmm", "pack"]
