"""Level-3 BLAS by definition, in extended precision, and how far a result may be from it."""

from reference.blas3.arguments import Diag, Side, Trans, Uplo
from reference.blas3.bounds import ROUTINES, error_of
from reference.blas3.products import gemm, hemm, her2k, herk, symm, syr2k, syrk
from reference.blas3.triangular import trmm, trsm

__all__ = [
    "ROUTINES",
    "Diag",
    "Side",
    "Trans",
    "Uplo",
    "error_of",
    "gemm",
    "hemm",
    "her2k",
    "herk",
    "symm",
    "syr2k",
    "syrk",
    "trmm",
    "trsm",
]


def __dir__() -> list[str]:
    return sorted(__all__)
