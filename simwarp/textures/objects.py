"""Textures and surfaces as kernels access them: texels in memory, and the modes of reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.devices.texture import Sampler
from reference.values import not_an_array, shortened
from simwarp.textures.positions import Axis

Array: TypeAlias = npt.NDArray[Any]


@not_an_array("pass the array that it was made of")
@shortened
@dataclass(frozen=True)
class Texels:
    """The location of the texels of an image, or of linear memory."""

    name: str  # name in fault messages
    geometry: str  # "linear", or as in PTX "1d", "2d", "3d", "a1d", "a2d", "cube" or "acube"
    address: int  # address of the first texel in global memory
    dtype: np.dtype[Any]  # type of one channel
    channels: int  # channels of a texel: 1, 2 or 4
    width: int  # texels per row
    height: int  # rows per slice
    depth: int  # slices; layers and cube faces count as slices
    pitch: int  # bytes from one row to the next

    @property
    def unit(self) -> int:
        """The bytes of one texel, with all its channels."""
        return self.channels * self.dtype.itemsize

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of texels along x, y and z."""
        return self.width, self.height, self.depth

    def addresses(self, x: Array, y: Array, z: Array, unit: int = 0) -> Array:
        """The addresses of texels; with ``unit=1``, of the bytes at x."""
        return (self.address + (z * self.height + y) * self.pitch + x * (unit or self.unit)).astype(np.uint64)


@shortened
@dataclass(frozen=True)
class Texture:
    """Texels and a sampler: address, filter and read modes."""

    texels: Texels
    sampler: Sampler

    @cached_property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """The dimensions x, y and z; layers and faces do not repeat."""
        texels, sampler = self.texels, self.sampler
        flat = texels.geometry not in ("1d", "2d", "3d")
        modes = [*sampler.address_modes]
        normalized = sampler.normalized or "cube" in texels.geometry
        modes[2] = "clamp" if flat or texels.geometry == "2d" else modes[2]
        x, y, z = (Axis(size, mode, normalized) for size, mode in zip(texels.sizes, modes, strict=True))
        return x, y, z

    @property
    def is_float(self) -> bool:
        """Whether a read of the texture returns floats."""
        return self.texels.dtype.kind == "f" or self.sampler.read_mode == "normalized"


@shortened
@dataclass(frozen=True)
class Surface:
    """Texels that kernels read and write at byte offsets."""

    texels: Texels


Objects: TypeAlias = Mapping[int, Texture | Surface]
"""Handle → what it stands for."""
