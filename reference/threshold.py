"""Binarization of integer dot products: batch normalisation and sign as one comparison, and pooling of bits.

A binarized layer computes ``Bin(BN(ReLU(x)))`` of each of its dot products x. As x is an integer, this equals
a comparison with an integer threshold per output channel, whose bit is flipped for a negative γ. Pooling
follows: the maximum and the minimum of a window of ±1 are OR and AND of its bits.

Source: BSTC (SC'19), equations 1, 3, 4 and 5, section 6.2; BTC (TPDS'20), section 6.1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bits import Bits, pack
from reference.errors import DtypeError, NotANumberError, ShapeError
from reference.tensors import pack_tensor_bits
from reference.types import First, Layout, PackedBits, PackedTensor, TensorLayout, Word
from reference.types.arguments import check_option
from reference.types.fields import as_array
from reference.types.packed import IMAGE_LAYOUTS, check_format
from reference.values import not_an_array, shortened

Pool: TypeAlias = Literal["or", "and"]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@not_an_array("pass its thresholds or its flip")
@shortened
class IntegerThresholds(NamedTuple):
    """Thresholds and flips of ``bit = (dot >= thresholds[j]) ^ flip[j]`` for each output channel j."""

    thresholds: npt.NDArray[np.int32]
    flip: npt.NDArray[np.bool_]


def threshold(
    dots: npt.ArrayLike,
    thresholds: npt.ArrayLike,
    flip: npt.ArrayLike | None = None,
    *,
    layout: Layout = "column",
    word: Word = 32,
    first: First = "msb",
) -> PackedBits:
    """Binarize integer dot products against a threshold per column, and pack the bits.

    Bit (i, j) is ``(dots[i, j] >= thresholds[j]) ^ flip[j]``, as ``gpu.bmm(…, thresholds=, flip=)`` and the
    listings with bit output store it.

    Parameters
    ----------
    dots : integers in the range of int32, (M, N)
    thresholds : integers in the range of int32, (N,)
        `integer_thresholds` computes them from a batch normalisation.
    flip : bool, (N,), optional
        Default: no column is flipped.
    layout, word, first
        The format; see `reference.types.PackedBits`. The default is that of a left operand of `bmm`.

    Returns
    -------
    PackedBits
        Of shape (M, N).

    Raises
    ------
    ShapeError
        If ``dots`` is not a matrix, has a dimension of 0, or N differs.
    DtypeError
        For other dtypes, or integers outside int32.
    SchemeError
        For an unknown ``layout``, ``word`` or ``first``.

    Notes
    -----
    Source: BSTC (SC'19), equations 4 and 5. Listing 7 has ``t < threshold`` where equation 5 has ``>=``; this
    function follows equation 5, which agrees with equations 1 and 3.

    Examples
    --------
    >>> packed = threshold([[-2, 0, 2], [0, 0, 0]], [0, 1, 2], [False, False, True])
    >>> [f"{word >> 29:03b}" for word in packed.words[0]]
    ['000', '101']
    """
    bits = threshold_bits(dots, thresholds, flip, ("M", "N"))
    return pack(np.where(bits, np.int8(1), np.int8(-1)), layout=layout, word=word, first=first)


def threshold_tensor(
    dots: npt.ArrayLike,
    thresholds: npt.ArrayLike,
    flip: npt.ArrayLike | None = None,
    *,
    pool: Pool | None = None,
    layout: TensorLayout = "NHWC",
    word: Word = 32,
    first: First = "lsb",
) -> PackedTensor:
    """Binarize the dot products of a convolution, optionally pool the bits, and pack them.

    Bit (n, p, q, o) is ``(dots[n, p, q, o] >= thresholds[o]) ^ flip[o]``; `reference.pool_bits` then combines
    2×2 of them. The result, the next layer's images, is what ``gpu.bconv2d(…, thresholds=, flip=, pool=)``
    and the listings with bit output store.

    Parameters
    ----------
    dots : integers in the range of int32, (N, P, Q, O)
    thresholds : integers in the range of int32, (O,)
        `reference.integer_thresholds` computes them from a batch normalisation.
    flip : bool, (O,), optional
        Default: no channel is flipped.
    pool : {"or", "and"}, optional
        Default: no pooling.
    layout : {"NHWC", "HWNC", "HWNC-FSB"}
    word, first
        The format; see `reference.types.PackedTensor`.

    Returns
    -------
    PackedTensor
        Of shape (N, P, Q, O), pooled (N, P // 2, Q // 2, O).

    Raises
    ------
    ShapeError
        If ``dots`` does not have four dimensions of at least 1, O differs, or pooling leaves no pixel.
    DtypeError
        For other dtypes, or integers outside int32.
    SchemeError
        For an unknown ``pool``, ``layout``, ``word`` or ``first``, or a layout of filters.

    Notes
    -----
    Source: BSTC (SC'19), equations 4 and 5; BTC (TPDS'20), section 6.1.

    Examples
    --------
    >>> dots = np.array([[3, -1], [-5, 1]], np.int32).reshape(1, 1, 2, 2)
    >>> threshold_tensor(dots, [0, 0], [False, True]).words.tolist()
    [[[[3], [0]]]]
    >>> threshold_tensor(np.tile(dots, (1, 2, 1, 1)), [0, 0], pool="or").words.tolist()
    [[[[3]]]]
    """
    check_format(layout, word, first, IMAGE_LAYOUTS)
    bits = threshold_bits(dots, thresholds, flip, ("N", "P", "Q", "O")).astype(np.uint8)
    return pack_tensor_bits(bits if pool is None else pool_bits(bits, pool), layout, word, first)


def pool_bits(bits: Bits, pool: Pool) -> Bits:
    """Combine the bits of each 2×2 window of an image by OR or AND; windows do not overlap.

    With + for either operation,
    ``pooled[n, p, q, c] = bits[n, 2p, 2q, c] + bits[n, 2p, 2q+1, c] + bits[n, 2p+1, 2q, c] +
    bits[n, 2p+1, 2q+1, c]``. A last odd row or column is dropped.

    Parameters
    ----------
    bits : array of uint8, 0 or 1, (N, H, W, C)
    pool : {"or", "and"}
        "or" is max pooling of the signs, "and" min pooling. Max pooling before a flipped threshold is min
        pooling after it.

    Returns
    -------
    array of uint8, (N, H // 2, W // 2, C), C order

    Raises
    ------
    SchemeError
        For an unknown ``pool``.
    ShapeError
        If ``bits`` does not have four dimensions, or is less than 2 pixels high or wide.

    Notes
    -----
    Source: BTC (TPDS'20), section 6.1.

    Examples
    --------
    >>> bits = np.array([[1, 0, 0], [1, 1, 0]], np.uint8).reshape(1, 2, 3, 1)
    >>> pool_bits(bits, "or").tolist(), pool_bits(bits, "and").tolist()
    ([[[[1]]]], [[[[0]]]])
    """
    check_option("pool", pool, ("or", "and"), "bits are combined by OR or by AND")
    if bits.ndim != 4 or min(bits.shape[1:3]) < 2:
        raise ShapeError(
            f"bits has shape {bits.shape}: pool={pool!r} would leave no pixel\n"
            "windows are 2 by 2 pixels of (N, H, W, C)\n"
            "omit pool, or give at least two rows and columns"
        )
    height, width = (size // 2 * 2 for size in bits.shape[1:3])
    windows = [bits[:, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
    join = np.bitwise_or if pool == "or" else np.bitwise_and
    return np.ascontiguousarray(join.reduce(windows))


def threshold_bits(
    dots: npt.ArrayLike, thresholds: npt.ArrayLike, flip: npt.ArrayLike | None, axes: tuple[str, ...]
) -> npt.NDArray[np.bool_]:
    """Compute ``(dots[..., j] >= thresholds[j]) ^ flip[j]`` for dots with the named axes."""
    dots, limits = _integers(dots, "dots"), _integers(thresholds, "thresholds")
    if dots.ndim != len(axes) or dots.size == 0:
        raise ShapeError(f"dots has shape {dots.shape}: give ({', '.join(axes)}), each at least 1")
    flips = _flips(flip, dots.shape[-1])
    for name, vector in (("thresholds", limits), ("flip", flips)):
        if vector.shape != dots.shape[-1:]:
            raise ShapeError(
                f"{name} has shape {vector.shape}, dots {dots.shape}: give one per column, {dots.shape[-1:]}"
            )
    return np.asarray((dots >= limits) ^ flips)


def integer_thresholds(
    gamma: npt.ArrayLike,
    beta: npt.ArrayLike,
    mean: npt.ArrayLike,
    variance: npt.ArrayLike,
    epsilon: float = 0.0,
    *,
    relu: bool = False,
) -> IntegerThresholds:
    """Convert batch normalisation followed by binarization to exact integer thresholds.

    The result (t, flip) satisfies, for every int32 x and channel j::

        (x >= t[j]) ^ flip[j]  ==  gamma * (x' - mean) / sqrt(variance + epsilon) + beta >= 0

    where x' is ``max(x, 0)`` with ``relu``, else x. The right side is evaluated exactly, in real numbers:
    each parameter is the rational number that it holds, and the square root is not rounded. With
    τ = mean − beta · sqrt(variance + epsilon) / gamma, the bit is 1 for

    * gamma > 0: x' >= τ, that is x' >= ⌈τ⌉;
    * gamma < 0: x' <= τ, that is not x' >= ⌊τ⌋ + 1, so flip;
    * gamma = 0: every x if beta >= 0, else none.

    If the bit is the same for every int32 x (for example if the threshold is outside int32, or at most 0
    after a ReLU), t is −2³¹: the comparison always holds, and flip decides the bit.

    Parameters
    ----------
    gamma, beta, mean, variance : floats to 64 bits, or integers, (N,)
        γ, β, E and Var of equation 3, per output channel.
    epsilon : float
        ε of equation 3, with the exact value of the float: 1e-5 differs from np.float32(1e-5).
    relu : bool
        Whether equation 5's ``max(x, 0)`` comes before the batch normalisation.

    Returns
    -------
    thresholds : int32, (N,)
    flip : bool, (N,)
        A named tuple of the two arguments of `threshold`, valid for dots of any K < 2**31.

    Raises
    ------
    ShapeError
        If the four are not vectors of one length, at least 1, or ``epsilon`` is not a scalar.
    DtypeError
        For elements that are neither floats of up to 64 bits nor integers.
    NotANumberError
        For a NaN or an infinity, a variance or epsilon below 0, or a variance and epsilon that are both 0.

    Notes
    -----
    A framework that evaluates equation 3 in floats may give the other bit where the exact value is within
    its rounding error of 0.

    Source: BSTC (SC'19), equations 1, 3, 4 and 5. The paper rounds the threshold up to an integer and
    assumes γ > 0 (its footnote 1 flips the weights otherwise). Listing 7 has ``t < threshold`` where equation
    5 has ``>=``; this function follows equation 5, which agrees with equations 1 and 3.

    Examples
    --------
    >>> t, flip = integer_thresholds([2.0, -2.0, 0.0], [1.0, 1.0, -1.0], [0.5] * 3, [4.0] * 3)
    >>> t.tolist(), flip.tolist()
    ([0, 2, -2147483648], [False, True, True])
    """
    names = ("gamma", "beta", "mean", "variance")
    vectors = [_rationals(x, name) for name, x in zip(names, (gamma, beta, mean, variance), strict=True)]
    lengths = [len(vector) for vector in vectors]
    if len(set(lengths)) > 1:
        given = ", ".join(f"{name} {length}" for name, length in zip(names, lengths, strict=True))
        raise ShapeError(f"the lengths differ: {given}; give one of each per output channel")
    if np.ndim(epsilon) != 0:
        raise ShapeError(f"epsilon has shape {np.shape(epsilon)}: give one number for all channels")
    (small,) = _rationals([epsilon], "epsilon")
    rules: list[tuple[int, bool]] = []
    for j, (g, b, e, var) in enumerate(zip(*vectors, strict=True)):
        if var < 0 or small < 0 or var + small == 0:
            raise NotANumberError(
                f"variance[{j}] is {float(var)} and epsilon {float(small)}: equation 3 divides by the root "
                "of their sum, so both must be at least 0 and not both 0; check the order of the arguments, "
                "or give an epsilon"
            )
        rules.append(_rule(g, b, e, var + small, relu))
    return IntegerThresholds(
        np.array([t for t, _ in rules], np.int32), np.array([flip for _, flip in rules], np.bool_)
    )


def _rule(gamma: Fraction, beta: Fraction, mean: Fraction, square: Fraction, relu: bool) -> tuple[int, bool]:
    """The threshold and the flip of one channel, where ``square`` is Var + ε."""
    if gamma == 0:
        return INT32_MIN, beta < 0
    # τ = mean + sign * sqrt(q)
    sign, q = (-1 if beta * gamma > 0 else 1), (beta / gamma) ** 2 * square
    flip = gamma < 0
    t = 1 - _ceil(-mean, -sign, q) if flip else _ceil(mean, sign, q)  # ⌊τ⌋ = −⌈−τ⌉
    if t > INT32_MAX:
        return INT32_MIN, not flip
    return (INT32_MIN if t < INT32_MIN or (relu and t <= 0) else t), flip


def _ceil(x: Fraction, sign: int, q: Fraction) -> int:
    """Compute ⌈x + sign · √q⌉ exactly: with x = n / d it is ⌈(n + ⌈sign · √(q d²)⌉) / d⌉."""
    q *= x.denominator**2
    root = math.isqrt(math.floor(q))
    if sign > 0 and root * root != q:
        root += 1
    return -((-x.numerator - sign * root) // x.denominator)


def _rationals(x: npt.ArrayLike, name: str) -> list[Fraction]:
    """Convert a vector of finite floats or integers to exact fractions."""
    vector = as_array(x, name, "an array of numbers")
    if vector.dtype.kind not in "iuf" or vector.dtype.itemsize > 8:
        raise DtypeError(f"{name} has elements of {vector.dtype}: give integers, or floats of up to 64 bits")
    if vector.ndim != 1 or vector.size == 0:
        raise ShapeError(f"{name} has shape {vector.shape}: give (N,), one per output channel, at least 1")
    strange = ~np.isfinite(vector)
    if strange.any():
        at = int(strange.argmax())
        raise NotANumberError(
            f"{name}[{at}] is {vector[at]}: equation 3 needs finite numbers; check whether training "
            "overflowed, and replace it"
        )
    return [Fraction(value) for value in vector.tolist()]


def _integers(x: npt.ArrayLike, name: str) -> npt.NDArray[np.int64]:
    """Convert ``x`` to int64; raise DtypeError unless it holds integers in the range of int32."""
    array = as_array(x, name, "an array of numbers")
    other = "; integer_thresholds computes them from a batch normalisation" if name == "thresholds" else ""
    if array.dtype.kind not in "iu":
        raise DtypeError(f"{name} has elements of {array.dtype}: give int32{other}")
    if array.size and (int(array.min()) < INT32_MIN or int(array.max()) > INT32_MAX):
        raise DtypeError(
            f"{name} has {array.min()} … {array.max()}, beyond int32: clip to {INT32_MIN} … {INT32_MAX}"
            + other
        )
    return array.astype(np.int64)


def _flips(flip: npt.ArrayLike | None, columns: int) -> npt.NDArray[np.bool_]:
    """Convert the flips to an array of bool; all False by default."""
    if flip is None:
        return np.zeros(columns, np.bool_)
    array = as_array(flip, "flip", "an array of bool")
    if array.dtype != np.bool_:
        raise DtypeError(f"flip has elements of {array.dtype}: give bool, True where the bit is flipped")
    return array
