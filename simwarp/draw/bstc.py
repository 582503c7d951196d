"""The binarized soft tensor core and its eight operations: BSTC's figures 1 and 2.

Pictures show 32 lanes from top to bottom and the bits of each lane's word from right to left, as the
paper does. What an operation does to them is computed by `simwarp.lanes`.
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
from simwarp.draw.svg import to_svg
from simwarp.draw.text import to_text

Words: TypeAlias = npt.NDArray[Any]

_GLYPH = (".######.", ".######.", ".##.....", ".#####..", ".#####..", ".##.....", ".##.....", ".##.....")
"""An F: it looks different whichever way it is turned. Its stem runs through all lanes."""

PROBE: Words = np.repeat(
    np.array([int("".join("01"[c == "#"] * 4 for c in row), 2) for row in _GLYPH], np.uint32), 4
)
"""The words that the operations are shown on: each square of the glyph is 4 lanes by 4 bits."""

OTHER: Words = lanes.shl(np.full(lanes.WARP_SIZE, lanes.ALL_LANES, np.uint32), lanes.LANE)
"""The second operand of A: lane i has bit i and all above it."""

_LANE, _BIT = 14, 10  # the bit-row and the bit-column that are marked


def tile(word: Word = 32, *, svg: bool = False) -> str:
    r"""Draw a soft tensor core: 32 lanes of ``word`` bits, one bit-row and one bit-column in them.

    Parameters
    ----------
    word : {32, 64}
    svg : bool
        SVG in place of text.

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
    picture = tile_picture(word)
    return to_svg(picture) if svg else to_text(picture)


def operation(name: str, *, svg: bool = False) -> str:
    r"""Draw what one of the operations A to H does to the bits of a warp.

    Parameters
    ----------
    name : str
        A letter, as in figure 2 of the paper.
    svg : bool
        SVG in place of text.

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
    C: brev turns each bit-row round
    <BLANKLINE>
           before                               brev
       bit 31     24      16      8       0     31     24      16      8       0
    lane 0 ....########################....     ....########################....
    """
    picture = operation_picture(name)
    return to_svg(picture) if svg else to_text(picture)


def tile_picture(word: Word = 32) -> Picture:
    """What `tile` draws, as plain data; parameters and errors as there.

    Examples
    --------
    >>> rows = tile_picture(64).lines[0][0].cells
    >>> len(rows), len(rows[0])
    (32, 64)
    """
    if word not in (32, 64):
        raise SchemeError(f"there is no word={word!r}: choose 32 or 64")
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
    """What `operation` draws, as plain data; parameters and errors as there.

    Examples
    --------
    >>> [grid.title for line in operation_picture("F").lines for grid in line]
    ['before', 'shl 5', 'shr 5']
    """
    if name not in _OPERATIONS:
        raise SchemeError(f"there is no operation {name!r}: choose a letter from A to H")
    return _OPERATIONS[name]()


def turn(words: Words, vote: Callable[[Any], lanes.Voted], first: int, step: int) -> Words:
    """Turn all bit-columns into bit-rows: lane i keeps the vote on bit ``first + i * step``.

    Parameters
    ----------
    words : uint32 (32,)
    vote : callable
        `simwarp.lanes.ballot` or `simwarp.lanes.rotate`.
    first, step : int

    Examples
    --------
    >>> corner = np.where(lanes.LANE == 0, np.uint32(1 << 31), np.uint32(0))
    >>> np.flatnonzero(turn(corner, lanes.ballot, 31, -1)), turn(corner, lanes.ballot, 31, -1)[0]
    (array([0]), np.uint32(1))
    """
    kept = np.zeros(lanes.WARP_SIZE, np.uint32)
    for i in range(lanes.WARP_SIZE):
        word = vote(bit_column(words, first + i * step)).value
        kept = np.where(i == lanes.LANE, word, kept)
    return kept


def bit_column(words: Words, bit: int) -> Words:
    """Bit ``bit`` of every lane's word, 0 or 1 (op F: shift and extract).

    Examples
    --------
    >>> np.flatnonzero(bit_column(lanes.LANE, 4))
    array([16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31])
    """
    position: Any = np.uint32(bit)
    return lanes.and_(lanes.shr(words, position), np.ones_like(words))


def _grid(title: str, words: Words, marks: Words, labels: str = "lane ", **more: Any) -> Grid:
    """The bits of words; rows are labelled only where they are the first of a line."""
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


def _steps(marks: Words, *steps: tuple[str, Callable[[Words], Words]]) -> tuple[tuple[Grid, ...], ...]:
    """The probe, and what becomes of it; the marks go the way of the bits."""
    size = 9 if len(steps) == 1 else 6
    grids = [_grid("before", PROBE, marks, size=size)]
    for i, (title, step) in enumerate(steps, 1):
        labels, lead = "" if i % 3 else "lane ", "→" if i == 1 else ""
        grids.append(_grid(title, step(PROBE), step(marks), labels, size=size, lead=lead))
    return tuple(tuple(grids[i : i + 3]) for i in range(0, len(grids), 3))


def _bitwise() -> Picture:
    operands = (_grid("a", PROBE, _ROW, size=6), _grid("b", OTHER, _ROW, "", size=6))
    results = [
        _grid(title, function(PROBE, OTHER), _ROW, labels, size=6)
        for title, function, labels in (
            ("a and b", lanes.and_, "lane "),
            ("a or b", lanes.or_, ""),
            ("a xor b", lanes.xor, ""),
        )
    ]
    return Picture(
        "A: and, or, xor combine bit-rows, bit by bit",
        (operands, tuple(results)),
        ("Every bit of the result comes from the same bit of the same lane; one lane is marked.",),
    )


def _count() -> Picture:
    counts = lanes.popc(PROBE)
    notes = tuple(f"= {count}" if lane % 4 == 0 else "" for lane, count in enumerate(counts.tolist()))
    after = _grid("popc", counts, _ROW, "", lead="→", row_notes=notes)
    return Picture(
        "B: popc counts the ones of each bit-row",
        ((_grid("before", PROBE, _ROW), after),),
        ("The count of each lane is a number in that lane, here in binary, and in decimal beside it.",),
    )


def _reverse() -> Picture:
    return Picture(
        "C: brev turns each bit-row round",
        _steps(_ROW, ("brev", lanes.brev)),
        ("Bit i goes to bit 31 - i of the same lane.",),
    )


def _vote() -> Picture:
    def outcomes(vote: Callable[[Any], lanes.Voted], words: Words) -> Words:
        """What a vote on each bit-column gives, as the bits of one word."""
        return lanes.mask_word(np.array([vote(bit_column(words, bit)).value[0] for bit in range(32)]))

    def row(label: str, vote: Callable[[Any], lanes.Voted]) -> Grid:
        cells = bit_cells(outcomes(vote, PROBE), outcomes(vote, _COLUMN))
        return Grid(cells, row_labels=(label,), style="bits")

    return Picture(
        "D: any and all make one bit of a bit-column",
        (
            (_grid("before", PROBE, _COLUMN),),
            (row("→  any", lanes.vote_any),),
            (row("→  all", lanes.vote_all),),
        ),
        ("One vote is on one bit-column, and every lane receives its outcome;", "here are all 32 votes."),
    )


def _shuffle() -> Picture:
    def shuffled(b: Any, mode: lanes.ShuffleMode) -> Callable[[Words], Words]:
        c = lanes.shuffle_c(lanes.WARP_SIZE, mode)
        return lambda words: lanes.shfl(words, b, c, mode).value

    return Picture(
        "E: shfl exchanges bit-rows between lanes",
        _steps(
            _ROW,
            ("idx, 31 - lane", shuffled(31 - lanes.LANE, "idx")),
            ("up 8", shuffled(8, "up")),
            ("down 8", shuffled(8, "down")),
            ("bfly 16", shuffled(16, "bfly")),
        ),
        (
            "idx: each lane names the lane that it reads. up, down: it reads 8 lanes above, or below,",
            "and keeps its own word where there is none. bfly: lane i reads lane i xor 16.",
        ),
    )


def _shift() -> Picture:
    def by(shift: Callable[[Words, Words], Words]) -> Callable[[Words], Words]:
        distance: Any = np.uint32(5)
        return lambda words: shift(words, distance)

    return Picture(
        "F: shl and shr move the bit-columns",
        _steps(_COLUMN, ("shl 5", by(lanes.shl)), ("shr 5", by(lanes.shr))),
        ("Zeros come in from the side; what leaves the word is lost.",),
    )


def _ballot() -> Picture:
    return Picture(
        "G: ballot turns a bit-column into a bit-row, clockwise",
        _steps(_COLUMN, ("32 ballots", lambda words: turn(words, lanes.ballot, 31, -1))),
        (
            "Lane i's bit becomes bit i of a word that every lane receives: the marked row is one ballot.",
            "After 32 ballots, where lane i keeps the one on bit 31 - i, the whole picture is turned.",
        ),
    )


def _rotate() -> Picture:
    return Picture(
        "H: brev of ballot turns a bit-column into a bit-row, anticlockwise",
        _steps(_COLUMN, ("32 times brev of ballot", lambda words: turn(words, lanes.rotate, 0, 1))),
        (
            "Lane 0's bit becomes the most significant: the marked row is one ballot, reversed.",
            "Done 32 times, where lane i keeps the one on bit i, the whole picture is turned.",
        ),
    )


_OPERATIONS: dict[str, Callable[[], Picture]] = {
    "A": _bitwise,
    "B": _count,
    "C": _reverse,
    "D": _vote,
    "E": _shuffle,
    "F": _shift,
    "G": _ballot,
    "H": _rotate,
}
