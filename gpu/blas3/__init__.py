"""Level-3 BLAS over all devices of a machine, from host memory (BLASX)."""

from gpu.blas3 import doors
from gpu.blas3.compositions import cholesky, matmul, solve_triangular
from gpu.blas3.doors import *  # noqa: F403 - a routine that is added is exported
from gpu.blas3.explain import explain
from gpu.blas3.options import Options
from gpu.blas3.patched import Routing, patched
from gpu.blas3.plan import Plan
from gpu.blas3.processes import OneProcess, ProcessGrid
from gpu.blas3.statistics import DeviceStatistics, Statistics
from gpu.blas3.summa import summa

__all__ = [
    "DeviceStatistics",
    "OneProcess",
    "Options",
    "Plan",
    "ProcessGrid",
    "Routing",
    "Statistics",
    "cholesky",
    "explain",
    "matmul",
    "patched",
    "solve_triangular",
    "summa",
]
__all__ += doors.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
