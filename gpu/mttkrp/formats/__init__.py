"""The formats of sparse tensors, made on the host by Numba, alike for any number of its threads."""

from __future__ import annotations

from collections.abc import Callable

from gpu.mttkrp.formats.b_csf import b_csf, b_csf_all
from gpu.mttkrp.formats.coo import coalesce
from gpu.mttkrp.formats.csf import csf, csf_all
from gpu.mttkrp.formats.f_coo import f_coo, f_coo_all
from gpu.mttkrp.formats.fibers import fibers
from gpu.mttkrp.formats.hi_coo import hi_coo
from gpu.mttkrp.formats.mm_csf import mm_csf
from gpu.mttkrp.formats.to_coo import to_coo
from reference.types import Coo, SparseTensor

FORMATS: dict[str, Callable[[Coo], SparseTensor]] = {
    "coo": coalesce,
    "csf-one": csf,
    "csf-all": csf_all,
    "b-csf": b_csf_all,
    "f-coo": f_coo_all,
    "hicoo": hi_coo,
    "mm-csf": mm_csf,
}
"""What makes each format from coordinates, by the format's name."""

__all__ = [
    "FORMATS",
    "b_csf",
    "b_csf_all",
    "coalesce",
    "csf",
    "csf_all",
    "f_coo",
    "f_coo_all",
    "fibers",
    "hi_coo",
    "mm_csf",
    "to_coo",
]
