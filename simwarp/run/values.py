"""Values that become arguments of `simwarp.run.run`: arrays of the host, outputs, textures and surfaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from reference.devices.launch import host_array, shape_of
from reference.errors import DtypeError
from reference.types.arguments import dtype_of
from reference.values import not_an_array, shortened


@not_an_array("pass numpy.zeros for content, or take outputs[name] of the result")
@shortened
@dataclass(frozen=True)
class Out:
    """An output array: reading an element before the kernel has written it is a fault.

    `Result.unwritten` lists the elements that the kernel did not write.

    Parameters
    ----------
    dtype : dtype
    shape : int or tuple of int
    name : str
        Its name in outputs and faults.

    Raises
    ------
    DtypeError, ShapeError
        For an invalid dtype or shape.

    Examples
    --------
    >>> Out("float32", 1024)
    Out(dtype=dtype('float32'), shape=(1024,), name='')
    """

    dtype: Any
    shape: Any
    name: str = ""

    def __post_init__(self) -> None:
        name = self.name or "Out"
        dtype = dtype_of(name, self.dtype)
        _check_elements(name, dtype)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape_of(name, self.shape))


@not_an_array("pass the array that it is made of")
@shortened
@dataclass(frozen=True)
class Texture:
    """A host array that a kernel reads as a texture, through a parameter ``cudaTextureObject_t``.

    Parameters
    ----------
    array : array
        The texels; see `gpu.device.Device.allocate_image`.
    address_mode, filter_mode, read_mode, normalized, border
        See `gpu.device.Device.texture`.
    channels, layered, cubemap
        See `gpu.device.Device.allocate_image`.
    linear : bool
        Whether it is linear memory instead of an image, for ``tex1Dfetch``.

    Examples
    --------
    >>> import numpy as np
    >>> from simwarp.run import run
    >>> source = '''
    ... __global__ void sample(cudaTextureObject_t t, float* out) {
    ...     out[threadIdx.x] = tex1D<float>(t, threadIdx.x / 2.0f);
    ... }'''
    >>> squares = Texture(np.arange(8, dtype=np.float32) ** 2, filter_mode="linear")
    >>> run(source=source, grid=1, block=8, args=[squares, Out("float32", 8)]).outputs[1].tolist()
    [0.0, 0.0, 0.5, 1.0, 2.5, 4.0, 6.5, 9.0]
    """

    array: Any
    address_mode: str | Sequence[str] = "clamp"
    filter_mode: str = "point"
    read_mode: str = "element"
    normalized: bool = False
    border: float | Sequence[float] = 0.0
    channels: int = 1
    layered: bool = False
    cubemap: bool = False
    linear: bool = False

    def on(self, device: Any, name: str) -> Any:
        """Upload the texture's array to a device, and make a texture handle for it."""
        host = on_host(self.array, name)
        options = {
            "address_mode": self.address_mode,
            "filter_mode": self.filter_mode,
            "read_mode": self.read_mode,
            "normalized": self.normalized,
            "border": self.border,
        }
        if self.linear:
            return device.texture(device.upload(host, name), channels=self.channels, **options)
        form = {"channels": self.channels, "layered": self.layered, "cubemap": self.cubemap}
        return device.texture(device.upload_image(host, name, **form), **options)


@not_an_array("pass the array that it is made of")
@shortened
@dataclass(frozen=True)
class Surface:
    """A host array or `Out` that a kernel accesses as a surface; it is one of the outputs.

    Parameters
    ----------
    array : array or Out
    channels, layered, cubemap
        See `gpu.device.Device.allocate_image`.

    Examples
    --------
    >>> Surface(Out("uint8", (16, 16, 4)), channels=4).channels
    4
    """

    array: Any
    channels: int = 1
    layered: bool = False
    cubemap: bool = False

    def on(self, device: Any, name: str) -> tuple[Any, npt.NDArray[Any] | None]:
        """The surface on a device, and its content before the launch."""
        form = {"channels": self.channels, "layered": self.layered, "cubemap": self.cubemap}
        if isinstance(self.array, Out):
            image = device.allocate_image(self.array.shape, self.array.dtype, name, **form)
            return device.surface(image), None
        before = np.array(on_host(self.array, name))
        return device.surface(device.upload_image(before, name, **form)), before


def on_host(given: Any, name: str) -> Any:
    """Convert a value with `host_array`; raise DtypeError for elements that a kernel cannot read."""
    host: Any = host_array(given, name)
    if isinstance(host, np.ndarray):
        _check_elements(name, cast("npt.NDArray[Any]", host).dtype)
    return cast("Any", host)


def _check_elements(name: str, dtype: np.dtype[Any]) -> None:
    """Raise DtypeError unless device code can read elements of a dtype."""
    if dtype.kind not in "biufcV" or dtype.hasobject or not dtype.isnative or dtype.char in "gG":
        raise DtypeError(
            f"{name} has elements of {dtype}, which a kernel cannot read\n"
            "convert it with astype to bool, integers, floats of up to 64 bits, or a structure of these"
        )
