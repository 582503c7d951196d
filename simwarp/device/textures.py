"""Images of a simulated device, and the textures and surfaces through which kernels access them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reference.devices.texture import Image, Sampler, linear_of
from reference.errors import DtypeError, ShapeError
from simwarp.device.array import DeviceArray, Owner, check_room
from simwarp.elements import Shape
from simwarp.textures import Surface, Texels, Texture

if TYPE_CHECKING:
    from simwarp.device.state import Device


class DeviceImage:
    """An image in a simulated device's memory: CUDA's array, with texels that have no address.

    It lives as long as this object, and the textures and surfaces of it. ``form`` has its geometry, sizes,
    dtype and channels; ``shape`` and ``dtype`` are those of a host array with the same texels, with several
    channels as the last dimension. Faults call it by its ``name``.
    """

    def __init__(self, device: Device, form: Image, name: str) -> None:
        self.device, self.form, self.name = device, form, name
        self.shape, self.dtype = form.shape, form.dtype
        check_room(name, self.shape, self.dtype)
        allocation = device.memory.allocate(int(np.prod(self.shape)) * self.dtype.itemsize, name)
        allocation.find_shape = partial(Shape, self.dtype.itemsize, self.shape)
        self._array = DeviceArray(device, Owner(device.memory, allocation), self.shape, self.dtype)

    def upload(self, host: Any) -> None:
        """Copy a host array of the same shape and dtype to the image."""
        self._array.upload(host)

    def download(self) -> npt.NDArray[Any]:
        """Copy the image to the host, after all work that writes it."""
        return self._array.download()

    def unwritten(self) -> npt.NDArray[np.bool_]:
        """A mask of the elements with an uninitialised byte; see `DeviceArray.unwritten`."""
        return self._array.unwritten()

    @property
    def texels(self) -> Texels:
        """The location of its texels, for a texture or surface."""
        return _texels(self._array, self.form)


class Handle:
    """A texture or surface of a device; kernels receive its 64-bit number, ``handle``.

    The number is invalid once this object is gone.
    """

    def __init__(self, handle: int, found: Texture | Surface, source: Any = None) -> None:
        self.handle, self.found, self.source = handle, found, source

    def __index__(self) -> int:
        return self.handle

    def __repr__(self) -> str:
        return f"<{type(self.found).__name__} {self.handle:#x} of {self.found.texels.name}>"


class SurfaceHandle(Handle):
    """The handle of a surface, with the shape and dtype of its image."""

    def __init__(self, handle: int, found: Surface, source: DeviceImage) -> None:
        super().__init__(handle, found, source)
        self.shape, self.dtype = source.shape, source.dtype

    @property
    def pointer(self) -> int:
        """The handle's number; host code may treat the surface as an array that a kernel writes."""
        return self.handle

    def download(self) -> npt.NDArray[Any]:
        """Copy the image to the host."""
        return self.source.download()

    def unwritten(self) -> npt.NDArray[np.bool_]:
        """A mask of the elements with an uninitialised byte; see `DeviceArray.unwritten`."""
        return self.source.unwritten()


class Handles(Mapping[int, Texture | Surface]):
    """The textures and surfaces of a device, by handle."""

    def __init__(self) -> None:
        self._handles: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
        self._numbers = itertools.count(1)

    def add(self, found: Texture | Surface, source: Any = None) -> Handle:
        """Register a texture or surface under a new handle, which keeps its image or array alive."""
        return self._known(Handle(next(self._numbers), found, source))

    def surface(self, image: DeviceImage) -> SurfaceHandle:
        """A surface handle of an image, for a kernel's surface instructions."""
        handle = SurfaceHandle(next(self._numbers), surface_of(image), image)
        self._known(handle)
        return handle

    def _known(self, handle: Handle) -> Handle:
        self._handles[handle.handle] = handle
        return handle

    def __getitem__(self, number: int) -> Texture | Surface:
        return self._handles[number].found

    def __iter__(self) -> Iterator[int]:
        return iter(self._handles)

    def __len__(self) -> int:
        return len(self._handles)


def texture_of(source: Any, sampler: Sampler, channels: int) -> Texture:
    """A texture of an image, or of linear memory."""
    if isinstance(source, DeviceImage):
        texels = source.texels
    elif isinstance(source, DeviceArray):
        texels = _texels(source, linear_of(source, channels))
    else:
        raise DtypeError(
            f"texture: a {type(source).__name__}\n"
            "give an image (upload_image, allocate_image) or an array of this device"
        )
    sampler.check(texels.dtype, texels.geometry)
    return Texture(texels, sampler)


def surface_of(source: Any) -> Surface:
    """The `Surface` of an image; DtypeError or ShapeError if it cannot have one."""
    if not isinstance(source, DeviceImage):
        raise DtypeError(
            f"surface: a {type(source).__name__}\ngive an image: upload_image or allocate_image makes one"
        )
    if not source.form.has_surface:
        raise ShapeError(
            f"surface of {source.name}: {source.form.width} texels in one row\n"
            "take an image of two dimensions"
        )
    return Surface(source.texels)


def own(device: Device, source: Any, what: str) -> None:
    """Raise ShapeError for an image or array that belongs to another device."""
    if isinstance(source, DeviceImage | DeviceArray) and source.device is not device:
        raise ShapeError(f"{what} of {source.name}, which is on another device\nmake it on that device")


def _texels(array: DeviceArray, form: Image) -> Texels:
    """The texels of an array with the form of an image."""
    return Texels(
        array.name,
        form.geometry,
        array.pointer,
        form.dtype,
        form.channels,
        form.width,
        form.height,
        form.depth,
        form.width * form.unit,
    )
