"""Hypothesis strategies for arguments of kernels: lane words, masks, matrices, bits, operands, thresholds.

Every strategy shrinks to a simple value: one element, zeros, the full mask, the default format. Invalid
arguments raise when the strategy is made.

Needs Hypothesis: ``pip install 'simwarp[test]'``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple, TypeAlias, TypedDict, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, MissingExtraError, ShapeError
from reference.threshold import INT32_MAX, INT32_MIN
from reference.types import First, Layout, PackedBits, Word
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from reference.types.packed import FIRSTS, MATRIX_LAYOUTS, WORD_DTYPES, WORDS, parts_of, words_shape
from simwarp import lanes
from simwarp.testing import profiles
from simwarp.testing.geometries import conv_geometries as conv_geometries
from simwarp.verify.draw import DTYPES, PRIMES, WORD_EDGES, Draw

try:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp
except ImportError as error:
    raise MissingExtraError(
        f"simwarp.testing.strategies needs Hypothesis, which is not installed ({error})\n"
        "pip install 'simwarp[test]'"
    ) from None

Size: TypeAlias = "int | st.SearchStrategy[int] | None"
"""A dimension: an int, a strategy for ints, or None for `sizes`."""

_LANE_DTYPES = ("bool", *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")))


class Format(TypedDict):
    """The keyword arguments of ``pack``."""

    layout: Layout
    word: Word
    first: First


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
    _check_size("count", count)
    _check_size("max_size", 1 if max_size is None else max_size)

    @st.composite
    def dimensions(draw: st.DrawFn) -> tuple[int, ...]:
        usual, longest = profiles.usual_and_longest()  # of the profile that is active when the value is drawn
        longest = longest if max_size is None else max_size
        usual = min(usual, longest)
        drawn = [draw(st.sampled_from(_shorts(usual))) for _ in range(count)]
        if longest > usual:
            turn, long = draw(st.integers(0, 5 * count)), draw(st.integers(usual + 1, longest))
            edge = draw(st.sampled_from([0, 0, *_powers(usual + 1, longest)]))
            if turn > 4 * count:
                drawn = [1 + (n - 1) % 40 for n in drawn]
                drawn[turn - 4 * count - 1] = edge or long
        return tuple(drawn)

    return dimensions()


def layouts() -> st.SearchStrategy[Format]:
    """The keyword arguments of ``pack``: its formats. Shrinks to its defaults.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(layouts(), lambda format: True)
    {'layout': 'row', 'word': 32, 'first': 'msb'}
    """
    return _formats(None, None, None)


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
    return _matrices(_real, _shapes(rows, columns), st.sampled_from(_checked_dtypes(dtypes)))


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
    return _matrices(_packed, _shapes(rows, columns), _formats(layout, word, first))


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
    wanted = _checked_dtypes(dtypes, may_be_empty=packed)
    formats, dimensions = _formats(None, word, first), sizes(3, max_size=max_size)
    kinds = [*wanted, *["packed"] * packed]

    @st.composite
    def operands(draw: st.DrawFn) -> BmmOperands:
        m, n, k = draw(dimensions)
        transpose_a, transpose_b = draw(st.booleans()), draw(st.booleans())
        common = draw(formats)

        def operand(shape: tuple[int, int], rows_run_along_k: bool) -> Any:
            kind = draw(st.sampled_from(kinds))
            if kind != "packed":
                return _real(draw, shape, kind)
            layout: Layout = "column" if rows_run_along_k else "row"
            return _packed(draw, shape, {**common, "layout": layout} if along_k else draw(formats))

        a = operand((k, m) if transpose_a else (m, k), rows_run_along_k=not transpose_a)
        b = operand((n, k) if transpose_b else (k, n), rows_run_along_k=transpose_b)
        return BmmOperands(a, b, transpose_a, transpose_b)

    return operands()


def thresholds(dots: npt.ArrayLike) -> st.SearchStrategy[tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]]:
    """Critical thresholds for ``bmm(…, thresholds=, flip=)``, one for each column of ``dots``.

    Each equals a dot product of its column, is one more or one less, or the least or largest int32. Shrinks
    to the first row of ``dots``, nothing flipped.

    Parameters
    ----------
    dots : int32 (M, N)
        The result of ``bmm``.

    Returns
    -------
    strategy for (thresholds, flip)
        int32 (N,) and bool (N,).

    Raises
    ------
    DtypeError, ShapeError
        If ``dots`` is not an int32 matrix, or has a dimension of 0.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(thresholds(np.int32([[3, 5], [7, 9]])), lambda drawn: drawn[0][1] > 5)
    (array([4, 6], dtype=int32), array([False, False]))
    """
    array = np.asarray(dots)
    if array.dtype != np.int32:
        raise DtypeError(f"dots have elements of {array.dtype}\ngive the int32 that bmm returns")
    if array.ndim != 2 or not array.size:
        raise ShapeError(f"dots have shape {array.shape}\ngive (M, N), each at least 1")
    m, n = array.shape

    def column_wise(draw: st.DrawFn, most: int) -> npt.NDArray[Any]:
        def anything(seed: int) -> npt.NDArray[Any]:
            return Draw(seed, "thresholds", most).words(n) % np.uint64(most + 1)

        return _array(draw, (n,), np.intp, st.integers(0, most), [anything])

    @st.composite
    def on_the_edge(draw: st.DrawFn) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        dot = array[column_wise(draw, m - 1), np.arange(n)].astype(np.int64)
        choices = np.stack([dot, dot + 1, dot - 1, np.full(n, INT32_MAX), np.full(n, INT32_MIN)])
        chosen = choices[column_wise(draw, len(choices) - 1), np.arange(n)]
        flip = column_wise(draw, 1) == 1
        return np.clip(chosen, INT32_MIN, INT32_MAX).astype(np.int32), flip

    return on_the_edge()


# --------------------------------------------------------------------------------------------------
# Parts of the strategies. Each makes the same choices in the same order, whatever their values, so that
# shrinking can change one choice and keep the others.
# --------------------------------------------------------------------------------------------------

_SEEDS = st.integers(0, 2**64 - 1)
"""Seeds of large random arrays: drawn element by element, they would be too large to shrink."""


@cache
def _few(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[int, Any]]]:
    """A few elements and their positions, modulo the size of the array."""
    return st.lists(st.tuples(st.integers(0, 2**32 - 1), elements), max_size=16)


def _array(
    draw: st.DrawFn,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    elements: st.SearchStrategy[Any],
    recipes: Sequence[Callable[[int], npt.NDArray[Any]]],
) -> npt.NDArray[Any]:
    """Draw an array of one value, or by one of the recipes from a seed; then change a few elements."""
    recipe, seed, fill = draw(st.integers(0, len(recipes))), draw(_SEEDS), draw(elements)
    array = recipes[recipe - 1](seed) if recipe else np.full(shape, fill, dtype)
    array = array.astype(dtype).ravel()
    for at, value in draw(_few(elements)):
        array[at % array.size] = value
    return array.reshape(shape)


@st.composite
def _matrices(
    draw: st.DrawFn, make: Callable[..., Any], shapes: st.SearchStrategy[Any], formats: st.SearchStrategy[Any]
) -> Any:
    """Matrices that ``make`` draws, given a shape, and a dtype or the format of a packed matrix."""
    return make(draw, draw(shapes), draw(formats))


def _real(draw: st.DrawFn, shape: tuple[int, int], dtype: str) -> npt.NDArray[Any]:
    """Draw a matrix of a real dtype: the identity, signs or any numbers."""

    def identity(seed: int) -> npt.NDArray[Any]:
        return 1 - 2 * np.eye(*shape)

    def signs(seed: int) -> npt.NDArray[Any]:
        return np.where(Draw(seed, "signs", 0).words(shape[0] * shape[1]) % 2 == 1, -1, 1)

    def anything(seed: int) -> npt.NDArray[Any]:
        return Draw(seed, "real_matrices", 0).matrix(*shape, dtype)

    return _array(draw, shape, dtype, _numbers(dtype), [identity, signs, anything])


@cache
def _numbers(dtype: str) -> st.SearchStrategy[Any]:
    """A strategy for numbers of a dtype, except NaN."""
    from_dtype: Callable[..., st.SearchStrategy[Any]] = hnp.from_dtype
    return from_dtype(np.dtype(dtype), **({} if dtype == "int8" else {"allow_nan": False}))


def _packed(draw: st.DrawFn, shape: tuple[int, int], form: Format) -> PackedBits:
    """Draw a packed bit matrix in a layout, word size and bit order."""
    layout, word, first = form["layout"], form["word"], form["first"]
    dtype, of_words = WORD_DTYPES[word], words_shape(layout, word, shape)
    unused, ones = -shape[layout == "column"] % word, int(np.iinfo(dtype).max)

    def all_ones(seed: int) -> npt.NDArray[Any]:
        return np.full(of_words, ones, dtype)

    def anything(seed: int) -> npt.NDArray[Any]:
        return Draw(seed, "bit_matrices", 0).words(prod(of_words))

    # Drawn with the first element in the lowest bit, so that small words differ in the first elements.
    words = _array(draw, of_words, dtype, st.integers(0, ones), [all_ones, anything])
    inside = ((1 << word) - 1 >> unused).to_bytes(word // 8, "little")
    words[-1] &= np.frombuffer(inside, dtype.newbyteorder("<"))
    if first == "msb":
        words = lanes.brev(words)[..., :: -1 if parts_of(word) else 1]
    return PackedBits(words, shape, layout, word, first)


@cache
def _shorts(most: int) -> list[int]:
    """The sizes up to ``most``; those near a multiple of a word occur nine times, primes twice."""
    return sorted(n for n in [*range(1, most + 1), *WORD_EDGES * 8, *PRIMES] if n <= most)


def _powers(least: int, most: int) -> list[int]:
    """Powers of two, their predecessors and successors, from ``least`` to ``most``."""
    about = (2**e + d for e in range(most.bit_length() + 1) for d in (-1, 0, 1))
    return [n for n in about if least <= n <= most]


def _formats(layout: Layout | None, word: Word | None, first: First | None) -> st.SearchStrategy[Format]:
    """A strategy for packed formats with these options; None draws every value of an option."""
    known = {"layout": (layout, MATRIX_LAYOUTS), "word": (word, WORDS), "first": (first, FIRSTS)}
    options: dict[str, st.SearchStrategy[Any]] = {}
    for name, (given, choices) in known.items():
        check_option(name, choices[0] if given is None else given, choices, "it selects the drawn formats")
        options[name] = st.sampled_from(choices if given is None else (given,))
    return st.builds(Format, **options)


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
    _check_size(name, size)
    return st.just(size)


def _check_size(name: str, value: object) -> None:
    """Raise ShapeError unless a size is an int of at least 1."""
    if not is_integer(value) or value < 1:
        raise ShapeError(f"{name}={value!r}\ngive an int of at least 1")


def _checked_dtypes(dtypes: Sequence[npt.DTypeLike], *, may_be_empty: bool = False) -> list[str]:
    """The names of dtypes; raise DtypeError unless matrices of all of them can be drawn."""
    names = [np.dtype(dtype).name for dtype in dtypes]
    strange = [name for name in names if name not in DTYPES]
    if strange:
        raise DtypeError(f"matrices of {strange[0]} are not supported\nchoose among {', '.join(DTYPES)}")
    if not names and not may_be_empty:
        raise DtypeError(f"dtypes is empty\nchoose among {', '.join(DTYPES)}")
    return names
