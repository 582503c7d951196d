"""The registry of the sparse formats, one module and one entry for each."""

from __future__ import annotations

from collections.abc import Callable

from reference.sparse.formats.b_csf import FORMAT as B_CSF
from reference.sparse.formats.coo import FORMAT as COO
from reference.sparse.formats.csf import FORMAT as CSF
from reference.sparse.formats.entry import Format
from reference.sparse.formats.f_coo import FORMAT as F_COO
from reference.sparse.formats.fibers import FORMAT as FIBERS
from reference.sparse.formats.hi_coo import FORMAT as HI_COO
from reference.sparse.formats.mm_csf import FORMAT as MM_CSF
from reference.types import Coo, SparseTensor

OF_TYPE: dict[type, Format] = {
    entry.kind: entry for entry in (COO, CSF, FIBERS, B_CSF, F_COO, HI_COO, MM_CSF)
}
"""The entry of each type of tensor, except `PerMode`, which is made of others."""

FORMATS: dict[str, Callable[[Coo], SparseTensor]] = {
    name: build for entry in OF_TYPE.values() for name, build in entry.builders.items()
}
"""The function that builds each format from a Coo with default settings, by the name of the format."""
