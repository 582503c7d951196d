"""IEEE 754 arithmetic on NumPy arrays: every operation correctly rounded, in every direction, on any CPU.

Operands are arrays or NumPy scalars of shapes that broadcast. The payload of a NaN result is
unspecified unless a function defines it. No function warns.
"""

from simwarp.floats.arithmetic import add, div, flush, mul, rcp, saturate, sqrt, sub
from simwarp.floats.conversion import convert, from_integer, round_integral, to_integer
from simwarp.floats.formats import FormatName
from simwarp.floats.fused import fma
from simwarp.floats.rounding import NarrowRounding, Rounding
from simwarp.floats.small_formats import half, narrow, widen

__all__ = [
    "FormatName",
    "NarrowRounding",
    "Rounding",
    "add",
    "convert",
    "div",
    "flush",
    "fma",
    "from_integer",
    "half",
    "mul",
    "narrow",
    "rcp",
    "round_integral",
    "saturate",
    "sqrt",
    "sub",
    "to_integer",
    "widen",
]


def __dir__() -> list[str]:
    return sorted(__all__)
