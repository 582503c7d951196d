"""Arithmetic on f16 and bf16 words, rounded once.

Each operation is done in float64, where products of such numbers are exact and sums can be rounded to
odd.

Source: PTX ISA 9.0, section 9.7.4 (half precision add, sub, mul, fma).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from reference.errors import SchemeError, ShapeError
from simwarp.floats.elementwise import elementwise
from simwarp.floats.error_free import sum_to_odd
from simwarp.floats.rounding import Rounding, Words, check_rounding
from simwarp.floats.small_formats import narrow, widen

HalfOperation: TypeAlias = Literal["add", "sub", "mul", "fma"]
HalfFormat: TypeAlias = Literal["f16", "bf16"]


@np.errstate(all="ignore")
def half(operation: HalfOperation, *words: Any, format: HalfFormat, rounding: Rounding = "rn") -> Any:
    """One of a + b, a - b, a · b, a · b + c, of f16 or bf16 (PTX ISA 9.7.4).

    Parameters
    ----------
    operation : "add", "sub", "mul" or "fma"
    words : uint16, two of them or three, of shapes that broadcast
    format : "f16" or "bf16"
    rounding : "rn", "rz", "rm" or "rp"

    Returns
    -------
    uint16 array

    Raises
    ------
    SchemeError
        For another operation, format or rounding.
    ShapeError
        For another number of operands.

    Examples
    --------
    >>> one = np.uint16(0x3C00)
    >>> hex(half("add", one, one, format="f16"))
    '0x4000'
    """
    check_rounding(rounding)
    if operation not in _COUNTS:
        raise SchemeError(f"unknown half operation {operation!r}\nchoose one of {', '.join(_COUNTS)}")
    if format not in ("f16", "bf16"):
        raise SchemeError(f"half arithmetic in format {format!r}\nchoose f16 or bf16")
    if len(words) != _COUNTS[operation]:
        raise ShapeError(f"{operation} of {len(words)} operands\npass {_COUNTS[operation]}")
    return elementwise(partial(_in_float64, operation, format, rounding), *words)


_COUNTS: dict[HalfOperation, int] = {"add": 2, "sub": 2, "mul": 2, "fma": 3}


def _in_float64(operation: HalfOperation, format: HalfFormat, rounding: Rounding, *words: Words) -> Words:
    values = [widen(x, format).astype(np.float64) for x in words]
    if operation == "add":
        result = sum_to_odd(values[0], values[1], rounding)
    elif operation == "sub":
        result = sum_to_odd(values[0], np.negative(values[1]), rounding)
    else:
        result = np.multiply(values[0], values[1])
        if operation == "fma":
            result = sum_to_odd(result, values[2], rounding)
    return narrow(result, format, rounding)
