"""Level-3 BLAS over all devices of a machine, from host memory (BLASX)."""

from gpu.blas3.compositions import cholesky, matmul, solve_triangular
from gpu.blas3.doors import (
    cgemm,
    chemm,
    cher2k,
    cherk,
    csymm,
    csyr2k,
    csyrk,
    ctrmm,
    ctrsm,
    dgemm,
    dsymm,
    dsyr2k,
    dsyrk,
    dtrmm,
    dtrsm,
    sgemm,
    ssymm,
    ssyr2k,
    ssyrk,
    strmm,
    strsm,
    zgemm,
    zhemm,
    zher2k,
    zherk,
    zsymm,
    zsyr2k,
    zsyrk,
    ztrmm,
    ztrsm,
)
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
    "cgemm",
    "chemm",
    "cher2k",
    "cherk",
    "cholesky",
    "csymm",
    "csyr2k",
    "csyrk",
    "ctrmm",
    "ctrsm",
    "dgemm",
    "dsymm",
    "dsyr2k",
    "dsyrk",
    "dtrmm",
    "dtrsm",
    "explain",
    "matmul",
    "patched",
    "sgemm",
    "solve_triangular",
    "ssymm",
    "ssyr2k",
    "ssyrk",
    "strmm",
    "strsm",
    "summa",
    "zgemm",
    "zhemm",
    "zher2k",
    "zherk",
    "zsymm",
    "zsyr2k",
    "zsyrk",
    "ztrmm",
    "ztrsm",
]


def __dir__() -> list[str]:
    return sorted(__all__)
