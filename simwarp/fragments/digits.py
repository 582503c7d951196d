"""The notation of fragment maps: digits in mixed radix.

The numbers of a lane, of a register and of a *slot* (the position of an element in its register, from the
lowest bits up) are written in mixed radix, and each digit moves the row, the column or the number of the
matrix by a stride. The A operand of ``mma.m16n8k16`` with f16 is the line ::

    slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8

``4:c2`` is a digit of 4 values that moves the column by 2. Each number starts with its least significant
digit; the line above means ::

    row    = lane // 4           + 8 * (register % 2)
    column = slot + 2 * (lane % 4) + 8 * (register // 2)

``r`` moves the row, ``c`` the column, ``m`` the matrix; ``copy`` moves none of them: the element is held
again. Rows, columns, matrices and copies are in mixed radix too, so the same line gives the inverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from reference.errors import SimwarpError

Source: TypeAlias = Literal["slot", "lane", "register"]
Target: TypeAlias = Literal["row", "column", "matrix", "copy"]

SOURCES: tuple[Source, ...] = ("slot", "lane", "register")
TARGETS: dict[str, Target] = {"r": "row", "c": "column", "m": "matrix", "copy": "copy"}


class FragmentError(SimwarpError, ValueError):
    """An instruction that does not exist, or a lane, register or element outside of a fragment."""


@dataclass(frozen=True)
class Digit:
    """A digit of the number of a lane, a register or a slot, and the coordinate that it moves.

    Attributes
    ----------
    source : str
        The number that the digit is part of: "lane", "register" or "slot".
    unit : int
        The product of the sizes of the less significant digits.
    size : int
        The number of its values.
    target : str
        "row", "column", "matrix" or "copy".
    stride : int
        The distance by which one step of the digit moves the target.

    Examples
    --------
    >>> str(Digit("lane", unit=1, size=4, target="column", stride=2))
    '4:c2'
    """

    source: Source
    unit: int
    size: int
    target: Target
    stride: int

    def __str__(self) -> str:
        letter = self.target if self.target == "copy" else self.target[0]
        return f"{self.size}:{letter}{self.stride}"


def read_digits(line: str) -> tuple[Digit, ...]:
    """Read the digits of a line; digits of size 1 have no effect and are left out."""
    digits: list[Digit] = []
    source: Source = "slot"
    unit = 1
    for word in line.split():
        if word in SOURCES:
            source, unit = word, 1
            continue
        found = re.fullmatch(r"(\d+):(r|c|m|copy)(\d+)", word)
        if found is None:
            raise FragmentError(
                f"not a digit: {word!r} in {line!r}\n"
                "a digit is its size, what it moves (r, c, m or copy) and the stride\n"
                "write 4:c2 for a digit of 4 values that moves the column by 2"
            )
        size = int(found[1])
        if size > 1:
            digits.append(Digit(source, unit, size, TARGETS[found[2]], int(found[3])))
        unit *= size
    for target in TARGETS.values():
        _check_strides(digits, target)
    return tuple(digits)


def write_digits(digits: Iterable[Digit]) -> str:
    """Write digits as a line: the inverse of `read_digits`."""
    parts: dict[str, list[str]] = {}
    for digit in digits:
        parts.setdefault(digit.source, []).append(str(digit))
    return "  ".join(f"{source} {' '.join(words)}" for source, words in parts.items())


def _check_strides(digits: list[Digit], target: Target) -> None:
    """Raise an error if the strides of a target's digits leave gaps or overlap."""
    moving = sorted((d for d in digits if d.target == target), key=lambda d: d.stride)
    strides = [d.stride for d in moving]
    expected = [prod(d.size for d in moving[:i]) for i in range(len(moving))]
    if strides != expected:
        raise FragmentError(
            f"not a map: {write_digits(digits)}\n"
            f"the strides that move the {target} are {_numbers(strides)}, not {_numbers(expected)}\n"
            f"make each stride the product of the sizes of the digits that move the {target} by less"
        )


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
