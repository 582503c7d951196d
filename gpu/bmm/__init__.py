"""Bit matrix products: packing, and the schemes of the product (BSTC, sections 4 and 5.1)."""

from gpu.bmm.packing import pack
from gpu.bmm.product import bmm
from gpu.bmm.schemes import SCHEMES

__all__ = ["SCHEMES", "bmm", "pack"]
