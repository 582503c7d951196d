"""How far convolutions and their gradients in lower precision may be from the definition.

A sum whose terms are added in any order, with or without fused multiply-adds, is within γ_n times the sum of
the terms' absolute values. Results of float16 and bfloat16 come from sums in float32, which are rounded to
the dtype once for each part that a sum is cut in, once for a bias and once for an activation. Operands of
TF32 have lost what float32 has behind ten bits, by rounding or cutting. Tensor cores cut what they align, so
with them a rounding counts twice.

Source: Higham, Accuracy and Stability of Numerical Algorithms, second edition, sections 3.1 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from reference.training.activations import ACTIVATIONS
from reference.training.convolution import conv2d, conv2d_backward_data, conv2d_backward_filter
from reference.training.layouts import Array, doubles
from reference.types.arguments import check_option

UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The largest relative error of a rounding to each dtype; a bfloat16 is told by its name."""
_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}
"""The smallest number above 0."""
_TF32_UNIT = 2.0**-10
"""Of an operand that is cut to TF32."""

CONVOLUTIONS: dict[str, Callable[..., Array]] = {
    f.__name__: f for f in (conv2d, conv2d_backward_data, conv2d_backward_filter)
}
"""The definitions by their names."""


def error_of(
    routine: str,
    result: npt.ArrayLike,
    *operands: Any,
    activation: str | None = None,
    tf32: bool = False,
    parts: int = 1,
    **options: Any,
) -> float:
    """Compute the largest error of a convolution, in units of what its result may be off: right up to 1.

    Parameters
    ----------
    routine : str
        A name of `CONVOLUTIONS`.
    result : array_like of float64, float32, float16 or bfloat16
        What is judged; its dtype is that of the sums, or for the last two that of what is stored.
    *operands, **options
        The routine's arguments.
    activation : {"relu", "tanh", "sigmoid"}, optional
        Of a fused `conv2d`: it follows the bias.
    tf32 : bool
        Whether operands of float32 may have been rounded or cut to TF32.
    parts : int
        Into how many parts sums were cut, each of which is stored: of float16 and bfloat16.

    Returns
    -------
    float
        Infinity for a wrong shape, and for a NaN.

    Raises
    ------
    SchemeError
        For an unknown name; and the routine's own errors.
    DtypeError
        For another dtype.

    Examples
    --------
    >>> x, w = np.full((1, 2, 3, 3), 0.1, np.float32), np.full((1, 2, 3, 3), 0.3, np.float32)
    >>> y = conv2d(x, w).astype(np.float32)
    >>> error_of("conv2d", y, x, w) <= 1, error_of("conv2d", y * np.float32(1.0001), x, w) <= 1
    (True, False)
    """
    given = np.asarray(result)
    how: dict[str, Any] = {"activation": activation, "dtype": given.dtype, "tf32": tf32, "parts": parts}
    expected, bound = bounded(routine, *operands, **how, **options)
    if given.shape != expected.shape:
        return math.inf
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(given.astype(np.float64) - expected)
        units = np.where(error == 0, 0, error / bound)
    return float(np.where(np.isnan(units), np.inf, units).max())


def bounded(
    routine: str,
    *operands: Any,
    activation: str | None = None,
    dtype: npt.DTypeLike = "f4",
    tf32: bool = False,
    parts: int = 1,
    **options: Any,
) -> tuple[Array, Array]:
    """Compute the result by definition, and how far each number of another result may be from it.

    Parameters
    ----------
    routine, *operands, activation, tf32, parts, **options
        As of `error_of`.
    dtype : dtype
        That of the other result.

    Returns
    -------
    result, bound : array of float64

    Raises
    ------
    SchemeError, DtypeError
        As `error_of`.

    Examples
    --------
    >>> result, bound = bounded("conv2d", np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)))
    >>> float(result[0, 0, 0, 0]), round(float(bound[0, 0, 0, 0] * 2**23), 6)
    (1.0, 2.0)
    """
    check_option("routine", routine, tuple(CONVOLUTIONS), "these are convolutions and their gradients")
    check_option("activation", activation, (None, *ACTIVATIONS), "it follows the bias")
    result = CONVOLUTIONS[routine](*operands, **options)
    absolute = [_absolute(x) for x in operands]
    terms = CONVOLUTIONS[routine](*absolute, **options)
    name = np.dtype(dtype).name
    if name not in UNITS:
        raise DtypeError(f"sums of {name}\ntheir unit is not known\ngive one of {', '.join(UNITS)}")
    unit, smallest = UNITS[name], _SMALLEST.get(name, 0.0)
    count = _roundings(routine, operands, options)
    if not smallest and not tf32:
        bound = _gamma(count, unit) * terms
    else:
        relative = _gamma(2 * count, UNITS["float32"]) + (2.01 * _TF32_UNIT if tf32 else 0)
        stored = parts + len(operands) - 2 if smallest else 0
        bound = (relative + 1.01 * stored * unit) * terms + stored * smallest
    if activation is not None:  # its slope is 1 at most; its own rounding
        result = ACTIVATIONS[activation][0](result)
        bound = bound + 4 * unit * (np.abs(result) + bound) + smallest
    return result, bound


def _absolute(operand: Any) -> Any:
    """The absolute values of an array; a shape, or None for no bias, as it is."""
    if operand is None or isinstance(operand, tuple):
        return cast("Any", operand)
    return np.abs(doubles(operand, "an operand"))


def _roundings(routine: str, operands: tuple[Any, ...], options: dict[str, Any]) -> int:
    """The roundings that a term goes through at most: its product's, its sums', and the last one."""
    second = np.shape(operands[1])
    if routine == "conv2d":
        terms = math.prod(second[1:]) + len(operands[2:])
    elif routine == "conv2d_backward_data":
        terms = math.prod(second) // options.get("groups", 1)
    else:
        channels_last = options.get("layout", "NCHW") == "NHWC"
        terms = math.prod(second) // second[3 if channels_last else 1]
    return terms + 3


def _gamma(count: int, unit: float) -> float:
    """γ_n = n u / (1 - n u)."""
    return count * unit / (1 - count * unit)
