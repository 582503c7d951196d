"""Hypothesis strategies for arguments of kernels: lanes, vectors, matrices, bits, thresholds, grids.

Every strategy shrinks to a simple value: one element, zeros, the full mask, the default format. Invalid
arguments raise when the strategy is made.

Needs Hypothesis: ``pip install 'simwarp[test]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, MissingExtraError, ShapeError
from reference.threshold import INT32_MAX, INT32_MIN
from reference.types import First, Layout, PackedBits, Word
from simwarp import lanes
from simwarp.testing import profiles
from simwarp.verify.draw import DTYPES, Draw

try:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp
except ImportError as error:
    raise MissingExtraError(
        f"simwarp.testing.strategies needs Hypothesis, which is not installed ({error})\n"
        "pip install 'simwarp[test]'"
    ) from None

from simwarp.testing import explanations, parts
from simwarp.testing.convolutions import ConvOperands as ConvOperands
from simwarp.testing.convolutions import conv_operands as conv_operands
from simwarp.testing.convolutions import packed_tensors as packed_tensors
from simwarp.testing.convolutions import pools as pools
from simwarp.testing.geometries import conv_geometries as conv_geometries
from simwarp.testing.vectors import Grid as Grid
from simwarp.testing.vectors import grids as grids
from simwarp.testing.vectors import tails as tails
from simwarp.testing.vectors import vectors as vectors

explanations.leave_out_own_lines()

Size: TypeAlias = "int | st.SearchStrategy[int] | None"
"""A dimension: an int, a strategy for ints, or None for `sizes`."""

_LANE_DTYPES = ("bool", *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")))


class BmmOperands(NamedTuple):
    """The arguments of ``bmm``: op(a) is (M, K) and op(b) is (K, N)."""

    a: Any
    b: Any
    transpose_a: bool
    transpose_b: bool


# --------------------------------------------------------------------------------------------------
# Lanes
# --------------------------------------------------------------------------------------------------


def lane_words(dtype: npt.DTypeLike = np.uint32) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Arrays (32,) with a word for each lane. Shrinks to zeros.

    Words are often repeated in other lanes, as ``match`` and ``vote`` need.

    Parameters
    ----------
    dtype : bool, or an integer type

    Raises
    ------
    DtypeError
        For another dtype.

    Examples
    --------
    >>> from hypothesis import find
    >>> int(find(lane_words(), lambda words: True).sum())
    0
    """
    wanted = np.dtype(dtype)
    if wanted.name not in _LANE_DTYPES:
        raise DtypeError(f"lane words of {wanted} are not supported\nchoose one of {', '.join(_LANE_DTYPES)}")
    word: st.SearchStrategy[Any] = cast("Any", hnp.from_dtype)(wanted)

    @st.composite
    def words(draw: st.DrawFn) -> npt.NDArray[Any]:
        drawn = np.array([draw(word) for _ in range(lanes.WARP_SIZE)], wanted)
        period = draw(st.sampled_from([32, 32, 32, 32, 1, 2, 4, 16]))
        return drawn[lanes.LANE % period]

    return words()


def masks() -> st.SearchStrategy[int]:
    """Member masks of at least one lane. Shrinks to the full mask, 0xffffffff.

    Masks of one lane, of half a warp and of every other lane are frequent.

    Examples
    --------
    >>> from hypothesis import find
    >>> hex(find(masks(), lambda mask: True))
    '0xffffffff'
    """
    half, other, alone = [0xFFFF, 0xFFFF0000], [0x55555555, 0xAAAAAAAA], [1 << n for n in range(32)]
    often = [*half, *other, *alone]

    def mask(absent: int, turn: int) -> int:
        return lanes.ALL_LANES ^ absent if turn < len(often) else often[turn - len(often)]

    return st.builds(mask, st.integers(0, lanes.ALL_LANES - 1), st.integers(0, 2 * len(often) - 1))


def active_lanes() -> st.SearchStrategy[npt.NDArray[np.bool_]]:
    """Bool arrays (32,) of active lanes, at least one. Shrinks to all lanes.

    Examples
    --------
    >>> from hypothesis import find
    >>> int(find(active_lanes(), lambda active: True).sum())
    32
    """
    return masks().map(lambda mask: (np.uint32(mask) & lanes.LANE_BIT) != 0)


# --------------------------------------------------------------------------------------------------
# Matrices
# --------------------------------------------------------------------------------------------------


def sizes(count: int = 2, *, max_size: int | None = None) -> st.SearchStrategy[tuple[int, ...]]:
    """Dimensions of a problem, at least 1 each. Shrinks to all 1.

    Sizes near a multiple of a word, and primes, are frequent. Sometimes one dimension is long, often near a
    power of two, and the others short.

    Parameters
    ----------
    count : int
        The number of dimensions.
    max_size : int, optional
        By default 150, and 1100 for long ones; with the profile `gpu`, 700 and 70,000.

    Raises
    ------
    ShapeError
        If either is less than 1.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(sizes(3), lambda mnk: mnk[2] > 64)
    (1, 1, 65)
    """
    parts.check_size("count", count)
    parts.check_size("max_size", 1 if max_size is None else max_size)

    @st.composite
    def dimensions(draw: st.DrawFn) -> tuple[int, ...]:
        usual, longest = profiles.usual_and_longest()  # of the profile that is active when the value is drawn
        longest = longest if max_size is None else max_size
        usual = min(usual, longest)
        drawn = [draw(st.sampled_from(parts.shorts(usual))) for _ in range(count)]
        if longest > usual:
            turn, long = draw(st.integers(0, 5 * count)), draw(st.integers(usual + 1, longest))
            edge = draw(st.sampled_from([0, 0, *parts.powers(usual + 1, longest)]))
            if turn > 4 * count:
                drawn = [1 + (n - 1) % 40 for n in drawn]
                drawn[turn - 4 * count - 1] = edge or long
        return tuple(drawn)

    return dimensions()


def layouts() -> st.SearchStrategy[parts.Format]:
    """The keyword arguments of ``pack``: its formats. Shrinks to its defaults.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(layouts(), lambda format: True)
    {'layout': 'row', 'word': 32, 'first': 'msb'}
    """
    return parts.formats(None, None, None)


def real_matrices(
    rows: Size = None, columns: Size = None, *, dtypes: Sequence[npt.DTypeLike] = DTYPES
) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Matrices (rows, columns) of real numbers, including ±0, ±inf and subnormal ones, but not NaN.

    Shrinks to one zero of the first dtype. A matrix has one value throughout, -1 on the diagonal and 1
    elsewhere, random signs, or random bits; a few elements are then changed.

    Parameters
    ----------
    rows, columns : int or strategy, optional
        Default: `sizes`.
    dtypes : sequence
        The dtypes to choose from: float64, float32, float16, int8.

    Raises
    ------
    DtypeError
        For another dtype, or if ``dtypes`` is empty.
    ShapeError
        For a dimension that is less than 1.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(real_matrices(2), lambda x: True)
    array([[0.],
           [0.]])
    """
    return parts.matrices(parts.real, _shapes(rows, columns), st.sampled_from(parts.checked_dtypes(dtypes)))


def bit_matrices(
    rows: Size = None,
    columns: Size = None,
    *,
    layout: Layout | None = None,
    word: Word | None = None,
    first: First | None = None,
) -> st.SearchStrategy[PackedBits]:
    """Packed matrices in any format, padded with zeros. Shrinks to one bit 0 in the default format.

    A matrix has one word throughout, all bits 1, or random bits; a few words are then changed.

    Parameters
    ----------
    rows, columns : int or strategy, optional
        Default: `sizes`.
    layout, word, first : optional
        Default: all.

    Raises
    ------
    ShapeError
        For a dimension that is less than 1.
    SchemeError
        For an unknown layout, word or bit order.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(bit_matrices(40, 2, word=64), lambda x: True).words
    array([[0, 0]], dtype=uint64)
    """
    return parts.matrices(parts.packed, _shapes(rows, columns), parts.formats(layout, word, first))


def bmm_operands(
    *,
    dtypes: Sequence[npt.DTypeLike] = DTYPES,
    packed: bool = True,
    along_k: bool = False,
    word: Word | None = None,
    first: First | None = None,
    max_size: int | None = None,
) -> st.SearchStrategy[BmmOperands]:
    """Operands of ``bmm`` that fit each other: ``bmm(x.a, x.b, transpose_a=x.transpose_a, …)``.

    Each operand is independently real or packed, and transposed or not. Shrinks to two 1 × 1 zeros.

    Parameters
    ----------
    dtypes : sequence
        The dtypes of real operands; empty for packed operands only.
    packed : bool
        Whether operands may be packed.
    along_k : bool
        Whether packed words hold elements along K, in one bit order and word size for both operands, as
        kernels require. Beside a real operand, `gpu.bmm` accepts a packed one only with ``first="msb"``.
    word, first : optional
        The word size or bit order of packed operands; by default all.
    max_size : int, optional
        The largest of M, N and K; see `sizes`.

    Raises
    ------
    DtypeError, ShapeError, SchemeError
        As `real_matrices`, `sizes` and `bit_matrices`.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(bmm_operands(), lambda x: x.transpose_b)
    BmmOperands(a=array([[0.]]), b=array([[0.]]), transpose_a=False, transpose_b=True)
    """
    wanted = parts.checked_dtypes(dtypes, may_be_empty=packed)
    formats, dimensions = parts.formats(None, word, first), sizes(3, max_size=max_size)
    kinds = [*wanted, *["packed"] * packed]

    @st.composite
    def operands(draw: st.DrawFn) -> BmmOperands:
        m, n, k = draw(dimensions)
        transpose_a, transpose_b = draw(st.booleans()), draw(st.booleans())
        common = draw(formats)

        def operand(shape: tuple[int, int], rows_run_along_k: bool) -> Any:
            kind = draw(st.sampled_from(kinds))
            if kind != "packed":
                return parts.real(draw, shape, kind)
            layout: Layout = "column" if rows_run_along_k else "row"
            return parts.packed(draw, shape, {**common, "layout": layout} if along_k else draw(formats))

        a = operand((k, m) if transpose_a else (m, k), rows_run_along_k=not transpose_a)
        b = operand((n, k) if transpose_b else (k, n), rows_run_along_k=transpose_b)
        return BmmOperands(a, b, transpose_a, transpose_b)

    return operands()


def thresholds(dots: npt.ArrayLike) -> st.SearchStrategy[tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]]:
    """Critical thresholds for ``bmm(…, thresholds=, flip=)`` or ``bconv2d``, one for each column of ``dots``.

    Each equals a dot product of its column, is one more or one less, or the least or largest int32. ``flip``
    is what a negative gamma of batch normalisation asks for. Shrinks to the first row of ``dots``, nothing
    flipped.

    Parameters
    ----------
    dots : int32 (M, N) or (N, P, Q, O)
        The result of ``bmm``, or of ``bconv2d``, whose columns are its output channels.

    Returns
    -------
    strategy for (thresholds, flip)
        int32 (N,) and bool (N,); of a convolution (O,).

    Raises
    ------
    DtypeError, ShapeError
        If ``dots`` is not an int32 array of 2 or 4 dimensions, or has a dimension of 0.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(thresholds(np.int32([[3, 5], [7, 9]])), lambda drawn: drawn[0][1] > 5)
    (array([4, 6], dtype=int32), array([False, False]))
    """
    array = np.asarray(dots)
    if array.dtype != np.int32:
        raise DtypeError(f"dots have elements of {array.dtype}\ngive the int32 that bmm or bconv2d returns")
    if array.ndim not in (2, 4) or not array.size:
        raise ShapeError(f"dots have shape {array.shape}\ngive (M, N) or (N, P, Q, O), each at least 1")
    array = array.reshape(-1, array.shape[-1])
    m, n = array.shape

    def column_wise(draw: st.DrawFn, most: int) -> npt.NDArray[Any]:
        def anything(seed: int) -> npt.NDArray[Any]:
            return Draw(seed, "thresholds", most).words(n) % np.uint64(most + 1)

        return parts.array(draw, (n,), np.intp, st.integers(0, most), [anything])

    @st.composite
    def on_the_edge(draw: st.DrawFn) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        dot = array[column_wise(draw, m - 1), np.arange(n)].astype(np.int64)
        choices = np.stack([dot, dot + 1, dot - 1, np.full(n, INT32_MAX), np.full(n, INT32_MIN)])
        chosen = choices[column_wise(draw, len(choices) - 1), np.arange(n)]
        flip = column_wise(draw, 1) == 1
        return np.clip(chosen, INT32_MIN, INT32_MAX).astype(np.int32), flip

    return on_the_edge()


def _shapes(rows: Size, columns: Size) -> st.SearchStrategy[tuple[int, int]]:
    """A strategy for matrix shapes (rows, columns)."""
    if rows is None and columns is None:
        return cast("st.SearchStrategy[tuple[int, int]]", sizes(2))
    return st.tuples(_dimension("rows", rows), _dimension("columns", columns))


def _dimension(name: str, size: Size) -> st.SearchStrategy[int]:
    """A strategy for one dimension of a shape."""
    if size is None:
        return sizes(1).map(lambda drawn: drawn[0])
    if isinstance(size, st.SearchStrategy):
        return size
    parts.check_size(name, size)
    return st.just(size)
