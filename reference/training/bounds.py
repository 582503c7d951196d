"""Error bounds of convolutions and their gradients in lower precision.

A sum whose terms are added in any order, with or without fused multiply-adds, is within γ_n times the sum of
the terms' absolute values. Results of float16 and bfloat16 come from sums in float32, which are rounded to
the dtype once for each part that a sum is cut in, once for a bias and once for an activation. Operands of
TF32 have lost what float32 has behind ten bits, by rounding or cutting. Tensor cores cut what they align, so
with them a rounding counts twice.

Winograd's and Fourier transforms mix the pixels of a tile, so their errors are bounded by the largest values
of planes. Their worst case exceeds the results of a few hundred channels. So their bound takes roundings as
independent, with mean 0: a number is beyond it with a probability of 2 exp(-λ² / 2), which is 3e-8 for
λ = 6. With Winograd's matrices A, B and G in one dimension, and sums of n terms, it is

    λ u √n  Σ_channels max|x| Σ|w|  max_o Σ_i (|A_oi| max_k |G_ik| Σ_j |B_ij|)²

where the last factor has no root, as there are two dimensions. Fourier transforms of up to 256 x 256 pixels
are within it.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, second edition, sections 3.1, 4.2 and 24.1;
Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks,
ACM TOMS 46 (2020), section 4; Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM
J. Sci. Comput. 41 (2019), theorem 2.4; Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
CVPR 2016.
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
"""The largest relative error of a rounding to each dtype, by name."""
_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}
"""The smallest number above 0 of dtypes whose underflow counts."""
_TF32_UNIT = 2.0**-10
"""The relative error of an operand that is truncated to TF32."""
_AMPLIFIED = 414
"""The last factor of the bound for tiles of up to 8 x 8 pixels."""
_TRANSFORMED, _DEVIATIONS = 64, 6
"""Roundings in the transforms of a term at most, and λ."""

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
    transforms: bool = False,
    **options: Any,
) -> float:
    """Compute the largest error of a convolution in units of its bound: the result is right up to 1.

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
    transforms : bool
        Whether Winograd's or Fourier transforms may have been used.

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
    expected, bound = bounded(
        routine,
        *operands,
        activation=activation,
        dtype=given.dtype,
        tf32=tf32,
        parts=parts,
        transforms=transforms,
        **options,
    )
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
    transforms: bool = False,
    **options: Any,
) -> tuple[Array, Array]:
    """Compute the result by definition, and a bound for the error of each element of another result.

    Parameters
    ----------
    routine, *operands, activation, tf32, parts, transforms, **options
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
    if transforms:
        bound = bound + _transformed(routine, absolute, options, UNITS["float32"] if smallest else unit)
    if activation is not None:  # the activation's slope is at most 1; it rounds once
        result = ACTIVATIONS[activation][0](result)
        bound = bound + 4 * unit * (np.abs(result) + bound) + smallest
    return result, bound


def _absolute(operand: Any) -> Any:
    """The absolute values of an array; a shape or None (no bias) is returned unchanged."""
    if operand is None or isinstance(operand, tuple):
        return cast("Any", operand)
    return np.abs(doubles(operand, "an operand"))


def _transformed(routine: str, absolute: list[Any], options: dict[str, Any], unit: float) -> Array:
    """The error of transforms beyond the roundings of sums, for each plane of the result."""
    groups, is_last = options.get("groups", 1), options.get("layout", "NCHW") == "NHWC"
    planes = (1, 2) if is_last else (2, 3)
    peaks, sums = absolute[0].max(axis=planes), absolute[1].sum(axis=planes)
    images = peaks.reshape(len(peaks), groups, -1)
    if routine == "conv2d_backward_filter":
        count = math.prod(absolute[1].shape) // sums.shape[1]
        magnitudes = np.einsum("ngc,ngo->goc", images, sums.reshape(len(sums), groups, -1))
        magnitudes = magnitudes.reshape(-1, magnitudes.shape[2])
    else:
        filters = sums.reshape(groups, -1, sums.shape[1])
        axes = "ngc,goc->ngo" if routine == "conv2d" else "ngo,goc->ngc"
        count = images.shape[2]
        magnitudes = np.einsum(axes, images, filters).reshape(len(images), -1)
    bound = _DEVIATIONS * math.sqrt(count + _TRANSFORMED) * unit * _AMPLIFIED * magnitudes
    return np.expand_dims(bound, planes)


def _roundings(routine: str, operands: tuple[Any, ...], options: dict[str, Any]) -> int:
    """The most roundings that affect a term: of its product, of the sums, and of the result."""
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
