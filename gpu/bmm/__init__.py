"""Bit matrix products: packing, and the schemes of the product.

On CUDA cores: BSTC, sections 4 and 5.1. On bit tensor cores: BTC, sections 5.1 and 5.2, and for
Ampere, Ada and the warpgroups of Hopper our own.
"""

from gpu.bmm.fsb import FsbBits, pack_fsb, unpack_fsb
from gpu.bmm.packing import pack
from gpu.bmm.product import bmm
from gpu.bmm.schemes import RING_SCHEMES, SCHEMES, TENSOR_CORE_SCHEMES
from gpu.bmm.skinny import SKINNY_SCHEMES
from gpu.bmm.warpgroups import WARPGROUP_SCHEMES

__all__ = [
    "RING_SCHEMES",
    "SCHEMES",
    "SKINNY_SCHEMES",
    "TENSOR_CORE_SCHEMES",
    "WARPGROUP_SCHEMES",
    "FsbBits",
    "bmm",
    "pack",
    "pack_fsb",
    "unpack_fsb",
]


def __dir__() -> list[str]:
    return sorted(__all__)
