"""The 128 bytes of a tensor map: the simulator's own layout, which is not the hardware's.

Fields are little-endian and in the order of `_LAYOUT`: a magic number and a version, 8 bytes of zeros, the
address, extents less one (so that 2^32 fits 32 bits), strides, box, steps, modes, the corners and sizes of
im2col; the last four bytes are the CRC-32 of the others, so that a store into a map is noticed. The zeros
are where CUTLASS clears bit 21 of the second word, against an error of drivers up to CUDA 13.1.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import Any
from zlib import crc32

from reference.devices.tensor_map import (
    DATA_TYPES,
    FILLS,
    INTERLEAVES,
    PROMOTIONS,
    SWIZZLES,
    Im2col,
    TensorMap,
)
from reference.errors import FormatError

SIZE = 128
"""Bytes of a tensor map."""
ALIGNMENT = 64
"""Tensor maps start at multiples of this."""
_MAGIC, _VERSION = b"simwMAP", 2
_LAYOUT = Struct("<7sB8xQ5I4Q5I5B7B3h3hHHI")
_CHECKED = SIZE - 4
_TYPES = tuple(DATA_TYPES)
_WORD = (1 << 32) - 1
_ELEMENT_TYPES = (
    *("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float32_ftz"),
    *("float64", "bfloat16", "tfloat32", "tfloat32_ftz"),
)
"""The data types in the order of PTX (ISA 9.0, section 9.7.9.28), which is not the driver's."""


def encode(tensor: TensorMap) -> bytes:
    """The 128 bytes of a tensor map, without a check of its fields.

    >>> tensor = TensorMap("float32", 0x1000, (64, 32), (256,), (32, 8), (1, 1), swizzle=128)
    >>> len(encode(tensor)), decode(encode(tensor)) == tensor
    (128, True)
    """
    im2col = tensor.im2col or Im2col((), (), 0, 0)
    fields = (
        *(_MAGIC, _VERSION, tensor.address),
        *((extent - 1) & _WORD for extent in _padded(tensor.shape, 5, 1)),
        *_padded(tensor.strides, 4),
        *_padded(tensor.box, 5),
        *(min(step, 255) for step in _padded(tensor.element_strides, 5, 1)),
        *(tensor.rank, _TYPES.index(tensor.data_type), INTERLEAVES.index(tensor.interleave)),
        *(SWIZZLES.index(tensor.swizzle), PROMOTIONS.index(tensor.l2_promotion)),
        *(FILLS.index(tensor.fill), tensor.im2col is not None),
        *(*_padded(im2col.lower, 3), *_padded(im2col.upper, 3), im2col.channels, im2col.pixels),
    )
    data = _LAYOUT.pack(*fields, 0)
    return data[:_CHECKED] + crc32(data[:_CHECKED]).to_bytes(4, "little")


@lru_cache(maxsize=256)
def decode(data: bytes) -> TensorMap:
    """The map in 128 bytes, not checked; FormatError for bytes that this simulator did not encode."""
    if len(data) != SIZE or not data.startswith(_MAGIC):
        raise FormatError(
            "bytes that are not a tensor map of this simulator\n"
            f"they begin with {data[:8].hex(' ')}\n"
            "make the map with Device.tensor_map of the device that runs the kernel"
        )
    if crc32(data[:_CHECKED]) != int.from_bytes(data[_CHECKED:], "little") or data[7] != _VERSION:
        raise FormatError(
            "a tensor map that was overwritten\nits bytes are opaque: their check sum does not hold\n"
            "change a map with tensormap.replace, or copy all 128 bytes"
        )
    address, *rest = _numbers(data)
    rank, kind, interleave, swizzle, promotion, fill, is_im2col = rest[19:26]
    corners, im2col = max(rank - 2, 0), None
    if is_im2col:
        im2col = Im2col(tuple(rest[26 : 26 + corners]), tuple(rest[29 : 29 + corners]), rest[32], rest[33])
    return TensorMap(
        _TYPES[kind],
        address,
        tuple(extent + 1 for extent in rest[:rank]),
        tuple(rest[5 : 5 + max(rank - 1, 0)]),
        () if is_im2col else tuple(rest[9 : 9 + rank]),
        tuple(rest[14 : 14 + rank]),
        INTERLEAVES[interleave],
        SWIZZLES[swizzle],
        PROMOTIONS[promotion],
        FILLS[fill],
        im2col,
    )


def _numbers(data: bytes) -> list[int]:
    """The fields of a map, from the address on."""
    return list(_LAYOUT.unpack(data))[2:]


def replaced(tensor: TensorMap, field: str, value: int, ordinal: int = 0) -> TensorMap:
    """The tensor map with one field replaced, as ``tensormap.replace`` does, without a check.

    FormatError for a value or an ordinal that the field does not have.
    """
    modes: dict[str, tuple[str, tuple[Any, ...]]] = {
        "elemtype": ("data_type", _ELEMENT_TYPES),
        "interleave_layout": ("interleave", INTERLEAVES),
        "swizzle_mode": ("swizzle", SWIZZLES),
        "fill_mode": ("fill", FILLS),
    }
    if field == "global_address":
        return replace(tensor, address=value)
    if field in modes:
        name, choices = modes[field]
        _need(field, value, len(choices) - 1)
        return replace(tensor, **{name: choices[value]})
    if field == "rank":
        _need(field, value, 4)
        return _of_rank(tensor, value + 1)
    name = {
        "box_dim": "box",
        "global_dim": "shape",
        "global_stride": "strides",
        "element_stride": "element_strides",
    }[field]
    old: tuple[int, ...] = getattr(tensor, name)
    _need(f"ordinal of {field}", ordinal, len(old) - 1)
    new = value or (1 << 32 if field == "global_dim" else 0)
    return replace(tensor, **{name: (*old[:ordinal], new, *old[ordinal + 1 :])})


def _need(what: str, value: int, most: int) -> None:
    """Raise FormatError unless a value for a field of a tensor map is from 0 to ``most``."""
    if not 0 <= value <= most:
        raise FormatError(
            f"a tensor map's {what} replaced by {value}\nexpected 0 to {most}\ngive a value of that range"
        )


def _of_rank(tensor: TensorMap, rank: int) -> TensorMap:
    """The map with more or fewer outer dimensions; new ones have one element."""
    return replace(
        tensor,
        shape=_padded(tensor.shape[:rank], rank, 1),
        strides=_padded(tensor.strides[: rank - 1], rank - 1),
        box=_padded(tensor.box[:rank], rank, 1),
        element_strides=_padded(tensor.element_strides[:rank], rank, 1),
    )


def _padded(values: tuple[int, ...], count: int, value: int = 0) -> tuple[int, ...]:
    """A tuple extended to ``count`` elements, each new one ``value``."""
    return (*values, *(value,) * (count - len(values)))
