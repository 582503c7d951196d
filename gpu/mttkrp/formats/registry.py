"""The registry of sparse formats: one entry for each, from the format's module."""

from __future__ import annotations

from gpu.mttkrp.formats.b_csf import FORMAT as B_CSF
from gpu.mttkrp.formats.coo import FORMAT as COO
from gpu.mttkrp.formats.csf import FORMAT as CSF
from gpu.mttkrp.formats.entry import Builder, Format
from gpu.mttkrp.formats.f_coo import FORMAT as F_COO
from gpu.mttkrp.formats.fibers import FORMAT as FIBERS
from gpu.mttkrp.formats.hi_coo import FORMAT as HI_COO
from gpu.mttkrp.formats.mm_csf import FORMAT as MM_CSF

OF_TYPE: dict[type, Format] = {
    entry.kind: entry for entry in (COO, CSF, FIBERS, B_CSF, F_COO, HI_COO, MM_CSF)
}
"""The entries by type of tensor; `PerMode` has none, as it holds tensors of other types."""

FORMATS: dict[str, Builder] = {
    name: build for entry in OF_TYPE.values() for name, build in entry.builders.items()
}
"""Functions that build a format from a Coo, by the format's name."""

KERNELS: dict[type, tuple[str, str]] = {
    entry.kind: (entry.source, entry.summary) for entry in OF_TYPE.values() if entry.work
}
"""Source and summary of the kernel of each type; other types hold these, or are converted to them."""
