"""Sparse tensors in every format of the MM-CSF paper: builders, conversion, files.

The formats are the dataclasses of `reference.types`. The builders here define them: slow, on the host, for
orders 2 to 8. ``gpu.mttkrp.formats`` has functions of the same names that build the same arrays.
"""

from reference.sparse.convert import to_coo
from reference.sparse.files import read_tensor, write_tensor
from reference.sparse.formats import FORMATS
from reference.sparse.formats.b_csf import b_csf, b_csf_all
from reference.sparse.formats.coo import coalesce
from reference.sparse.formats.csf import csf, csf_all
from reference.sparse.formats.f_coo import f_coo, f_coo_all
from reference.sparse.formats.fibers import fibers, fibers_all
from reference.sparse.formats.hi_coo import hi_coo
from reference.sparse.formats.mm_csf import mm_csf
from reference.sparse.interchange import from_pydata, from_scipy, from_torch, to_pydata, to_scipy, to_torch
from reference.sparse.lengths import fiber_lengths, length_histogram, slice_lengths
from reference.sparse.storage import index_bytes
from reference.sparse.tns import read_tns, write_tns
from reference.sparse.work import MttkrpWork, mttkrp_work
from reference.types import BCsf, Coo, Csf, FCoo, Fibers, HiCoo, MmCsf, PerMode, SparseTensor

__all__ = [
    "FORMATS",
    "BCsf",
    "Coo",
    "Csf",
    "FCoo",
    "Fibers",
    "HiCoo",
    "MmCsf",
    "MttkrpWork",
    "PerMode",
    "SparseTensor",
    "b_csf",
    "b_csf_all",
    "coalesce",
    "csf",
    "csf_all",
    "f_coo",
    "f_coo_all",
    "fiber_lengths",
    "fibers",
    "fibers_all",
    "from_pydata",
    "from_scipy",
    "from_torch",
    "hi_coo",
    "index_bytes",
    "length_histogram",
    "mm_csf",
    "mttkrp_work",
    "read_tensor",
    "read_tns",
    "slice_lengths",
    "to_coo",
    "to_pydata",
    "to_scipy",
    "to_torch",
    "write_tensor",
    "write_tns",
]


def __dir__() -> list[str]:
    return sorted(__all__)
