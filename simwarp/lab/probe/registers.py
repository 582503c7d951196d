"""Registers whose elements are ones and zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.fragments import Layout

ONE = {
    **dict.fromkeys(("b1", "s4", "u4", "s8", "u8", "s32"), 1),
    "e4m3": 0x38,
    "e5m2": 0x3C,
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "tf32": 0x3F800000,
    "f32": 0x3F800000,
    "f64": 0x3FF0000000000000,
}
"""The bits of 1 in each type."""


def holders(layout: Layout) -> int:
    """How many elements, copies included, the registers of all lanes hold.

    Examples
    --------
    >>> holders(Layout.of("slot 2:c1  lane 4:c2 8:r1", bits=16))
    64
    """
    return layout.lanes * layout.registers * layout.slots


def fill(layout: Layout, element_type: str, ones: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Registers whose elements are 1 or 0: (…, holders) to words (…, lanes, registers).

    Examples
    --------
    >>> layout = Layout.of("slot 2:c1  lane 4:c2 8:r1", bits=16)
    >>> hex(fill(layout, "f16", np.arange(64) == 3)[1, 0])
    '0x3c000000'
    """
    word = np.dtype(f"u{layout.register_bits // 8}").type
    slots = ones.reshape(*ones.shape[:-1], layout.lanes, layout.registers, layout.slots).astype(word)
    shifts = np.arange(layout.slots, dtype=word) * word(layout.bits)
    return np.bitwise_or.reduce(slots * word(ONE[element_type]) << shifts, axis=-1)


def read(layout: Layout, registers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements in the slots of registers: words (…, lanes, registers) to words (…, holders).

    Examples
    --------
    >>> layout = Layout.of("slot 2:c1  lane 4:c2 8:r1", bits=16)
    >>> read(layout, fill(layout, "f16", np.arange(64) == 3)).tolist()[:5]
    [0, 0, 0, 15360, 0]
    """
    word = registers.dtype.type
    shifts = np.arange(layout.slots, dtype=word) * word(layout.bits)
    mask = word(2**layout.bits - 1)
    return (registers[..., None] >> shifts & mask).reshape(*registers.shape[:-2], -1)
