"""The CP decomposition of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference.values import compared, not_an_array, shortened


@not_an_array("pass its weights or one of its factors")
@shortened
@compared
@dataclass(frozen=True, eq=False)
class Cpd:
    """A tensor as a weighted sum of ``rank`` outer products: equation 1, with unit columns and weights.

    Element (i_0, …, i_{d-1}) of the model is ``sum over r of weights[r] * factors[0][i_0, r] * … *
    factors[d-1][i_{d-1}, r]``.

    Attributes
    ----------
    weights : (rank,) array
        The norms of the columns before they were normalised.
    factors : tuple of (dimension, rank) arrays, one per mode
        Columns of Euclidean norm 1, or of zeros with weight 0 if the rank exceeds that of the tensor.
    fits : tuple of float
        The fit ``1 - ||X - model|| / ||X||`` after each iteration, in Frobenius norms.
    converged : bool
        Whether the fit changed by less than the tolerance within the allowed iterations.

    Source: MM-CSF (SC'19), section 2.2, equation 1 and algorithm 1.
    """

    weights: Any
    factors: tuple[Any, ...]
    fits: tuple[float, ...]
    converged: bool
