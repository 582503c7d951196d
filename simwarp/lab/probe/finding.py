"""What a probe found, as plain data, and how it differs from `simwarp.fragments`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from simwarp.fragments import Layout, Operand
from simwarp.lab.probe.passes import NOWHERE, UNCLEAR, Numbers

_WORDS = {NOWHERE: "nothing", UNCLEAR: "bits that are no single element"}


@dataclass(frozen=True)
class Difference:
    """The first place where a chip and `simwarp.fragments` disagree.

    Attributes
    ----------
    operand : str
        "a", "b", "c", "d" or "r".
    lane, register, bit : int
    found, expected : str
        The element that the chip holds there, and the one that `simwarp.fragments` names.
    """

    operand: str
    lane: int
    register: int
    bit: int
    found: str
    expected: str

    def __str__(self) -> str:
        return (
            f"operand {self.operand}, lane {self.lane}, register {self.register}, bit {self.bit}: "
            f"found {self.found}, simwarp.fragments says {self.expected}"
        )


@dataclass(frozen=True)
class FoundOperand:
    """What was found out about an operand.

    Attributes
    ----------
    operand, type : str
    layout : Layout
        The map that `simwarp.fragments` has.
    found : int32 (lanes, registers, slots)
        The number of the element that each slot holds, (matrix · rows + row) · columns + column; negative
        where none is held (see `simwarp.lab.probe.passes`).
    difference : Difference or None
    """

    operand: str
    type: str
    layout: Layout
    found: Numbers
    difference: Difference | None

    @property
    def agreed(self) -> bool:
        """Whether the chip has the map of `simwarp.fragments`."""
        return self.difference is None

    def to_json(self) -> dict[str, Any]:
        """The map as a line of digits if it is the expected one, else element by element."""
        return {
            "operand": self.operand,
            "type": self.type,
            "agreed": self.agreed,
            "map": str(self.layout) if self.agreed else self.found.tolist(),
            "difference": None if self.difference is None else vars(self.difference),
        }


@dataclass(frozen=True)
class Finding:
    """What was found out about one form of an instruction.

    Attributes
    ----------
    opcode : str
        As `simwarp.fragments.all_opcodes` spells it.
    operands : tuple of FoundOperand
    digest : str
        SHA-256 of everything that the chip told; "" where it does not execute the form.
    refusal : str
        Why the device does not execute the form, or "".
    """

    opcode: str
    operands: tuple[FoundOperand, ...] = ()
    digest: str = ""
    refusal: str = ""

    @property
    def executed(self) -> bool:
        """Whether the device has the instruction."""
        return not self.refusal

    @property
    def agreed(self) -> bool:
        """Whether the device has the instruction, with the maps of `simwarp.fragments`."""
        return self.executed and all(operand.agreed for operand in self.operands)

    @property
    def differences(self) -> list[Difference]:
        """The first difference of each operand that differs."""
        return [operand.difference for operand in self.operands if operand.difference is not None]

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        return {
            "opcode": self.opcode,
            "executed": self.executed,
            "refusal": self.refusal,
            "agreed": self.agreed,
            "digest": self.digest,
            "operands": [operand.to_json() for operand in self.operands],
        }


def expected_numbers(layout: Layout) -> Numbers:
    """The number of each slot's element, as `simwarp.fragments` has it: (lanes, registers, slots).

    Examples
    --------
    >>> from simwarp.fragments import Layout
    >>> expected_numbers(Layout.of("slot 2:c1  lane 4:c2 8:r1", bits=16))[:5, 0].tolist()
    [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    """
    place = np.ix_(np.arange(layout.lanes), np.arange(layout.registers), np.arange(layout.slots))
    row, column, matrix = layout.element(place[0], place[1], place[2] * layout.bits)
    return ((matrix * layout.rows + row) * layout.columns + column).astype(np.int32)


def first_copies(layout: Layout) -> Numbers:
    """`expected_numbers` without the further copies of an element: those are `NOWHERE`.

    Examples
    --------
    >>> from simwarp.fragments import Layout
    >>> first_copies(Layout.of("lane 4:c1 8:r1  register 2:copy1", bits=32))[:2].tolist()
    [[[0], [-1]], [[1], [-1]]]
    """
    number = expected_numbers(layout)
    matrix, row, column = np.ix_(*(range(n) for n in (layout.matrices, layout.rows, layout.columns)))
    held = layout.holder(row, column, matrix)
    lowest = held.lane, held.register, held.bit // layout.bits
    kept = np.full_like(number, NOWHERE)
    kept[lowest] = number[lowest]
    return kept


def compare(operand: Operand, found: Numbers, expected: Numbers | None = None) -> FoundOperand:
    """Hold a found map against that of `simwarp.fragments`, or against other expected numbers.

    Examples
    --------
    >>> from simwarp.fragments import fragments_of
    >>> operand = fragments_of("movmatrix.sync.aligned.m8n8.trans.b16").operands["a"]
    >>> found = expected_numbers(operand.layout)
    >>> found[5, 0] = found[5, 0, ::-1]
    >>> difference = compare(operand, found).difference
    >>> difference.lane, difference.register, difference.bit, difference.found
    (5, 0, 0, 'row 1, column 3')
    """
    layout = operand.layout
    if expected is None:
        expected = expected_numbers(layout)
    wrong = np.argwhere(found != expected)
    difference = None
    if wrong.size:
        lane, register, slot = (int(i) for i in wrong[0])
        told, wanted = int(found[lane, register, slot]), int(expected[lane, register, slot])
        words = describe(told, layout), describe(wanted, layout)
        difference = Difference(operand.name, lane, register, slot * layout.bits, *words)
    return FoundOperand(operand.name, operand.type, layout, found, difference)


def describe(number: int, layout: Layout) -> str:
    """An element in words.

    Examples
    --------
    >>> from simwarp.fragments import Layout
    >>> a = Layout.of("slot 2:c1  lane 4:c2 8:r1", bits=16)
    >>> describe(10, a), describe(-1, a), describe(64, a)
    ('row 1, column 2', 'nothing', 'row 0, column 0, matrix 1')
    """
    if number < 0:
        return _WORDS[number]
    matrix, place = divmod(number, layout.rows * layout.columns)
    row, column = divmod(place, layout.columns)
    of = f", matrix {matrix}" if matrix or layout.matrices > 1 else ""
    return f"row {row}, column {column}{of}"


def digest(*found: Numbers) -> str:
    """The SHA-256 of what was found.

    Examples
    --------
    >>> digest(np.arange(3, dtype=np.int32))[:16]
    'f3439e0d4241da2d'
    """
    total = hashlib.sha256()
    for array in found:
        total.update(f"{array.shape}".encode() + np.ascontiguousarray(array, "<i4").tobytes())
    return total.hexdigest()
