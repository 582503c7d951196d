"""Tensor maps of programs that call ``cuTensorMapEncodeTiled``."""

from __future__ import annotations

import struct
from typing import cast

from reference.devices.tensor_map import DATA_TYPES, FILLS, INTERLEAVES, PROMOTIONS, SWIZZLES, TensorMap
from reference.errors import DtypeError, SchemeError
from simwarp.tensormaps import encode

_TILED = struct.Struct("=10Q16I")
"""``struct tiled`` of the runtime: address, shape, strides; type, rank, box, steps, four modes."""


def encode_tiled(given: bytes) -> bytes:
    """The 128 bytes of a tensor map, after the driver's checks: SchemeError, ShapeError or DtypeError."""
    address, *rest = cast("tuple[int, ...]", _TILED.unpack(given))
    shape, strides, (kind, rank), box, steps = rest[:5], rest[5:9], rest[9:11], rest[11:16], rest[16:21]
    interleave, swizzle, promotion, fill = rest[21:]
    if kind >= len(DATA_TYPES):
        raise DtypeError(
            f"tensor map: data type {kind}\nit needs a newer chip\nuse one of {', '.join(DATA_TYPES)}"
        )
    try:
        modes = INTERLEAVES[interleave], SWIZZLES[swizzle], PROMOTIONS[promotion], FILLS[fill]
    except IndexError:
        raise SchemeError(
            f"tensor map: modes {interleave}, {swizzle}, {promotion}, {fill}\n"
            "interleave, swizzle, promotion and fill have 3, 4, 4 and 2 modes\nuse one of those"
        ) from None
    tensor = TensorMap(
        list(DATA_TYPES)[kind],
        address,
        tuple(shape[:rank]),
        tuple(strides[: rank - 1]),
        tuple(box[:rank]),
        tuple(steps[:rank]),
        *modes,
    )
    tensor.check()
    return encode(tensor)
