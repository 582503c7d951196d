"""Comparison of the registers of an operand with the matrix that they should hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from simwarp.faults import Place
from simwarp.fragments import FragmentError, Layout, Operand, fragments_of
from simwarp.testing.fragments.patterns import pattern
from simwarp.testing.fragments.words import spelled, words_of

Registers = npt.NDArray[Any]

_K = {"a": "columns", "b": "rows"}
"""The axis of k in each operand that has one."""


@dataclass(eq=False, repr=False)
class FragmentDifference(AssertionError):  # noqa: N818 - pytest prints the name as a headline
    """Registers of an operand that do not hold the expected matrix.

    Attributes
    ----------
    opcode, operand, type : str
        The instruction; the operand, "a", "b" …; the type of its elements.
    warp : tuple of int
        The index of the warp in the leading axes; () for recorded registers.
    place : Place, optional
        The place of recorded registers: kernel, block, warp, lane and lines.
    lane, register, bit : int
        The position of the first wrong element; ``bit`` is its lowest bit in the register.
    row, column, matrix : int
        The index of that element.
    expected, got : int
        The words of that element.
    wrong, total : int
        The number of wrong elements, and of all elements in the registers of all warps.
    pattern : str
        The pattern of the wrong elements of that warp and matrix.
    """

    opcode: str
    operand: str
    type: str
    bits: int
    warp: tuple[int, ...]
    place: Place | None
    lane: int
    register: int
    bit: int
    row: int
    column: int
    matrix: int
    expected: int
    got: int
    wrong: int
    total: int
    pattern: str

    def __post_init__(self) -> None:
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f" of warp {list(self.warp)}" if self.warp else ""
        end = self.bit + self.bits - 1
        bits = f"bit {end}" if self.bits == 1 else f"bits {self.bit}-{end}"
        element = f"[{self.row}, {self.column}]" + (f" of matrix {self.matrix}" if self.matrix else "")
        place = f": {self.place}" if self.place else ""
        shown = [spelled(word, self.type, self.bits) for word in (self.expected, self.got)]
        return (
            f"operand {self.operand} of {self.opcode}: lane {self.lane}, register {self.register}, "
            f"{bits}{where} should hold element {element}{place}\n"
            f"expected {shown[0]}, got {shown[1]}; "
            f"{self.wrong} of {self.total} elements differ, {self.pattern}\n"
            f"see who holds what: simwarp frag {self.opcode}"
        )


def check_fragment(
    opcode: str,
    operand: str,
    registers: npt.ArrayLike,
    matrix: npt.ArrayLike,
    *,
    place: Place | None = None,
) -> None:
    """Assert that registers hold a matrix as an instruction's operand.

    Parameters
    ----------
    opcode : str
        The instruction's full spelling.
    operand : str
        "a", "b", "c" or "d"; "r" of ldmatrix and stmatrix.
    registers : uint32 (uint64 for f64), or float32 or int32, (…, lanes, registers)
        The registers as a kernel holds them; leading axes are warps.
    matrix : (…, rows, columns), or (…, matrices, rows, columns)
        Numbers of the operand's type, or its words as unsigned integers. Leading axes broadcast.
    place : Place, optional
        The place of the registers, for the message.

    Raises
    ------
    FragmentDifference
        If an element, or a copy of one, differs.
    FragmentError
        For an unknown instruction or operand.
    ShapeError, DtypeError
        For arrays of other shapes or dtypes.

    Examples
    --------
    >>> from simwarp.fragments import fragments_of
    >>> opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> tile = np.arange(256, dtype=np.float16).reshape(16, 16)
    >>> registers = fragments_of(opcode).operands["a"].layout.pack(tile)
    >>> check_fragment(opcode, "a", registers, tile)
    >>> try:
    ...     check_fragment(opcode, "a", registers[:, [2, 3, 0, 1]], tile)
    ... except FragmentDifference as found:
    ...     print(found.lane, found.register, found.bit, (found.row, found.column), found.pattern)
    0 0 0 (0, 0) in all rows and columns; columns 0-7 and 8-15 are exchanged, the halves of k
    """
    __tracebackhide__ = True
    name, kind, layout = operand, operand_of(opcode, operand).type, operand_of(opcode, operand).layout
    got = np.asarray(registers)
    if got.dtype.itemsize * 8 == layout.register_bits:
        got = np.ascontiguousarray(got).view(f"u{layout.register_bits // 8}")
    held = layout.unpack(got)
    words = words_of(matrix, kind, layout.bits)
    if words.shape[-len(layout.shape) :] != layout.shape:
        raise ShapeError(
            f"a matrix of shape {words.shape} for operand {name} of {opcode}\n"
            f"the operand is {' x '.join(map(str, layout.shape))}\n"
            f"give (…, {', '.join(map(str, layout.shape))})"
        )
    words = np.broadcast_to(words, held.shape)
    differ = _slots(layout.pack(words) ^ got, layout.bits)
    if not differ.any():
        return
    warp, lane, register, bit, element = _first(layout, differ)
    row, column, number = element
    whole = warp if layout.matrices == 1 else (*warp, number)
    one = (1 << layout.bits) - 1
    raise FragmentDifference(
        opcode=opcode,
        operand=name,
        type=kind,
        bits=layout.bits,
        warp=warp,
        place=None if place is None else replace(place, lane=lane),
        lane=lane,
        register=register,
        bit=bit,
        row=row,
        column=column,
        matrix=number,
        expected=int(words[(*whole, row, column)]),
        got=int(got[(*warp, lane, register)]) >> bit & one,
        wrong=int(np.count_nonzero(differ)),
        total=differ.size,
        pattern=pattern(words[whole], held[whole], kind, _K.get(name, ""))
        or "none of them in its first copy",
    )


def _first(
    layout: Layout, differ: npt.NDArray[np.bool_]
) -> tuple[tuple[int, ...], int, int, int, tuple[int, int, int]]:
    """The first wrong warp, and its first wrong element: lane, register, bit, (row, column, matrix)."""
    warp = tuple(int(i) for i in np.argwhere(differ.any(axis=(-3, -2, -1)))[0])
    lane, register, slot = np.nonzero(differ[warp])
    bit = slot * layout.bits
    element = layout.element(lane, register, bit)
    at = int(np.lexsort((register, element.column, element.row, element.matrix))[0])
    row, column, matrix = (int(number[at]) for number in element)
    return warp, int(lane[at]), int(register[at]), int(bit[at]), (row, column, matrix)


def operand_of(opcode: str, name: str) -> Operand:
    """Find an operand of an instruction by name; raise FragmentError if there is not one."""
    operands = fragments_of(opcode).operands
    if name not in operands:
        raise FragmentError(
            f"{opcode} has no operand {name!r} in registers\nit has {', '.join(operands)}\nchoose one of them"
        )
    return operands[name]


def _slots(words: Registers, bits: int) -> npt.NDArray[np.bool_]:
    """A mask of the elements that are not 0, (…, registers, elements per register)."""
    width = words.dtype.itemsize * 8
    mask = words.dtype.type((1 << bits) - 1)
    shifts = np.arange(0, width, bits, dtype=words.dtype)
    return (words[..., None] >> shifts & mask) != 0
