"""The bits of a register, as the number that its type says they are.

>>> decoded(0x3F800000, "f32"), decoded(0xFFFFFFFF, "s32"), decoded(0x3C00_C000, "f16x2")
(1.0, -1, (-2.0, 1.0))
>>> spelled(0x3F800000, "f32"), spelled(7, "u16"), spelled(1, "pred")
('0x3f800000 (1.0)', '0x0007 (7)', 'true')
>>> spelled(0x3F800000, "b32")
'0x3f800000 (1065353216; as f32 1.0)'
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from simwarp.ptx.rows import DTYPES

Number: TypeAlias = "bool | int | float | tuple[float, float]"

_PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}


def decoded(bits: int, kind: str) -> Number:
    """The number that bits are in a PTX type: of a packed pair both, the low one first."""
    if kind == "pred":
        return bool(bits)
    if kind in _PAIRS:
        return _float(bits & 0xFFFF, _PAIRS[kind]), _float(bits >> 16, _PAIRS[kind])
    if kind == "bf16" or DTYPES[kind].kind == "f":
        return _float(bits, kind)
    width = DTYPES[kind].itemsize * 8
    return bits - (1 << width) if DTYPES[kind].kind == "i" and bits >> (width - 1) else bits


def spelled(bits: int, kind: str) -> str:
    """The bits in hex, and the number; of a word without a type also what it is as a float."""
    if kind == "pred":
        return "true" if bits else "false"
    number = _short(bits, kind)
    if kind in ("b32", "b64"):
        number += f"; as f{kind[1:]} {_short(bits, f'f{kind[1:]}')}"
    return f"{in_hex(bits, kind)} ({number})"


def short(bits: int, kind: str) -> str:
    """The number alone; or hex, for words without a type, and for large ones, which are addresses.

    Examples
    --------
    >>> short(3, "s32"), short(3, "b32"), short(1 << 46, "u64"), short(0x4000000000000000, "f64")
    ('3', '0x00000003', '0x0000400000000000', '2.0')
    """
    number = decoded(bits, kind)
    large = isinstance(number, int) and abs(number) >= 1 << 32
    return in_hex(bits, kind) if large or kind in ("b8", "b16", "b32", "b64") else _short(bits, kind)


def in_hex(bits: int, kind: str) -> str:
    """The bits in hex, with the digits of the type's width.

    Examples
    --------
    >>> in_hex(10, "u16")
    '0x000a'
    """
    return f"0x{bits:0{2 * DTYPES[kind].itemsize}x}"


def _short(bits: int, kind: str) -> str:
    if kind in _PAIRS:
        return f"{_short(bits & 0xFFFF, _PAIRS[kind])}, {_short(bits >> 16, _PAIRS[kind])}"
    if DTYPES[kind].kind == "f":  # the fewest digits that tell it from its neighbours
        return str(_scalar(bits, DTYPES[kind]))
    return str(decoded(bits, kind)).lower()


def _float(bits: int, kind: str) -> float:
    if kind == "bf16":
        return float(_scalar(bits << 16, np.dtype(np.float32)))
    return float(_scalar(bits, DTYPES[kind]))


def _scalar(bits: int, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype.newbyteorder("<"))[0]
