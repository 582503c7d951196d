"""The map of an operand: the lane, register and bit that hold each element of a matrix."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from reference.values import not_an_array, shortened
from simwarp.fragments.digits import (
    SOURCES,
    TARGETS,
    Digit,
    FragmentError,
    Source,
    Target,
    read_digits,
    write_digits,
)
from simwarp.fragments.packed import Words, join, split, unsigned_words

Whole: TypeAlias = Any
"""An int, or an array of integers."""


@shortened
class Element(NamedTuple):
    """The coordinates of an element: ints, or arrays of one shape."""

    row: Whole
    column: Whole
    matrix: Whole = 0


@shortened
class Holder(NamedTuple):
    """The lane, register and lowest bit that hold an element: ints, or arrays of one shape."""

    lane: Whole
    register: Whole
    bit: Whole


@not_an_array("pass what its holder or element gives")
@shortened
@dataclass(frozen=True)
class Layout:
    """The map of an operand, as the digits of a line of `simwarp.fragments.digits`.

    Attributes
    ----------
    digits : tuple of Digit
    bits : int
        The width of an element: 1, 4, 8, 16, 32 or 64.
    register_bits : int
        32, or 64 for f64.

    Examples
    --------
    >>> a = Layout.of("slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8", bits=16)
    >>> a.rows, a.columns, a.lanes, a.registers, a.slots
    (16, 16, 32, 4, 2)
    >>> a.element(lane=5, register=1, bit=16)
    Element(row=9, column=3, matrix=0)
    >>> a.holder(row=9, column=3)
    Holder(lane=5, register=1, bit=16)
    """

    digits: tuple[Digit, ...]
    bits: int
    register_bits: int = 32

    def __str__(self) -> str:
        return write_digits(self.digits)

    @classmethod
    def of(cls, line: str, bits: int, register_bits: int = 32) -> Layout:
        """Read a layout from a line of digits.

        Raises
        ------
        FragmentError
            If the line is not a map, or its slots do not fill a register.

        Examples
        --------
        >>> Layout.of("lane 4:c1 8:r1  register 2:r8", bits=32).shape
        (16, 4)
        """
        made = cls(read_digits(line), bits, register_bits)
        if made.slots * bits != register_bits:
            raise FragmentError(
                f"not a map: {made}\n"
                f"{made.slots} elements of {bits} bits do not fill a register of {register_bits} bits\n"
                "make the product of the slot's digits the number of elements of a register"
            )
        return made

    @cached_property
    def lanes(self) -> int:
        """The number of lanes that hold the operand: 32, or 128 for a warpgroup."""
        return self._count("lane")

    @cached_property
    def registers(self) -> int:
        """The number of registers of each lane."""
        return self._count("register")

    @cached_property
    def slots(self) -> int:
        """The number of elements of each register."""
        return self._count("slot")

    @cached_property
    def rows(self) -> int:
        """The number of rows of the matrix."""
        return self._extent("row")

    @cached_property
    def columns(self) -> int:
        """The number of columns of the matrix."""
        return self._extent("column")

    @cached_property
    def matrices(self) -> int:
        """The number of matrices that the registers hold."""
        return self._extent("matrix")

    @cached_property
    def copies(self) -> int:
        """The number of copies of each element in the registers."""
        return self._extent("copy")

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the elements: (rows, columns), or (matrices, rows, columns)."""
        matrix = (self.rows, self.columns)
        return matrix if self.matrices == 1 else (self.matrices, *matrix)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The unsigned type of the elements that `unpack` returns."""
        return np.dtype(f"u{max(self.bits // 8, 1)}")

    def element(self, lane: Whole, register: Whole, bit: Whole = 0) -> Element:
        """The element that a bit of a lane's register belongs to.

        Parameters
        ----------
        lane, register, bit : int, or arrays of int that broadcast
            ``bit`` is any of the element's bits.

        Raises
        ------
        FragmentError
            For a lane, register or bit that the operand does not have.

        Examples
        --------
        The elements of lane 5 in the lower halves of its four registers:

        >>> a = Layout.of("slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8", bits=16)
        >>> a.element(5, np.arange(4)).row, a.element(5, np.arange(4)).column
        (array([1, 9, 1, 9]), array([ 2,  2, 10, 10]))
        """
        lane, register, bit = _whole(lane), _whole(register), _whole(bit)
        _check_inside("lane", lane, self.lanes)
        _check_inside("register", register, self.registers)
        _check_inside("bit", bit, self.register_bits)
        number = {"lane": lane, "register": register, "slot": bit // self.bits}
        nothing = 0 * (lane + register + bit)
        moved: dict[Target, Whole] = dict.fromkeys(TARGETS.values(), nothing)
        for digit in self.digits:
            value = number[digit.source] // digit.unit % digit.size
            moved[digit.target] = moved[digit.target] + value * digit.stride
        return Element(moved["row"], moved["column"], moved["matrix"])

    def holder(self, row: Whole, column: Whole, matrix: Whole = 0, copy: Whole = 0) -> Holder:
        """The lane, the register and the lowest bit that hold an element.

        Parameters
        ----------
        row, column, matrix, copy : int, or arrays of int that broadcast
            ``copy`` numbers the copies of an element that is held more than once, from the lowest
            register up.

        Raises
        ------
        FragmentError
            For a row, column, matrix or copy that the operand does not have.

        Examples
        --------
        >>> a = Layout.of("slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8", bits=16)
        >>> a.holder(0, np.arange(4)).lane, a.holder(0, np.arange(4)).bit
        (array([0, 0, 1, 1]), array([ 0, 16,  0, 16]))
        """
        row, column, matrix, copy = _whole(row), _whole(column), _whole(matrix), _whole(copy)
        place: dict[Target, Whole] = {"row": row, "column": column, "matrix": matrix, "copy": copy}
        for target, number in place.items():
            _check_inside(target, number, self._extent(target))
        nothing = 0 * (row + column + matrix + copy)
        number: dict[Source, Whole] = dict.fromkeys(SOURCES, nothing)
        for digit in self.digits:
            value = place[digit.target] // digit.stride % digit.size
            number[digit.source] = number[digit.source] + value * digit.unit
        return Holder(number["lane"], number["register"], number["slot"] * self.bits)

    def unpack(self, registers: Words) -> Words:
        """Convert the registers of some warps to the matrices that they hold.

        Parameters
        ----------
        registers : uint32, or uint64 for f64, (…, lanes, registers)

        Returns
        -------
        unsigned words (…, rows, columns), or (…, matrices, rows, columns)
            uint8 for elements of up to 8 bits, else as wide as an element. The first copy of an element is
            read.

        Raises
        ------
        ShapeError, DtypeError
            For registers of another shape or type.

        Examples
        --------
        >>> b = Layout.of("slot 2:r1  lane 4:r2 8:c1", bits=16)
        >>> registers = np.zeros((32, 1), np.uint32)
        >>> registers[0, 0] = 0x00020001
        >>> b.unpack(registers)[:3, :2].tolist()
        [[1, 0], [2, 0], [0, 0]]
        """
        words = unsigned_words(registers, (self.lanes, self.registers), self.register_bits, "registers")
        if self._along_columns:
            return split(self._words.unpack(words), self.bits)
        flat = split(words.reshape(*words.shape[:-2], self.lanes * self.registers), self.bits)
        return flat.take(self._places, axis=-1)

    def pack(self, elements: Words) -> Words:
        """Convert matrices to the registers that hold them: the inverse of `unpack`, which fills every copy.

        Parameters
        ----------
        elements : words (…, rows, columns), or (…, matrices, rows, columns)
            As wide as `unpack` returns them; signed and float arrays are taken for their bits. The low bits
            of elements narrower than a byte are packed.

        Returns
        -------
        uint32, or uint64 for f64, (…, lanes, registers)

        Raises
        ------
        ShapeError, DtypeError
            For elements of another shape or type.

        Examples
        --------
        >>> b = Layout.of("slot 2:r1  lane 4:r2 8:c1", bits=16)
        >>> ones = np.ones((16 // 2, 8), np.float16)
        >>> hex(b.pack(ones)[0, 0])
        '0x3c003c00'
        """
        words = unsigned_words(elements, self.shape, self.dtype.itemsize * 8, "elements")
        if self._along_columns:
            return self._words.pack(join(words, self.bits, self.register_bits))
        flat = words.reshape(*words.shape[: words.ndim - len(self.shape)], prod(self.shape))
        joined = join(flat.take(self._elements, axis=-1), self.bits, self.register_bits)
        return joined.reshape(*joined.shape[:-1], self.lanes, self.registers)

    def words(self) -> Layout:
        """The same map with whole registers as elements, for products of packed bit matrices.

        Raises
        ------
        FragmentError
            If the elements of a register are not neighbours in a row or a column.

        Examples
        --------
        >>> a = Layout.of("slot 32:c1  lane 4:c32 8:r1", bits=1)
        >>> a.columns, str(a.words()), a.words().columns
        (128, 'lane 4:c1 8:r1', 4)
        """
        return self._words

    @cached_property
    def _words(self) -> Layout:
        slots = [digit for digit in self.digits if digit.source == "slot"]
        along = {digit.target for digit in slots}
        reach = sum((digit.size - 1) * digit.stride for digit in slots) + 1
        if len(along) > 1 or reach != self.slots:
            raise FragmentError(
                f"the elements of a register are not neighbours in the matrix: {self}\n"
                "words() treats a register as one element\n"
                "call unpack(), which moves each element by itself"
            )
        kept = (
            Digit(d.source, d.unit, d.size, d.target, d.stride // (self.slots if d.target in along else 1))
            for d in self.digits
            if d.source != "slot"
        )
        return Layout(tuple(kept), self.register_bits, self.register_bits)

    @cached_property
    def _along_columns(self) -> bool:
        """True if a register holds neighbours of one row, so that whole registers can be moved."""
        first = next((d for d in self.digits if d.source == "slot"), None)
        return first is not None and (first.target, first.stride, first.size) == ("column", 1, self.slots)

    @cached_property
    def _places(self) -> npt.NDArray[np.intp]:
        """For each element, the index of its first copy among all slots of all registers of all lanes."""
        matrix, row, column = np.ix_(*(range(n) for n in (self.matrices, self.rows, self.columns)))
        held = self.holder(row, column, matrix)
        place = (held.lane * self.registers + held.register) * self.slots + held.bit // self.bits
        return place.reshape(self.shape)

    @cached_property
    def _elements(self) -> npt.NDArray[np.intp]:
        """For each slot of each register of each lane, the index of its element in the flattened matrices."""
        lane, register, slot = np.ix_(*(range(n) for n in (self.lanes, self.registers, self.slots)))
        row, column, matrix = self.element(lane, register, slot * self.bits)
        return ((matrix * self.rows + row) * self.columns + column).ravel()

    def _count(self, source: Source) -> int:
        return prod(digit.size for digit in self.digits if digit.source == source)

    def _extent(self, target: Target) -> int:
        return prod(digit.size for digit in self.digits if digit.target == target)


def _whole(number: Whole) -> Whole:
    """Convert a number to int, and an array to intp, which holds every product here."""
    array = np.asarray(number)
    if array.dtype.kind not in "iu":
        raise DtypeError(
            f"an index of type {array.dtype}\nlanes, registers, bits, rows and columns are integers\n"
            "convert the index to an integer"
        )
    return array.astype(np.intp) if array.ndim else operator.index(number)


def _check_inside(what: str, number: Whole, count: int) -> None:
    """Raise FragmentError unless every number is from 0 to ``count - 1``."""
    inside = (number >= 0) & (number < count)
    if not np.all(inside):
        outside = number if isinstance(number, int) else int(number[~inside][0])
        raise FragmentError(
            f"there is no {what} {outside}\nthe operand has {count}, 0 to {count - 1}\n"
            f"choose a {what} of the operand"
        )
