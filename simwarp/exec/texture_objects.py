"""Texture and surface objects of a program, converted to the simulator's textures."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from reference.devices.texture import ADDRESS_MODES, FILTER_MODES, FORMATS, READ_MODES, Sampler
from reference.errors import DtypeError, ShapeError
from simwarp.device.device import Device
from simwarp.textures import Surface, Texels, Texture

_DESCRIBED = struct.Struct("=2Q13I4f4x")
"""``struct described`` of the runtime's textures.c."""
_GEOMETRIES = ("linear", "1d", "2d", "3d", "a1d", "a2d", "cube", "acube")
_KINDS = {0: "int", 1: "uint", 2: "float"}
"""``cudaChannelFormatKind`` → the beginning of a dtype's name."""
_PITCH = 32


def read_texture(device: Device, data: bytes) -> Texture:
    """The texture that a program describes; SimwarpError for one that CUDA refuses."""
    texels, sampler = _read(device, data)
    sampler.check(texels.dtype, texels.geometry)
    if texels.geometry == "2d" and texels.pitch % _PITCH and texels.pitch != texels.width * texels.unit:
        raise ShapeError(f"texture of rows {texels.pitch} bytes apart\nthey must be a multiple of {_PITCH}")
    return Texture(texels, sampler)


def read_surface(device: Device, data: bytes) -> Surface:
    """The `Surface` from the packed description that the program's runtime sends."""
    return Surface(_read(device, data)[0])


def _read(device: Device, data: bytes) -> tuple[Texels, Sampler]:
    """The texels and the sampler from a texture's packed description."""
    described: tuple[Any, ...] = _DESCRIBED.unpack(data)
    numbers: list[int] = [int(number) for number in described[:15]]
    address, pitch, geometry, kind, bits, channels, width, height, depth = numbers[:9]
    x, y, z, filter_mode, read_mode, normalized = numbers[9:]
    name = f"{_KINDS.get(kind, 'other')}{bits}"
    if name not in FORMATS:
        raise DtypeError(f"texture of {name} channels\ntextures here have {', '.join(FORMATS)}")
    allocation = device.memory.find(address)
    texels = Texels(
        allocation.name if allocation is not None else f"memory at {address:#x}",
        _GEOMETRIES[geometry],
        address,
        np.dtype(name),
        channels,
        width,
        height,
        depth,
        pitch,
    )
    modes = ADDRESS_MODES[x], ADDRESS_MODES[y], ADDRESS_MODES[z]
    r, g, b, a = (float(part) for part in described[15:])
    how = FILTER_MODES[filter_mode], READ_MODES[read_mode]
    return texels, Sampler(modes, *how, bool(normalized), (r, g, b, a))
