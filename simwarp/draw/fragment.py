"""Diagrams of fragments: the lane and register of each matrix element, coloured by lane.

A cell is a run of adjacent elements in one register: 32 elements of b1 share a cell, like one float. Its
label is ``lane:register``, or ``lane:register.bit`` for a part of a register; registers separated by commas
hold the same elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, SchemeError, ShapeError
from reference.values import not_an_array, shortened
from simwarp.draw.picture import Cell, Grid, Picture, boxes, ends, span
from simwarp.draw.svg import drawn
from simwarp.fragments import FragmentError, Fragments, Layout, Operand, fragments_of

Numbers = npt.NDArray[Any]
Most = tuple[int, int]

WHOLE: Most = (1 << 30, 1 << 30)
WARP = 32


@not_an_array("pass its lane, register or bit")
@shortened
@dataclass(frozen=True)
class Held:
    """The lane, register and bits of each element of an operand.

    Attributes
    ----------
    name : str
        The operand, such as "A".
    type : str
        The element type, such as "f16".
    bits, register_bits : int
        The width of an element and of a register.
    lane, register, bit : int arrays (copies, matrices, rows, columns)
        The holder of each element; ``bit`` is the element's lowest bit in the register.
    """

    name: str
    type: str
    bits: int
    register_bits: int
    lane: Numbers
    register: Numbers
    bit: Numbers

    @property
    def run(self) -> tuple[int, int]:
        """The rows and columns of adjacent elements that share a register, drawn as one cell."""
        words = self.lane[0] << 16 | self.register[0]
        across = _run(words)
        return (1, across) if across > 1 else (_run(words.swapaxes(-1, -2)), 1)


Drawable: TypeAlias = Held | Operand | Layout
"""The types that have the lane, register and bit of each element of a matrix."""


def holders(held: Drawable, *, most: Most = WHOLE, svg: bool = False) -> str:
    r"""Draw the lane and register of each element of an operand.

    Parameters
    ----------
    held : Held, Operand or Layout
        An operand is one of `simwarp.fragments.fragments_of`.
    most : (int, int)
        The most rows and columns of cells to draw; of more, a gap and the last three are drawn.
    svg : bool
        Return SVG, not text.

    Raises
    ------
    DtypeError
        For anything else, such as a matrix alone, which does not have the lanes of its elements.

    Examples
    --------
    >>> place = np.arange(8)[:, None] * 4 + np.arange(8) // 2
    >>> held = Held("A", "b16", 16, 32, place[None, None], 0 * place[None, None],
    ...     (np.arange(8) % 2 * 16 + 0 * place)[None, None])
    >>> print("\n".join(holders(held).splitlines()[2:7]))
    column   0–1    2–3    4–5    6–7
           +------+------+------+------+
     row 0 | 0:0  | 1:0  | 2:0  | 3:0  |
         1 | 4:0  | 5:0  | 6:0  | 7:0  |
         2 | 8:0  | 9:0  | 10:0 | 11:0 |
    """
    return drawn(holders_picture(held_of(held), most), svg)


def product(
    title: str | Fragments,
    a: Drawable | None = None,
    b: Drawable | None = None,
    d: Drawable | None = None,
    *,
    most: Most = WHOLE,
    svg: bool = False,
) -> str:
    """Draw the operands of a product as on paper: A to the left of D, B above it.

    Parameters
    ----------
    title : str or Fragments
        Without operands, an instruction: its name, or what `simwarp.fragments.fragments_of` returns.
    a, b, d : Held, Operand or Layout
        None for an operand that is not in registers. Of several matrices the first is drawn.
    most : (int, int)
        The most rows and columns of cells to draw; of more, a gap and the last three are drawn.
    svg : bool
        Return SVG, not text.

    Raises
    ------
    ShapeError
        If the shapes do not make a product.
    DtypeError, SchemeError
        For operands that are not of these types, and without D.
    FragmentError
        For an unknown instruction, and for one that is not a product.

    Examples
    --------
    >>> print(product("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", most=(2, 2)).partition("lane:")[0])
    ... # doctest: +ELLIPSIS
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64
    ...
    >>> corner = np.zeros((1, 1, 1, 1), np.int64)
    >>> one = [Held(name, "f64", 64, 64, corner, corner, corner) for name in "ABD"]
    >>> print(product("1 × 1", *one).partition("lane:")[0].rstrip())
    1 × 1
    <BLANKLINE>
                       B, f64
                     n    0
                       +-----+
                   k 0 | 0:0 |
                       +-----+
    <BLANKLINE>
        A, f64         D, f64
      k    0         n    0
        +-----+        +-----+
    m 0 | 0:0 |    m 0 | 0:0 |
        +-----+        +-----+
    """
    if isinstance(title, Fragments) or (a is b is d is None):
        return drawn(instruction_picture(title, most), svg)
    if d is None:
        raise SchemeError(f"product {title!r} without d\nA and B are drawn beside their product\npass d")
    left, above = (None if one is None else held_of(one) for one in (a, b))
    return drawn(product_picture(title, left, above, held_of(d), most), svg)


def registers(held: Drawable, *, most: Most = WHOLE, svg: bool = False) -> str:
    r"""Draw the registers of all lanes with the elements that each holds.

    Parameters
    ----------
    held : Held, Operand or Layout
        An operand is one of `simwarp.fragments.fragments_of`.
    most : (int, int)
        The most lanes and registers to draw; of more, a gap and the last three are drawn.
    svg : bool
        Return SVG, not text.

    Raises
    ------
    DtypeError
        For anything else, such as a matrix alone, which does not have the lanes of its elements.

    Examples
    --------
    >>> place = np.arange(8)[:, None] * 4 + np.arange(8) // 2
    >>> held = Held("A", "b16", 16, 32, place[None, None], 0 * place[None, None],
    ...     (np.arange(8) % 2 * 16 + 0 * place)[None, None])
    >>> print("\n".join(registers(held).splitlines()[2:6]))
    register     0
             +-------+
      lane 0 | 0,0–1 |
           1 | 0,2–3 |
    """
    return drawn(registers_picture(held_of(held), most), svg)


def held_of(given: Drawable) -> Held:
    """The lane, register and bit of each element of an operand, or of a layout."""
    if isinstance(given, Held):
        return given
    layout: object = getattr(given, "layout", given)
    if not isinstance(layout, Layout):
        shown = repr(given) if isinstance(given, str) else f"a {type(given).__name__}"
        raise DtypeError(
            f"{shown} does not say which lane holds an element\n"
            "an operand of an instruction has the lane, register and bit of each\n"
            'pass for example simwarp.fragments.fragments_of("mma…").operands["a"], a Layout or a Held'
        )
    name, kind = getattr(given, "name", "matrix"), getattr(given, "type", f"b{layout.bits}")
    extents = layout.copies, layout.matrices, layout.rows, layout.columns
    copy, matrix, row, column = np.ix_(*map(range, extents))
    where = layout.holder(row, column, matrix, copy)
    return Held(name.upper(), kind, layout.bits, layout.register_bits, *where)


# ---- pictures as plain data ----------------------------------------------------------------------


def instruction_picture(given: str | Fragments, most: Most = WHOLE) -> Picture:
    """The picture of an instruction's fragments A, B and D, in the order of the product."""
    found = fragments_of(given) if isinstance(given, str) else given
    if not found.shape.k:
        raise FragmentError(
            f"{found.opcode} moves a matrix, and is not a product\nit has {', '.join(found.operands)}\n"
            "draw one of its operands with holders() or registers()"
        )
    held = {name: held_of(operand) for name, operand in found.operands.items()}
    d = held["d"]
    if "c" in held and found.operands["c"].layout == found.operands["d"].layout:
        d = replace(d, name="C and D")
    return product_picture(found.opcode, held.get("a"), held.get("b"), d, most)


def holders_picture(held: Held, most: Most = WHOLE) -> Picture:
    """The picture that `holders` draws, as plain data."""
    matrices, rows, columns = held.lane.shape[1:]
    many = f"{matrices} matrices of " if matrices > 1 else ""
    grids = tuple(
        _grid(held, matrix, f"matrix {matrix}" if matrices > 1 else "", ("row", "column"), most)
        for matrix in range(matrices)
    )
    title = f"{held.name}: {many}{rows} × {columns} elements of {held.type}"
    return Picture(title, tuple((grid,) for grid in grids), _notes([held], grids))


def product_picture(title: str, a: Held | None, b: Held | None, d: Held, most: Most = WHOLE) -> Picture:
    """The picture that `product` draws, as plain data."""
    _check_product(a, b, d)
    height = min(held.run[0] for held in (a, d) if held is not None)
    width = min(held.run[1] for held in (b, d) if held is not None)
    below = _named(d, ("m", "n"), most, (height, width))
    left = () if a is None else (_named(a, ("m", "k"), most, (height, a.run[1])),)
    lines = [(*left, below)]
    if b is not None:
        above, below = _equal_widths(_named(b, ("k", "n"), most, (b.run[0], width)), below)
        lines = [(*map(_blank_like, left), above), (*left, below)]
    notes = _notes(
        [held for held in (a, b, d) if held is not None], (grid for line in lines for grid in line)
    )
    count = d.lane.shape[1]
    several = (f"The first of {count} products; other lanes hold the others likewise.",) if count > 1 else ()
    return Picture(title, tuple(lines), (*several, *notes))


def registers_picture(held: Held, most: Most = WHOLE) -> Picture:
    """The picture that `registers` draws, as plain data."""
    spans = _spans(held)
    lanes, count = spans.shape
    grid = boxes(
        ends(lanes, most[0]),
        ends(count, most[1]),
        lambda lane, register: Cell(str(spans[lane, register]), hue=lane % WARP),
        prefix="lane ",
        corner="register",
    )
    place = "matrix: row,column" if held.lane.shape[1] > 1 else "row,column"
    note = f"{place} of what each register holds, from its lowest bit up."
    return Picture(f"{held.name}: {lanes} lanes × {count} registers, {held.type}", ((grid,),), (note,))


def _named(held: Held, axes: tuple[str, str], most: Most, cell: tuple[int, int] | None = None) -> Grid:
    return _grid(held, 0, f"{held.name}, {held.type}", axes, most, cell)


def _grid(
    held: Held,
    matrix: int,
    title: str,
    axes: tuple[str, str],
    most: Most,
    cell: tuple[int, int] | None = None,
) -> Grid:
    """A grid of one matrix; ``axes`` names its rows and its columns."""
    height, width = cell or held.run
    part = height * width * held.bits < held.register_bits

    def made(i: int, j: int) -> Cell:
        place = (slice(None), matrix, i * height, j * width)
        label = _label(held.lane[place], held.register[place], held.bit[place] if part else None)
        return Cell(label, hue=int(held.lane[place][0]) % WARP)

    grid = boxes(
        ends(held.lane.shape[2] // height, most[0]),
        ends(held.lane.shape[3] // width, most[1]),
        made,
        lambda i: span(i * height, height),
        lambda j: span(j * width, width),
        f"{axes[0]} ",
        title=title,
        corner=axes[1],
    )
    return _equal_widths(grid)[0]


def _label(lanes: Numbers, registers: Numbers, bits: Numbers | None) -> str:
    """The label of a cell: the registers of each lane that holds a copy."""
    held: dict[int, list[str]] = {}
    for copy, (lane, register) in enumerate(zip(lanes.tolist(), registers.tolist(), strict=True)):
        held.setdefault(lane, []).append(f"{register}" + (f".{bits[copy]}" if bits is not None else ""))
    return " ".join(f"{lane}:{','.join(of_lane)}" for lane, of_lane in held.items())


def _spans(held: Held) -> Numbers:
    """The range of elements in each register: an array (lanes, registers) of str."""
    matrices = held.lane.shape[1]
    spans = np.full((int(held.lane.max()) + 1, int(held.register.max()) + 1), "", object)
    within: dict[tuple[int, int], list[list[int]]] = {}
    order = np.argsort(held.bit, axis=None, kind="stable")
    where = np.stack([held.lane.ravel()[order], held.register.ravel()[order]], axis=1).tolist()
    places = np.stack(np.unravel_index(order, held.bit.shape)[1:], axis=1).tolist()
    for (lane, register), place in zip(where, places, strict=True):
        within.setdefault((lane, register), []).append(place)
    for holder, found in within.items():
        first, last = found[0], found[-1]
        matrix, row, column = (f"{a}" if a == b else f"{a}–{b}" for a, b in zip(first, last, strict=True))
        spans[holder] = f"{f'{matrix}: ' if matrices > 1 else ''}{row},{column}"
    return spans


def _notes(held: Sequence[Held], grids: Iterable[Grid]) -> tuple[str, ...]:
    """Notes below the picture that explain the labels and colours of its cells."""
    notes = ["lane:register of each element, coloured by lane."]
    labels = [cell.label for grid in grids for row in grid.cells for cell in row]
    if any("." in label for label in labels):
        notes.append("lane:register.bit where a register holds more than one cell.")
    if any("," in label for label in labels):
        notes.append("With several registers, each of them holds the elements.")
    counts = {one.type: one.register_bits // one.bits for one in held}
    notes += [
        f"{kind}: {count} elements in a register, neighbours from the lowest bit up."
        for kind, count in counts.items()
        if count > 1
    ]
    return tuple(notes)


def _check_product(a: Held | None, b: Held | None, d: Held) -> None:
    rows, columns = d.lane.shape[2:]
    wrong = (a is not None and a.lane.shape[2] != rows) or (b is not None and b.lane.shape[3] != columns)
    if a is not None and b is not None:
        wrong = wrong or a.lane.shape[3] != b.lane.shape[2]
    if wrong:
        shapes = ", ".join(f"{h.name} {h.lane.shape[2]} × {h.lane.shape[3]}" for h in (a, b, d) if h)
        raise ShapeError(f"no product: {shapes}\nA is m × k, B k × n and D m × n\ngive matrices that fit")


def _run(words: Numbers) -> int:
    """The length of the longest runs of equal words along the last axis."""
    extent = words.shape[-1]
    for run in range(extent, 1, -1):
        if extent % run == 0:
            parts = words.reshape(*words.shape[:-1], extent // run, run)
            if (parts == parts[..., :1]).all():
                return run
    return 1


def _equal_widths(*grids: Grid) -> list[Grid]:
    """Grids with equal cell and margin widths, so that their columns align."""
    labels = [cell.label for grid in grids for row in grid.cells for cell in row]
    labels += [label for grid in grids for label in grid.column_labels]
    margin = max(len(label) for grid in grids for label in (grid.corner, *grid.row_labels))
    return [replace(grid, least=max(map(len, labels)), corner=grid.corner.rjust(margin)) for grid in grids]


def _blank_like(grid: Grid) -> Grid:
    """A blank grid of one row, as wide as ``grid``."""
    widest = tuple(max(column, key=lambda cell: len(cell.label)) for column in zip(*grid.cells, strict=True))
    return replace(grid, cells=(widest,), row_labels=(max(grid.row_labels, key=len),), style="blank")
