"""Level-3 BLAS by definition, in extended precision, with bounds on the rounding errors of other results."""

from reference.blas3 import products, triangular
from reference.blas3.arguments import Diag, Side, Trans, Uplo
from reference.blas3.bounds import ROUTINES, error_of
from reference.blas3.products import *  # noqa: F403 - a routine that is added is exported
from reference.blas3.triangular import *  # noqa: F403

__all__ = [
    "ROUTINES",
    "Diag",
    "Side",
    "Trans",
    "Uplo",
    "error_of",
]
__all__ += products.__all__
__all__ += triangular.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
