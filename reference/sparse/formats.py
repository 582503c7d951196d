"""The formats by the names under which they are compared."""

from __future__ import annotations

from collections.abc import Callable

from reference.sparse.b_csf import b_csf_all
from reference.sparse.csf import csf, csf_all
from reference.sparse.f_coo import f_coo_all
from reference.sparse.hi_coo import hi_coo
from reference.sparse.mm_csf import mm_csf
from reference.sparse.order import coalesce
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
"""What makes each format from coordinates, with the settings it has by default."""
