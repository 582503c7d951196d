"""Images and texture samplers, with the checks that CUDA makes.

An image is what CUDA calls an array (``cudaArray``): texels in an order of the chip's own. Kernels reach them
through textures and surfaces alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.devices.launch import Extent, shape_of
from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types.arguments import dtype_of

ADDRESS_MODES = ("wrap", "clamp", "mirror", "border")
"""In the order of ``cudaTextureAddressMode``."""
FILTER_MODES = ("point", "linear")
READ_MODES = ("element", "normalized")
FORMATS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")
"""The types of a texel's channels."""
CHANNELS = (1, 2, 4)
FACES = 6
_MOST = {1: (1 << 17,), 2: (1 << 16, 1 << 17), 3: (1 << 14,) * 3}
"""Dimensions of an image → the most texels of each, outermost first."""
_MOST_LAYERS, _MOST_SIDE = 2048, 1 << 15
_MOST_LINEAR = 1 << 28
_PITCH = 32
"""Rows of linear memory in two dimensions begin at multiples of so many bytes."""


@dataclass(frozen=True)
class Image:
    """The form of an image.

    Attributes
    ----------
    geometry : str
        As in PTX: "1d", "2d", "3d", "a1d" and "a2d" (layered), "cube", "acube" (cubes in layers).
    width, height, depth : int
        Texels of a row, rows of a slice, slices; layers and the six faces of a cube are slices. 1 for a
        dimension that it does not have.
    dtype : numpy.dtype
        Of one channel.
    channels : int
        1, 2 or 4.
    """

    geometry: str
    width: int
    height: int
    depth: int
    dtype: np.dtype[Any]
    channels: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a host array with its texels; several channels are the last dimension."""
        dimensions = {"1d": 1, "2d": 2, "3d": 3, "a1d": 2}.get(self.geometry, 3)
        sizes = (self.depth, self.width) if self.geometry == "a1d" else (self.depth, self.height, self.width)
        texels = sizes[-dimensions:]
        return texels if self.channels == 1 else (*texels, self.channels)

    @property
    def unit(self) -> int:
        """The bytes of one texel."""
        return self.channels * self.dtype.itemsize

    @property
    def has_surface(self) -> bool:
        """True if the image can have a surface; a 1D row may be too long for one."""
        return not self.geometry.endswith("1d") or self.width <= _MOST_SIDE


def image_of(
    shape: Extent, dtype: npt.DTypeLike, *, channels: int = 1, layered: bool = False, cubemap: bool = False
) -> Image:
    """The form of the image for host arrays of a shape.

    Raises
    ------
    ShapeError, DtypeError
        For what CUDA does not have.

    Examples
    --------
    >>> image_of((480, 640, 4), "uint8", channels=4)
    Image(geometry='2d', width=640, height=480, depth=1, dtype=dtype('uint8'), channels=4)
    """
    dtype, given = _format("image", dtype, channels), shape_of("image", shape)
    texels = given if channels == 1 else given[:-1]
    if channels > 1 and (not given or given[-1] != channels):
        raise ShapeError(
            f"image: shape {given} with {channels} channels\n"
            "the array's last dimension must be the number of channels"
        )
    dimensions = len(texels) - (layered and not cubemap)
    if cubemap and (len(texels) != 3 or texels[1] != texels[2] or texels[0] % FACES):
        raise ShapeError(f"image: {texels} as a cube\ngive six square faces, or six for each layer")
    if cubemap and not layered and texels[0] != FACES:
        raise ShapeError(f"image: {texels[0]} faces of one cube\ngive six, or pass layered=True")
    if not cubemap and not 1 <= dimensions <= 3 - layered:
        kinds = "(layers, x) or (layers, y, x)" if layered else "(x,), (y, x) or (z, y, x)"
        raise ShapeError(f"image: texels of shape {texels}\nexpected {kinds}")
    dimensions = 2 if cubemap else dimensions
    most = (_MOST_SIDE,) * 2 if cubemap else _MOST[dimensions]
    slices = texels[: len(texels) - dimensions]
    if min(texels) < 1 or any(n > m for n, m in zip(texels[-dimensions:], most, strict=True)):
        raise ShapeError(f"image: texels of shape {texels}\neach dimension takes 1 to {most}")
    if slices and slices[0] > _MOST_LAYERS:
        raise ShapeError(f"image: {slices[0]} layers\ngive at most {_MOST_LAYERS}")
    geometry = "cube" if cubemap else f"{dimensions}d"
    z, y, x = (*slices, *(1,) * (3 - len(slices) - dimensions), *texels[-dimensions:])
    return Image(f"a{geometry}" if layered else geometry, x, y, z, dtype, channels)


def linear_of(array: Any, channels: int) -> Image:
    """The form of a one- or two-dimensional array that a texture reads as linear memory.

    One dimension is read with integer coordinates, two as an image.
    """
    dtype, given = _format("texture", array.dtype, channels), tuple(array.shape)
    texels = given if channels == 1 else given[:-1]
    if not 1 <= len(texels) <= 2 or (channels > 1 and given[-1] != channels) or 0 in texels:
        raise ShapeError(
            f"texture: an array of shape {given} with {channels} channels\n"
            "give texels (x,) or (y, x), channels last; for other shapes make an image"
        )
    unit = channels * dtype.itemsize
    if len(texels) == 2 and texels[1] * unit % _PITCH:
        raise ShapeError(
            f"texture: rows of {texels[1] * unit} bytes\n"
            f"they must be a multiple of {_PITCH}; pad them, or make an image"
        )
    if len(texels) == 1 and texels[0] > _MOST_LINEAR:
        raise ShapeError(f"texture: {texels[0]} texels of linear memory\ngive at most {_MOST_LINEAR}")
    y, x = (1, *texels)[-2:]
    return Image("2d" if len(texels) == 2 else "linear", x, y, 1, dtype, channels)


def _format(what: str, dtype: npt.DTypeLike, channels: int) -> np.dtype[Any]:
    """Check the dtype and number of a texel's channels; return the dtype."""
    channel = dtype_of(what, dtype)
    if channel.name not in FORMATS:
        raise DtypeError(f"{what}: {channel}\nchannels are of {', '.join(FORMATS)}")
    if channels not in CHANNELS:
        raise ShapeError(f"{what}: {channels} channels\na texel has 1, 2 or 4")
    return channel


@dataclass(frozen=True)
class Sampler:
    """How a texture is read.

    Attributes
    ----------
    address_modes : (str, str, str)
        What lies beyond the texels along x, y and z: "wrap" and "mirror" (with normalised coordinates),
        "clamp" or "border".
    filter_mode : str
        "point": the texel at a place; "linear": the mean of those around it.
    read_mode : str
        "element": the values of texels; "normalized": integers of 8 or 16 bits as floats.
    normalized : bool
        Whether coordinates go from 0 to 1 instead of to the number of texels.
    border : four floats
        The colour of the border; of integer texels the bits.
    """

    address_modes: tuple[str, str, str] = ("clamp", "clamp", "clamp")
    filter_mode: str = "point"
    read_mode: str = "element"
    normalized: bool = False
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    def check(self, dtype: np.dtype[Any], geometry: str) -> None:
        """Raise an error for a sampler that CUDA refuses for texels of this type.

        Raises
        ------
        SchemeError, DtypeError
        """
        for value, known, what in (
            *((mode, ADDRESS_MODES, "address mode") for mode in self.address_modes),
            (self.filter_mode, FILTER_MODES, "filter mode"),
            (self.read_mode, READ_MODES, "read mode"),
        ):
            if value not in known:
                raise SchemeError(f"texture: {what} {value!r}\nchoose among {', '.join(known)}")
        if self.read_mode == "normalized" and (dtype.kind == "f" or dtype.itemsize > 2):
            raise DtypeError(
                f"texture: {dtype} read as normalised floats\n"
                "only integers of 8 or 16 bits are; read elements"
            )
        if self.filter_mode == "linear" and dtype.kind != "f" and self.read_mode != "normalized":
            raise DtypeError(
                f"texture: a linear filter of {dtype} elements\nread_mode='normalized' makes floats of them"
            )
        if self.filter_mode == "linear" and geometry == "linear":
            raise SchemeError(
                "texture: a linear filter of linear memory in one dimension\n"
                "make an image, or filter_mode='point'"
            )


def sampler_of(
    address_mode: str | Sequence[str],
    filter_mode: str,
    read_mode: str,
    normalized: bool,
    border: float | Sequence[float],
) -> Sampler:
    """A sampler from the user's arguments: one address mode for all dimensions, or one each for x, y and z.

    >>> sampler_of(("wrap", "clamp"), "linear", "element", True, 0.5).address_modes
    ('wrap', 'clamp', 'clamp')
    """
    modes = [address_mode] * 3 if isinstance(address_mode, str) else [*address_mode]
    colour = [float(border)] * 4 if isinstance(border, int | float) else [float(part) for part in border]
    if not 1 <= len(modes) <= 3 or not 1 <= len(colour) <= 4:
        raise SchemeError(
            f"texture: {len(modes)} address modes and a border of {len(colour)} channels\n"
            "give modes of x, y and z, and up to four channels"
        )
    x, y, z = [*modes, *["clamp"] * (3 - len(modes))]
    r, g, b, a = [*colour, *[0.0] * (4 - len(colour))]
    return Sampler((x, y, z), filter_mode, read_mode, bool(normalized), (r, g, b, a))
