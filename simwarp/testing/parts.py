"""Parts of the strategies: arrays, formats and sizes.

Each makes the same choices in the same order, whatever their values, so that shrinking can change one choice
and keep the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reference.errors import DtypeError, ShapeError
from reference.types import First, Layout, PackedBits, Word
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from reference.types.packed import FIRSTS, MATRIX_LAYOUTS, WORD_DTYPES, WORDS, parts_of, words_shape
from simwarp import lanes
from simwarp.verify.draw import DTYPES, PRIMES, WORD_EDGES, Draw


class Format(TypedDict):
    """The keyword arguments of ``pack``."""

    layout: Layout
    word: Word
    first: First


SEEDS = st.integers(0, 2**64 - 1)
"""Seeds of large random arrays: drawn element by element, they would be too large to shrink."""


@cache
def few(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[int, Any]]]:
    """A few elements and their positions, modulo the size of the array."""
    return st.lists(st.tuples(st.integers(0, 2**32 - 1), elements), max_size=16)


def array(
    draw: st.DrawFn,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    elements: st.SearchStrategy[Any],
    recipes: Sequence[Callable[[int], npt.NDArray[Any]]],
) -> npt.NDArray[Any]:
    """Draw an array of one value, or by one of the recipes from a seed; then change a few elements."""
    recipe, seed, fill = draw(st.integers(0, len(recipes))), draw(SEEDS), draw(elements)
    array = recipes[recipe - 1](seed) if recipe else np.full(shape, fill, dtype)
    array = array.astype(dtype).ravel()
    for at, value in draw(few(elements)):
        array[at % array.size] = value
    return array.reshape(shape)


@st.composite
def matrices(
    draw: st.DrawFn, make: Callable[..., Any], shapes: st.SearchStrategy[Any], formats: st.SearchStrategy[Any]
) -> Any:
    """Matrices that ``make`` draws, given a shape, and a dtype or the format of a packed matrix."""
    return make(draw, draw(shapes), draw(formats))


def real(draw: st.DrawFn, shape: tuple[int, int], dtype: str) -> npt.NDArray[Any]:
    """Draw a matrix of a real dtype: the identity, signs or any numbers."""

    def identity(seed: int) -> npt.NDArray[Any]:
        return 1 - 2 * np.eye(*shape)

    def signs(seed: int) -> npt.NDArray[Any]:
        return np.where(Draw(seed, "signs", 0).words(shape[0] * shape[1]) % 2 == 1, -1, 1)

    def anything(seed: int) -> npt.NDArray[Any]:
        return Draw(seed, "real_matrices", 0).matrix(*shape, dtype)

    return array(draw, shape, dtype, numbers(dtype), [identity, signs, anything])


@cache
def numbers(dtype: str) -> st.SearchStrategy[Any]:
    """A strategy for numbers of a dtype, except NaN."""
    from_dtype: Callable[..., st.SearchStrategy[Any]] = hnp.from_dtype
    return from_dtype(np.dtype(dtype), **({} if dtype == "int8" else {"allow_nan": False}))


def packed(draw: st.DrawFn, shape: tuple[int, int], form: Format) -> PackedBits:
    """Draw a packed bit matrix in a layout, word size and bit order."""
    layout, word, first = form["layout"], form["word"], form["first"]
    dtype, of_words = WORD_DTYPES[word], words_shape(layout, word, shape)
    unused, ones = -shape[layout == "column"] % word, int(np.iinfo(dtype).max)

    def all_ones(seed: int) -> npt.NDArray[Any]:
        return np.full(of_words, ones, dtype)

    def anything(seed: int) -> npt.NDArray[Any]:
        return Draw(seed, "bit_matrices", 0).words(prod(of_words))

    # Drawn with the first element in the lowest bit, so that small words differ in the first elements.
    words = array(draw, of_words, dtype, st.integers(0, ones), [all_ones, anything])
    inside = ((1 << word) - 1 >> unused).to_bytes(word // 8, "little")
    words[-1] &= np.frombuffer(inside, dtype.newbyteorder("<"))
    if first == "msb":
        words = lanes.brev(words)[..., :: -1 if parts_of(word) else 1]
    return PackedBits(words, shape, layout, word, first)


@cache
def shorts(most: int) -> list[int]:
    """The sizes up to ``most``; those near a multiple of a word occur nine times, primes twice."""
    return sorted(n for n in [*range(1, most + 1), *WORD_EDGES * 8, *PRIMES] if n <= most)


def powers(least: int, most: int) -> list[int]:
    """Powers of two, their predecessors and successors, from ``least`` to ``most``."""
    about = (2**e + d for e in range(most.bit_length() + 1) for d in (-1, 0, 1))
    return [n for n in about if least <= n <= most]


def formats(layout: Layout | None, word: Word | None, first: First | None) -> st.SearchStrategy[Format]:
    """A strategy for packed formats with these options; None draws every value of an option."""
    known = {"layout": (layout, MATRIX_LAYOUTS), "word": (word, WORDS), "first": (first, FIRSTS)}
    options: dict[str, st.SearchStrategy[Any]] = {}
    for name, (given, choices) in known.items():
        check_option(name, choices[0] if given is None else given, choices, "it selects the drawn formats")
        options[name] = st.sampled_from(choices if given is None else (given,))
    return st.builds(Format, **options)


def check_size(name: str, value: object) -> None:
    """Raise ShapeError unless a size is an int of at least 1."""
    if not is_integer(value) or value < 1:
        raise ShapeError(f"{name}={value!r}\ngive an int of at least 1")


def checked_dtypes(dtypes: Sequence[npt.DTypeLike], *, may_be_empty: bool = False) -> list[str]:
    """The names of dtypes; raise DtypeError unless matrices of all of them can be drawn."""
    names = [np.dtype(dtype).name for dtype in dtypes]
    strange = [name for name in names if name not in DTYPES]
    if strange:
        raise DtypeError(f"matrices of {strange[0]} are not supported\nchoose among {', '.join(DTYPES)}")
    if not names and not may_be_empty:
        raise DtypeError(f"dtypes is empty\nchoose among {', '.join(DTYPES)}")
    return names
