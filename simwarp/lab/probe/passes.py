"""Numbering of data sources by one bit per pass: the bits that arrive identify the source.

In pass 0 every source holds 0, in pass 1 it holds 1, and in pass 2 + p it holds bit p of its own number. The
bits that arrive at a destination, pass by pass, spell the number of their source.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.floats.formats import FORMATS
from simwarp.fragments import Layout
from simwarp.fragments.packed import join, split

Bits: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int32]

NOWHERE = -1
"""Stands for a source's number where the same value arrives in every pass."""
UNCLEAR = -2
"""Stands for a source's number where the arriving bits vary, but do not spell a number."""
ONE = {
    **dict.fromkeys(("b1", "s4", "u4", "s8", "u8", "s32"), 1),
    **{name: (1 - f.least_exponent) << f.fraction_bits + f.padding for name, f in FORMATS.items()},
}
"""The bit pattern of the number 1 in each element type."""


def passes(count: int) -> Bits:
    """The bit that each of ``count`` sources holds in each pass: (2 + bits of count - 1, count)."""
    number = np.arange(count)
    digits = [number >> p & 1 for p in range(int(count - 1).bit_length())]
    return np.stack([0 * number, 0 * number + 1, *digits]).astype(np.bool_)


def numbers(arrived: npt.NDArray[Any]) -> Numbers:
    """The number of the source of each arrived bit (passes, …), or `NOWHERE` or `UNCLEAR`."""
    first, second, digits = arrived[0], arrived[1], arrived[2:].astype(np.int32)
    spelled = np.tensordot(1 << np.arange(len(digits)), digits, 1)
    constant = (arrived == first).all(axis=0)
    return np.where(constant, NOWHERE, np.where(~first & second, spelled, UNCLEAR)).astype(np.int32)


def spelled(elements: npt.NDArray[Any], one: int, *zeros: int) -> Numbers:
    """The `numbers` of elements (passes, …): ``one`` is bit 1, ``zeros`` are bit 0, others are `UNCLEAR`."""
    ones = elements == one
    known = (ones | np.isin(elements, np.array(zeros, elements.dtype))).all(axis=0)
    return np.where(known, numbers(ones), UNCLEAR).astype(np.int32)


def holders(layout: Layout) -> int:
    """The number of slots of a layout: elements, copies included, in the registers of all lanes."""
    return layout.lanes * layout.registers * layout.slots


def fill(layout: Layout, element_type: str, ones: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Pack elements 1 or 0 into registers: bool (…, holders) to words (…, lanes, registers)."""
    slots = ones.reshape(*ones.shape[:-1], layout.lanes, layout.registers, layout.slots)
    elements = slots.astype(layout.dtype, order="C") * layout.dtype.type(ONE[element_type])
    return join(elements, layout.bits, layout.register_bits)[..., 0]


def read(layout: Layout, registers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Unpack the elements of registers: words (…, lanes, registers) to words (…, holders)."""
    return split(np.ascontiguousarray(registers), layout.bits).reshape(*registers.shape[:-2], -1)
