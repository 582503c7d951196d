"""The types of values that all tiers share; they compute nothing."""

from reference.types.decomposition import Cpd
from reference.types.packed import First, Layout, PackedBits, PackedTensor, TensorLayout, Word
from reference.types.sparse import BCsf, Coo, Csf, FCoo, Fibers, HiCoo, MmCsf, PerMode, SparseTensor

__all__ = [
    "BCsf",
    "Coo",
    "Cpd",
    "Csf",
    "FCoo",
    "Fibers",
    "First",
    "HiCoo",
    "Layout",
    "MmCsf",
    "PackedBits",
    "PackedTensor",
    "PerMode",
    "SparseTensor",
    "TensorLayout",
    "Word",
]


def __dir__() -> list[str]:
    return sorted(__all__)
