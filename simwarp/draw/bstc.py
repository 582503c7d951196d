"""Diagrams of the binarized soft tensor core and its eight operations (figures 1 and 2 of the BSTC paper).

As in the paper, lanes run from top to bottom and the bits of each lane's word from right to left.
`simwarp.lanes` computes the results of the operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError
from reference.types import Word
from simwarp import lanes
from simwarp.draw.picture import Grid, Picture, bit_cells, sparse_labels
from simwarp.draw.svg import drawn

Words: TypeAlias = npt.NDArray[Any]
Vote: TypeAlias = Callable[[Any], lanes.Voted]
Lines: TypeAlias = tuple[tuple[Grid, ...], ...]

_GLYPH = (".######.", ".######.", ".##.....", ".#####..", ".#####..", ".##.....", ".##.....", ".##.....")
"""The letter F: it looks different after every rotation and reflection, and its stem crosses all lanes."""

PROBE: Words = np.repeat(
    np.array([int("".join("01"[c == "#"] * 4 for c in row), 2) for row in _GLYPH], np.uint32), 4
)
"""The input words of every operation: each character of the glyph is 4 lanes by 4 bits."""

OTHER: Words = lanes.shl(np.full(lanes.WARP_SIZE, lanes.ALL_LANES, np.uint32), lanes.LANE)
"""The second operand of operation A: lane i has bits i to 31 set."""

_LANE, _BIT = 14, 10  # the marked bit-row and bit-column


def tile(word: Word = 32, *, svg: bool = False) -> str:
    r"""Draw a soft tensor core: 32 lanes of ``word`` bits, with one bit-row and one bit-column highlighted.

    Parameters
    ----------
    word : {32, 64}
    svg : bool
        Return SVG, not text.

    Raises
    ------
    SchemeError
        For another word size.

    Notes
    -----
    Source: BSTC (SC'19), section 3 and figure 1.

    Examples
    --------
    >>> print("\n".join(tile().splitlines()[2:4] + ["..."] + tile().splitlines()[15:19]))
       bit 31     24      16      8       0
    lane 0 .....................0..........
    ...
           .....................0..........
           .....................0..........
           #####################1##########
           .....................0..........
    """
    return drawn(tile_picture(word), svg)


def operation(name: str, *, svg: bool = False) -> str:
    r"""Draw the effect of one of the operations A to H on the bits of a warp.

    Parameters
    ----------
    name : str
        A letter from "A" to "H", as in figure 2 of the paper.
    svg : bool
        Return SVG, not text.

    Raises
    ------
    SchemeError
        For another letter.

    Notes
    -----
    Source: BSTC (SC'19), section 3.1 and figure 2.

    Examples
    --------
    >>> print("\n".join(operation("C").splitlines()[:5]))
    C: brev reverses each bit-row
    <BLANKLINE>
           before                               brev
       bit 31     24      16      8       0     31     24      16      8       0
    lane 0 ....########################....     ....########################....
    """
    return drawn(operation_picture(name), svg)


def tile_picture(word: Word = 32) -> Picture:
    """The picture that `tile` draws, as plain data."""
    if word not in (32, 64):
        raise SchemeError(f"word={word!r} is not a word size\nchoose 32 or 64")
    dtype = np.uint32 if word == 32 else np.uint64
    none = np.zeros(lanes.WARP_SIZE, dtype)
    row = np.where(lanes.LANE == _LANE, ~none, none)
    column = none | dtype(1 << _BIT)
    return Picture(
        f"BSTC-{word}: 32 lanes × {word} bits",
        ((_grid("", row, column),),),
        (
            "A row is a lane's word, a register; the least significant bit is on the right.",
            f"Lane {_LANE}'s word, a bit-row, is all ones; bit {_BIT} of all lanes, a bit-column, is marked.",
        ),
    )


def operation_picture(name: str) -> Picture:
    """The picture that `operation` draws, as plain data."""
    if name not in _OPERATIONS:
        raise SchemeError(f"{name!r} is not an operation\nchoose a letter from A to H")
    title, *notes = _TEXTS.strip().split("\n\n")[ord(name) - ord("A")].splitlines()
    return Picture(title, _OPERATIONS[name](), tuple(notes))


def _turned(vote: Vote, first: int, step: int) -> Callable[[Words], Words]:
    """The function that transposes a tile: lane i keeps the ballot on bit ``first + i * step``."""
    return lambda words: np.array(
        [vote(_bit_column(words, first + i * step)).value[0] for i in range(lanes.WARP_SIZE)], np.uint32
    )


def _bit_column(words: Words, bit: int) -> Words:
    """Bit ``bit`` of every lane's word, as 0 or 1 (operation F: shift and extract)."""
    position: Any = np.uint32(bit)
    return lanes.and_(lanes.shr(words, position), np.ones_like(words))


def _grid(title: str, words: Words, marks: Words, labels: str = "lane ", **more: Any) -> Grid:
    """A grid of the words' bits, with a label at every eighth row and column."""
    width = words.dtype.itemsize * 8
    return Grid(
        bit_cells(words, marks),
        title,
        corner="bit" if labels else "",
        column_labels=tuple(reversed(sparse_labels(width))),
        row_labels=sparse_labels(len(words), labels) if labels else (),
        style="bits",
        **more,
    )


_ROW = np.where(lanes.LANE == _LANE, np.uint32(lanes.ALL_LANES), np.uint32(0))
_COLUMN = np.full(lanes.WARP_SIZE, 1 << _BIT, np.uint32)


def _steps(marks: Words, *steps: tuple[str, Callable[[Words], Words]]) -> Lines:
    """The grids of the input and of each step's result; the marks move with their bits."""
    size = 9 if len(steps) == 1 else 6
    grids = [_grid("before", PROBE, marks, size=size)]
    for i, (title, step) in enumerate(steps, 1):
        labels, lead = "" if i % 3 else "lane ", "→" if i == 1 else ""
        grids.append(_grid(title, step(PROBE), step(marks), labels, size=size, lead=lead))
    return tuple(tuple(grids[i : i + 3]) for i in range(0, len(grids), 3))


def _bitwise() -> Lines:
    operands = _grid("a", PROBE, _ROW, size=6), _grid("b", OTHER, _ROW, "", size=6)
    functions = ("a and b", lanes.and_), ("a or b", lanes.or_), ("a xor b", lanes.xor)
    results = (
        _grid(title, function(PROBE, OTHER), _ROW, "" if i else "lane ", size=6)
        for i, (title, function) in enumerate(functions)
    )
    return operands, tuple(results)


def _count() -> Lines:
    counts = lanes.popc(PROBE)
    notes = tuple(f"= {count}" if lane % 4 == 0 else "" for lane, count in enumerate(counts.tolist()))
    return ((_grid("before", PROBE, _ROW), _grid("popc", counts, _ROW, "", lead="→", row_notes=notes)),)


def _votes() -> Lines:
    def row(label: str, vote: Vote) -> tuple[Grid]:
        """The ballot on each bit-column, as the bits of one word."""
        words, marks = (
            lanes.mask_word(np.array([vote(_bit_column(columns, bit)).value[0] for bit in range(32)]))
            for columns in (PROBE, _COLUMN)
        )
        return (Grid(bit_cells(words, marks), row_labels=(label,), style="bits"),)

    return (_grid("before", PROBE, _COLUMN),), row("→  any", lanes.vote_any), row("→  all", lanes.vote_all)


def _shuffles() -> Lines:
    def shuffled(title: str, b: Any, mode: lanes.ShuffleMode) -> tuple[str, Callable[[Words], Words]]:
        c = lanes.shuffle_c(lanes.WARP_SIZE, mode)
        return title, lambda words: lanes.shfl(words, b, c, mode).value

    moved = shuffled("up 8", 8, "up"), shuffled("down 8", 8, "down"), shuffled("bfly 16", 16, "bfly")
    return _steps(_ROW, shuffled("idx, 31 - lane", 31 - lanes.LANE, "idx"), *moved)


def _shifts() -> Lines:
    def by_five(shift: Callable[[Any, Any], Words]) -> Callable[[Words], Words]:
        return lambda words: shift(words, np.uint32(5))

    return _steps(_COLUMN, ("shl 5", by_five(lanes.shl)), ("shr 5", by_five(lanes.shr)))


_OPERATIONS: dict[str, Callable[[], Lines]] = {
    "A": _bitwise,
    "B": _count,
    "C": lambda: _steps(_ROW, ("brev", lanes.brev)),
    "D": _votes,
    "E": _shuffles,
    "F": _shifts,
    "G": lambda: _steps(_COLUMN, ("32 ballots", _turned(lanes.ballot, 31, -1))),
    "H": lambda: _steps(_COLUMN, ("32 times brev of ballot", _turned(lanes.rotate, 0, 1))),
}
_TEXTS = """
A: and, or, xor combine bit-rows, bit by bit
Every bit of the result comes from the same bit of the same lane; one lane is marked.

B: popc counts the ones of each bit-row
The count of each lane is a number in that lane, here in binary, and in decimal beside it.

C: brev reverses each bit-row
Bit i goes to bit 31 - i of the same lane.

D: any and all make one bit of a bit-column
One vote is on one bit-column, and every lane receives its result;
the picture shows all 32 votes.

E: shfl exchanges bit-rows between lanes
idx: each lane names the lane that it reads. up, down: it reads 8 lanes above, or below,
and keeps its own word where there is none. bfly: lane i reads lane i xor 16.

F: shl and shr move the bit-columns
Zeros are shifted in; bits shifted out are lost.

G: ballot turns a bit-column into a bit-row, clockwise
Lane i's bit becomes bit i of a word that every lane receives: the marked row is one ballot.
After 32 ballots, where lane i keeps the one on bit 31 - i, the whole picture is turned.

H: brev of ballot turns a bit-column into a bit-row, anticlockwise
Lane 0's bit becomes the most significant: the marked row is one ballot, reversed.
Done 32 times, where lane i keeps the one on bit i, the whole picture is turned.
"""
"""The title and the notes of each operation."""
