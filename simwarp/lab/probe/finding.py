"""The fragment maps that a probe found, and their differences from those of `simwarp.fragments`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from simwarp.fragments import Layout, Operand
from simwarp.lab.probe.passes import NOWHERE, UNCLEAR, Numbers

_WORDS = {NOWHERE: "nothing", UNCLEAR: "bits that are not one element"}


@dataclass(frozen=True)
class Difference:
    """The first slot of an operand where a device and `simwarp.fragments` disagree."""

    operand: str  # "a", "b", "c", "d" or "r"
    lane: int
    register: int
    bit: int
    found: str  # words for the element that the device holds at this position
    expected: str  # words for the element that `simwarp.fragments` has at this position

    def __str__(self) -> str:
        return (
            f"operand {self.operand}, lane {self.lane}, register {self.register}, bit {self.bit}: "
            f"found {self.found}, simwarp.fragments has {self.expected}"
        )


@dataclass(frozen=True)
class FoundOperand:
    """The map of an operand that a probe found.

    ``found``, int32 (lanes, registers, slots), is the number of the element that each slot holds, (matrix ·
    rows + row) · columns + column; negative for an empty slot (see `simwarp.lab.probe.passes`).
    """

    operand: str
    type: str
    layout: Layout  # the map of `simwarp.fragments`
    found: Numbers
    difference: Difference | None

    @property
    def agreed(self) -> bool:
        """True if the found map equals that of `simwarp.fragments`."""
        return self.difference is None

    def to_json(self) -> dict[str, Any]:
        """The map as JSON: in the notation of `Layout` if it is as expected, else element by element."""
        return {
            "operand": self.operand,
            "type": self.type,
            "agreed": self.agreed,
            "map": str(self.layout) if self.agreed else self.found.tolist(),
            "difference": None if self.difference is None else vars(self.difference),
        }


@dataclass(frozen=True)
class Finding:
    """The maps that a probe found for one form of an instruction."""

    opcode: str  # the opcode as `simwarp.fragments.all_opcodes` spells it
    operands: tuple[FoundOperand, ...] = ()
    digest: str = ""  # SHA-256 of the device's answers; "" where it does not execute the form
    refusal: str = ""  # the reason why the device does not execute the form, or ""

    @property
    def executed(self) -> bool:
        """Whether the device executes the instruction."""
        return not self.refusal

    @property
    def agreed(self) -> bool:
        """True if the device executes the instruction with the maps of `simwarp.fragments`."""
        return self.executed and all(operand.agreed for operand in self.operands)

    @property
    def differences(self) -> list[Difference]:
        """For each operand whose map differs, its first difference."""
        return [operand.difference for operand in self.operands if operand.difference is not None]

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        facts = {name: getattr(self, name) for name in ("opcode", "executed", "refusal", "agreed", "digest")}
        return facts | {"operands": [operand.to_json() for operand in self.operands]}


def expected_numbers(layout: Layout) -> Numbers:
    """The number of the element in each slot of a layout: (lanes, registers, slots)."""
    lane, register, slot = np.ogrid[: layout.lanes, : layout.registers, : layout.slots]
    row, column, matrix = layout.element(lane, register, slot * layout.bits)
    return ((matrix * layout.rows + row) * layout.columns + column).astype(np.int32)


def first_copies(layout: Layout) -> Numbers:
    """`expected_numbers`, with `NOWHERE` for all copies of an element except the first."""
    number = expected_numbers(layout)
    matrix, row, column = np.ogrid[: layout.matrices, : layout.rows, : layout.columns]
    held = layout.holder(row, column, matrix)
    lowest = held.lane, held.register, held.bit // layout.bits
    kept = np.full_like(number, NOWHERE)
    kept[lowest] = number[lowest]
    return kept


def compare(operand: Operand, found: Numbers, expected: Numbers | None = None) -> FoundOperand:
    """Compare an operand's found map with that of `simwarp.fragments`, or with other expected numbers."""
    layout, difference = operand.layout, None
    expected = expected_numbers(layout) if expected is None else expected
    wrong = np.argwhere(found != expected)
    if wrong.size:
        lane, register, slot = (int(i) for i in wrong[0])
        words = (describe(int(numbers[lane, register, slot]), layout) for numbers in (found, expected))
        difference = Difference(operand.name, lane, register, slot * layout.bits, *words)
    return FoundOperand(operand.name, operand.type, layout, found, difference)


def describe(number: int, layout: Layout) -> str:
    """The row, column and matrix of a numbered element, in words."""
    if number < 0:
        return _WORDS[number]
    matrix, row, column = np.unravel_index(number, (layout.matrices, layout.rows, layout.columns))
    of = f", matrix {matrix}" if matrix or layout.matrices > 1 else ""
    return f"row {row}, column {column}{of}"


def digest(*found: Numbers) -> str:
    """The SHA-256 of the shapes and elements of found maps."""
    total = hashlib.sha256()
    for array in found:
        total.update(f"{array.shape}".encode() + np.ascontiguousarray(array, "<i4").tobytes())
    return total.hexdigest()
