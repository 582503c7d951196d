"""The floating-point formats of the PTX ISA: widths and limits.

A *word* is a value's bits in an unsigned integer; its *magnitude* is the word without the sign.
Magnitudes increase with the values, from subnormal numbers to infinity: a magnitude plus one is the next
value's.

Source: PTX ISA 9.0, sections 5.2.1 and 5.2.3; e4m3 and e5m2 also OCP 8-bit Floating Point Specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

FormatName: TypeAlias = Literal["f16", "bf16", "tf32", "e4m3", "e5m2"]


@dataclass(frozen=True)
class Format:
    """A binary format: sign, exponent and fraction, from the top of the word."""

    name: str
    word: np.dtype[Any]  # the unsigned integer type that holds a value
    exponent_bits: int
    fraction_bits: int
    padding: int = 0  # low bits of the word that are always 0
    has_infinity: bool = True  # without infinity, only the largest magnitude is NaN

    @property
    def sign(self) -> int:
        """The word with only the sign bit set."""
        return 1 << (self.exponent_bits + self.fraction_bits + self.padding)

    @property
    def nan(self) -> int:
        """The canonical NaN: every bit except the sign."""
        return self.sign - (1 << self.padding)

    @property
    def largest(self) -> int:
        """The magnitude, without padding, of the largest finite value; the next is infinity or NaN."""
        last = (1 << (self.exponent_bits + self.fraction_bits)) - 1
        return last - (1 << self.fraction_bits) if self.has_infinity else last - 1

    @property
    def least_exponent(self) -> int:
        """The binary exponent of the least normal value."""
        return 2 - (1 << (self.exponent_bits - 1))

    @property
    def greatest_exponent(self) -> int:
        """The binary exponent of the largest finite value."""
        return self.least_exponent + (self.largest >> self.fraction_bits) - 1


FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format("f64", np.dtype("u8"), 11, 52),
        Format("f32", np.dtype("u4"), 8, 23),
        Format("f16", np.dtype("u2"), 5, 10),
        Format("bf16", np.dtype("u2"), 8, 7),
        Format("tf32", np.dtype("u4"), 8, 10, padding=13),
        Format("e4m3", np.dtype("u1"), 4, 3, has_infinity=False),
        Format("e5m2", np.dtype("u1"), 5, 2),
    )
}
