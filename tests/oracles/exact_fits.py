"""The fit of a CPD model to its tensor, in exact fractions."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np


def exact_residual(coo, model) -> float:
    """``‖X - model‖ / ‖X‖`` over all elements of the dense tensor, rounded once."""
    weights = [Fraction(float(weight)) for weight in model.weights]
    factors = [[[Fraction(float(x)) for x in row] for row in factor] for factor in model.factors]
    values = dict.fromkeys(np.ndindex(*coo.shape), Fraction(0))
    for z, value in enumerate(coo.values):
        values[tuple(int(i) for i in coo.coords[:, z])] += Fraction(float(value))
    residual = Fraction(0)
    for place, value in values.items():
        for r, weight in enumerate(weights):
            term = weight
            for factor, i in zip(factors, place, strict=True):
                term *= factor[i][r]
            value -= term
        residual += value * value
    share = residual / sum(value * value for value in values.values())
    with localcontext(prec=60):
        return float((Decimal(share.numerator) / Decimal(share.denominator)).sqrt())
