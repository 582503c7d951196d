"""Sparse MTTKRP: the formats of sparse tensors, and their kernels (MM-CSF, sections 3 to 5)."""

from gpu.mttkrp.formats import FORMATS, KERNELS
from gpu.mttkrp.mttkrp import mttkrp
from gpu.mttkrp.plan import Plan, plan
from gpu.mttkrp.upload import download, upload

__all__ = ["FORMATS", "KERNELS", "Plan", "download", "mttkrp", "plan", "upload"]


def __dir__() -> list[str]:
    return sorted(__all__)
