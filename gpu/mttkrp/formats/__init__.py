"""Formats of sparse tensors: builders in Numba, whose results do not depend on the threads, and kernels."""

from gpu.mttkrp.formats.b_csf import b_csf, b_csf_all
from gpu.mttkrp.formats.coo import coalesce
from gpu.mttkrp.formats.csf import csf, csf_all
from gpu.mttkrp.formats.f_coo import f_coo, f_coo_all
from gpu.mttkrp.formats.fibers import fibers, fibers_all
from gpu.mttkrp.formats.hi_coo import hi_coo
from gpu.mttkrp.formats.mm_csf import mm_csf
from gpu.mttkrp.formats.registry import FORMATS, KERNELS, OF_TYPE
from gpu.mttkrp.formats.to_coo import to_coo

__all__ = [
    "FORMATS",
    "KERNELS",
    "OF_TYPE",
    "b_csf",
    "b_csf_all",
    "coalesce",
    "csf",
    "csf_all",
    "f_coo",
    "f_coo_all",
    "fibers",
    "fibers_all",
    "hi_coo",
    "mm_csf",
    "to_coo",
]
