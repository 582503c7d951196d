"""Sparse MTTKRP: the formats, and the kernels that each of them gets (MM-CSF, sections 3 to 5)."""

from gpu.callable_package import make_callable
from gpu.mttkrp.formats import FORMATS
from gpu.mttkrp.mttkrp import mttkrp
from gpu.mttkrp.plan import KERNELS, Plan, plan
from gpu.mttkrp.upload import download, upload

__all__ = ["FORMATS", "KERNELS", "Plan", "download", "mttkrp", "plan", "upload"]

make_callable(__name__, mttkrp)
