"""Images on a GPU, and the textures and surfaces by which kernels reach them, made by the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda.capture import refuse_in_capture
from gpu.cuda.driver import bindings, value_of
from gpu.finalizers import when_gone
from reference.devices.launch import uploadable
from reference.devices.texture import ADDRESS_MODES, FILTER_MODES, Image, Sampler, linear_of
from reference.errors import DtypeError, ShapeError

_FORMATS = {
    "uint8": "UNSIGNED_INT8",
    "int8": "SIGNED_INT8",
    "uint16": "UNSIGNED_INT16",
    "int16": "SIGNED_INT16",
    "uint32": "UNSIGNED_INT32",
    "int32": "SIGNED_INT32",
    "float16": "HALF",
    "float32": "FLOAT",
}
"""NumPy dtype → the end of the driver's ``CU_AD_FORMAT_…``."""
_LAYERED, _SURFACE, _CUBEMAP, _GATHER = 1, 2, 4, 8
_READ_AS_INTEGER, _NORMALIZED = 1, 2
"""Flags of ``CUDA_ARRAY3D_DESCRIPTOR`` and ``CUDA_TEXTURE_DESC``."""


class CudaImage:
    """An image on the GPU; see `gpu.device.Device.allocate_image`.

    ``shape`` and ``dtype`` are of a host array with the same texels; ``array`` is the driver's CUarray.
    """

    def __init__(self, device: Any, form: Image, name: str) -> None:
        self.device, self.form, self.name = device, form, name
        self.shape, self.dtype = form.shape, form.dtype
        descriptor = bindings.CUDA_ARRAY3D_DESCRIPTOR()
        sliced = form.geometry not in ("1d", "2d")
        descriptor.Width = form.width
        descriptor.Height = 0 if form.geometry.endswith("1d") else form.height
        descriptor.Depth = form.depth if sliced else 0
        descriptor.Format, descriptor.NumChannels = _format(form.dtype), form.channels
        descriptor.Flags = _flags(form)
        self.array = value_of(bindings.cuArray3DCreate(descriptor), _refused, f"image {name}")
        when_gone(self, bindings.cuArrayDestroy, self.array)

    def upload(self, host: Any) -> None:
        """Copy a host array of the same shape and dtype to the image."""
        host = uploadable(host, "the image")
        if host.shape != self.shape or host.dtype != self.dtype:
            raise ShapeError(
                f"upload to {self.name}: {host.dtype} {host.shape} into {self.dtype} {self.shape}\n"
                "convert or reshape the host array first"
            )
        refuse_in_capture("an upload")
        self._copy(np.ascontiguousarray(host), "dst", "src")

    def download(self) -> npt.NDArray[Any]:
        """A copy on the host, made after all work that writes the image."""
        refuse_in_capture("a download")
        self.device.synchronize()
        host = np.empty(self.shape, self.dtype)
        self._copy(host, "src", "dst")
        return host

    def _copy(self, host: npt.NDArray[Any], image: str, memory: str) -> None:
        """Copy all texels: between ``src`` and ``dst``, one of which is the image."""
        copy, form, kinds = bindings.CUDA_MEMCPY3D(), self.form, bindings.CUmemorytype
        setattr(copy, f"{image}MemoryType", kinds.CU_MEMORYTYPE_ARRAY)
        setattr(copy, f"{image}Array", self.array)
        setattr(copy, f"{memory}MemoryType", kinds.CU_MEMORYTYPE_HOST)
        setattr(copy, f"{memory}Host", host.ctypes.data)
        setattr(copy, f"{memory}Pitch", form.width * form.unit)
        setattr(copy, f"{memory}Height", form.height)
        copy.WidthInBytes, copy.Height, copy.Depth = form.width * form.unit, form.height, form.depth
        value_of(bindings.cuMemcpy3D(copy), _refused, f"copy of {self.name}")


class CudaHandle:
    """A texture or surface on the GPU, an argument for kernels; it keeps its image alive."""

    def __init__(self, handle: Any, source: Any, destroy: Callable[[Any], Any]) -> None:
        self.handle, self.source = int(handle), source
        when_gone(self, destroy, handle)

    @property
    def pointer(self) -> int:
        """The handle: kernels take it as they take addresses."""
        return self.handle

    def __index__(self) -> int:
        return self.handle


class CudaSurface(CudaHandle):
    """A surface, which stands for its image's texels: ``shape``, ``dtype`` and `download` are the image's."""

    def __init__(self, handle: Any, image: CudaImage, destroy: Callable[[Any], Any]) -> None:
        super().__init__(handle, image, destroy)
        self.shape, self.dtype = image.shape, image.dtype

    def download(self) -> npt.NDArray[Any]:
        """Copy the image to the host."""
        return self.source.download()


def texture_of(source: Any, sampler: Sampler, channels: int) -> CudaHandle:
    """A texture of an image, or of an array as linear memory."""
    kinds, resource = bindings.CUresourcetype, bindings.CUDA_RESOURCE_DESC()
    if isinstance(source, CudaImage):
        form, resource.resType = source.form, kinds.CU_RESOURCE_TYPE_ARRAY
        resource.res.array.hArray = source.array
    elif hasattr(source, "pointer") and hasattr(source, "dtype"):
        form = linear_of(source, channels)
        _describe_memory(resource, source.pointer, form)
    else:
        raise DtypeError(
            f"texture: a {type(source).__name__}\n"
            "give an image (upload_image, allocate_image) or an array of this device"
        )
    sampler.check(form.dtype, form.geometry)
    described = bindings.CUDA_TEXTURE_DESC()
    described.addressMode = [
        bindings.CUaddress_mode(ADDRESS_MODES.index(mode)) for mode in sampler.address_modes
    ]
    described.filterMode = bindings.CUfilter_mode(FILTER_MODES.index(sampler.filter_mode))
    keeps = form.dtype.kind != "f" and sampler.read_mode == "element"
    described.flags = _READ_AS_INTEGER * keeps | _NORMALIZED * sampler.normalized
    described.borderColor = list(sampler.border)
    handle = value_of(bindings.cuTexObjectCreate(resource, described, None), _refused, "texture")
    return CudaHandle(handle, source, bindings.cuTexObjectDestroy)


def _describe_memory(resource: Any, pointer: int, form: Image) -> None:
    """Describe linear memory, 1D or 2D, as the driver's texture resource."""
    flat = form.geometry == "linear"
    kinds = bindings.CUresourcetype
    resource.resType = kinds.CU_RESOURCE_TYPE_LINEAR if flat else kinds.CU_RESOURCE_TYPE_PITCH2D
    memory = resource.res.linear if flat else resource.res.pitch2D
    memory.devPtr, memory.format = bindings.CUdeviceptr(pointer), _format(form.dtype)
    memory.numChannels = form.channels
    if flat:
        memory.sizeInBytes = form.width * form.unit
    else:
        memory.width, memory.height, memory.pitchInBytes = form.width, form.height, form.width * form.unit


def surface_of(image: Any) -> CudaSurface:
    """Create a surface object for an image."""
    if not isinstance(image, CudaImage):
        raise DtypeError(
            f"surface: a {type(image).__name__}\ngive an image: upload_image or allocate_image makes one"
        )
    resource = bindings.CUDA_RESOURCE_DESC()
    resource.resType = bindings.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    resource.res.array.hArray = image.array
    handle = value_of(bindings.cuSurfObjectCreate(resource), _refused, "surface")
    return CudaSurface(handle, image, bindings.cuSurfObjectDestroy)


def _format(dtype: np.dtype[Any]) -> Any:
    """The driver's array format for the dtype of a channel."""
    return getattr(bindings.CUarray_format, f"CU_AD_FORMAT_{_FORMATS[dtype.name]}")


def _flags(form: Image) -> int:
    """The driver's flags of an image: all that its geometry can be used for."""
    cube, layered = "cube" in form.geometry, form.geometry.startswith("a")
    gathers = form.geometry == "2d"
    return _SURFACE * form.has_surface | _CUBEMAP * cube | _LAYERED * layered | _GATHER * gathers


def _refused(status: Any, what: str) -> ShapeError:
    """The error for an image, or what is made of it, that the driver refuses."""
    return ShapeError(f"{what}: the driver refuses it, {status.name}\nmake it smaller, or free other memory")
