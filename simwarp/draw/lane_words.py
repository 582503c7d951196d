"""Diagrams of the words of a warp's lanes as bits, with bits that differ from expected words marked."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError
from simwarp import lanes
from simwarp.draw.picture import Grid, Picture, bit_cells
from simwarp.draw.svg import drawn

Words: TypeAlias = npt.NDArray[Any]

MOST_WORDS = 32
MOST_DIFFERENCES = 8


def words(words: npt.ArrayLike, expected: npt.ArrayLike | None = None, *, svg: bool = False) -> str:
    """Draw words as bits, the most significant on the left; mark bits that differ from ``expected``.

    Parameters
    ----------
    words : array of uint32 or uint64
        The words of a 1-D array are labelled by lane, those of other arrays by index.
    expected : array of the same shape and dtype, optional
        If given, only the first 8 words that differ are drawn, with their wrong bits marked.
    svg : bool
        Return SVG, not text.

    Raises
    ------
    DtypeError
        For words of another dtype, or if the two dtypes differ.
    ShapeError
        If the shapes differ, or for an empty array.

    Examples
    --------
    >>> got, expected = np.array([5, 7], np.uint32), np.array([5, 5], np.uint32)
    >>> print(words(got, expected))
    1 of 2 words differs, in 1 bit
    <BLANKLINE>
            bit 31       23       15       7      0
    lane 1, got 00000000 00000000 00000000 00000111  0x00000007
                                                 ^
       expected 00000000 00000000 00000000 00000101  0x00000005
    """
    return drawn(words_picture(words, expected), svg)


def words_picture(words: npt.ArrayLike, expected: npt.ArrayLike | None = None) -> Picture:
    """The picture that `words` draws, as plain data."""
    got = _checked(words, "words")
    names = _names(got.shape)
    if expected is None:
        shown = got.ravel()[:MOST_WORDS]
        title = f"{got.size} word{'s' * (got.size > 1)} of {got.dtype.itemsize * 8} bits"
        return _picture(title, names[: len(shown)], shown, np.zeros_like(shown), got.size - len(shown))
    wanted = _checked(expected, "expected")
    if wanted.dtype != got.dtype:
        raise DtypeError(f"words are {got.dtype}, expected are {wanted.dtype}: give both the same dtype")
    if wanted.shape != got.shape:
        raise ShapeError(f"words have shape {got.shape}, expected {wanted.shape}: give both the same shape")
    got, wanted = got.ravel(), wanted.ravel()
    wrong = lanes.xor(got, wanted)
    differing = np.flatnonzero(wrong)
    if not differing.size:
        return Picture(f"{got.size} words, all as expected", ())
    bits = int(lanes.popc(wrong).sum())
    title = (
        f"{differing.size} of {got.size} words differ{'s' * (differing.size == 1)}, "
        f"in {bits} bit{'s' * (bits > 1)}"
    )
    shown = differing[:MOST_DIFFERENCES]
    labels = [label for i in shown.tolist() for label in (f"{names[i]}, got", "expected")]
    pairs = np.stack([got[shown], wanted[shown]], axis=1).ravel()
    marks = np.stack([wrong[shown], np.zeros_like(wrong[shown])], axis=1).ravel()
    return _picture(title, labels, pairs, marks, differing.size - len(shown))


def _picture(title: str, labels: list[str], words: Words, marks: Words, left_out: int) -> Picture:
    width = words.dtype.itemsize * 8
    grid = Grid(
        bit_cells(words, marks, labelled=True),
        corner="bit",
        column_labels=tuple(str(b) if b % 8 == 7 or b == 0 else "" for b in range(width - 1, -1, -1)),
        row_labels=tuple(labels),
        row_notes=tuple(f"0x{word:0{width // 4}x}" for word in words.tolist()),
        style="bits",
        group=8,
        size=13 if width == 32 else 11,
    )
    return Picture(title, ((grid,),), (f"… and {left_out} more",) if left_out else ())


def _checked(words: npt.ArrayLike, name: str) -> Words:
    array = np.asarray(words)
    if array.dtype.type not in (np.uint32, np.uint64):
        raise DtypeError(
            f"{name} are {array.dtype}: give uint32 or uint64, for instance with `.view(np.uint32)`"
        )
    if not array.size:
        raise ShapeError(f"{name} have shape {array.shape}: give at least one word")
    return array


def _names(shape: tuple[int, ...]) -> list[str]:
    """A label for each word of an array: "lane 3" in one dimension, else its index, "[1, 3]"."""
    if len(shape) == 1:
        return [f"lane {i}" for i in range(shape[0])]
    return ["[" + ", ".join(map(str, index)) + "]" for index in np.ndindex(shape)]
