"""`CudaDevice`: an NVIDIA GPU, in the primary context that torch and CuPy share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpu.cuda import contexts
from gpu.cuda.arrays import CudaArray, HostNumber
from gpu.cuda.capture import CAPTURES, CudaGraph, capture, refuse_in_capture
from gpu.cuda.copies import CudaEvent, is_pinned, pinned
from gpu.cuda.driver import bindings as binding
from gpu.cuda.graphs import BoundChain, BoundLaunch
from gpu.cuda.kernels import CudaKernel, CudaModule
from gpu.cuda.streams import in_stream, torch_stream_of, wait_for
from gpu.cuda.tensor_map import encoded
from gpu.cuda.textures import CudaHandle, CudaImage, CudaSurface, surface_of, texture_of
from gpu.cuda.views import place_of, view_of
from gpu.device import Device, LaunchChain, LaunchPlan, Recorded, name_of
from reference.devices.launch import Extent, shape_of, uploadable
from reference.devices.tensor_map import Im2col, tensor_map_of
from reference.devices.texture import image_of, sampler_of
from reference.errors import DtypeError, MissingExtraError, NoGpuError, ShapeError
from reference.types.arguments import dtype_of
from reference.types.fields import is_integer

_MOST_SCRATCHES = 8
"""The most streams whose scratch memory a device keeps."""


class CudaDevice:
    """An NVIDIA GPU.

    Memory of freed arrays is kept for new ones of the same stream, where work runs in order: the legacy
    default stream, unless a call names another. `trim` returns that memory to the driver.

    Parameters
    ----------
    ordinal : int
        The number of the device among the visible ones.

    Attributes
    ----------
    plans : dict
        Results of host code that later calls use again; see `gpu.device.planned`.
    queue : int
        The number of its stream: 0, the default one.

    Raises
    ------
    NoGpuError
        If the device or the driver is missing.
    MissingExtraError
        If neither PyCUDA nor cuda-bindings is installed.
    """

    queue = 0
    default_of_torch: Any = None
    """The device for work in the default stream in memory of torch's, once there was some."""

    def __init__(self, ordinal: int = 0) -> None:
        if not is_integer(ordinal) or ordinal < 0:
            raise DtypeError(
                f"CudaDevice: ordinal is {name_of(ordinal)}\nit must be the number of a GPU, from 0 on\n"
                "pass CudaDevice(0), or CudaMachine() for all GPUs"
            )
        driver = contexts.driver()
        self._context = contexts.primary(ordinal)
        self._device = driver.Device(ordinal)
        self.compute_capability: tuple[int, int] = tuple(self._device.compute_capability())
        self.multiprocessors: int = self._device.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT)
        self.ordinal = ordinal
        self.plans: dict[Any, Any] = {}
        self._pool = contexts.pool(ordinal)
        self._held: dict[int, Any] = {}
        self._scratches: dict[int, tuple[int, tuple[int, Any]]] = {}
        self._flag: CudaArray | None = None
        self._checks: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """The chip's name, e.g. ``"NVIDIA H200"``."""
        return str(self._device.name())

    @property
    def uuid(self) -> str:
        """The device's UUID, for the provenance of goldens."""
        _, handle = binding.cuDeviceGet(self.ordinal)
        _, uuid = binding.cuDeviceGetUuid(handle)
        return bytes(uuid.bytes).hex()

    @property
    def driver_version(self) -> str:
        """The version of the installed driver, e.g. ``"580.159.04"``, for the provenance of goldens."""
        module = Path("/proc/driver/nvidia/version")
        match = re.search(r"\b\d+\.\d+(\.\d+)?\b", module.read_text()) if module.exists() else None
        version = contexts.driver().get_driver_version()
        return match[0] if match else f"CUDA {version // 1000}.{version % 1000 // 10}"

    @property
    def capturing(self) -> object:
        """The graph that receives the thread's launches, or None."""
        return CAPTURES.graph

    def current(self) -> AbstractContextManager[None]:
        """Make the device that of the calling thread for a ``with`` block.

        The first `CudaDevice` of a process is that of its thread without; any other, and any in another
        thread, needs it for all its work.
        """
        return contexts.current(self.ordinal)

    def allocate(
        self,
        shape: Extent,
        dtype: npt.DTypeLike,
        name: str = "",
        memory_of: Callable[[int], Any] | None = None,
    ) -> CudaArray:
        """Reserve an array; its contents are undefined until written. ``memory_of`` allocates its bytes."""
        if not isinstance(shape, tuple):  # warm calls give tuples
            shape = shape_of("allocate", shape)
        try:
            dtype = np.dtype(dtype)
        except TypeError:
            dtype = dtype_of("allocate", dtype)
        size = int(math.prod(shape)) * dtype.itemsize or 1
        memory = self.taken(self._pool.allocate if memory_of is None else memory_of, size)
        return CudaArray(self, memory, shape, dtype)

    handle = 0
    """The driver's default stream."""

    def repeat(self, known: Recorded, call: Any) -> list[CudaArray]:
        """Make a recorded call again for a `gpu.recording.Call`."""
        return self.made_again(known, call, self.taken(self._pool.allocate, known.nbytes), self)

    def made_again(self, known: Recorded, call: Any, memory: Any, there: Any) -> list[CudaArray]:
        """Make a recorded call in the stream of ``there``, with memory for its results."""
        queue, pointers = there.queue, call.pointers
        piece: tuple[int, Any] | None = None  # held until the launches are queued
        if known.room:
            piece = self._scratch(known.room, queue) if known.at_once else self._piece(known.room, queue)
            pointers += [piece[0] + offset for offset in known.offsets]
        start = int(memory)
        pointers += [start + offset for offset, _, _ in known.places]
        pointers += known.addresses
        for x in call.arrays:
            if x.__class__ is not int and x.queue != queue:
                x.hold()
        bound = known.chain.bound or self.bound(known.chain, known.chain.plans)
        bound.launch(known.pick(pointers), there.handle)  # before all that the device need not wait for
        results: list[CudaArray] = []
        for offset, shape, dtype in known.places:
            at, keep = (start + offset, results[0]) if offset else (memory, None)
            results.append(CudaArray(self, at, shape, dtype, keep))
            results[-1].queue = queue
        return results

    def _scratch(self, size: int, queue: int) -> tuple[int, Any]:
        """Memory that a call's launches write and read; those of later calls in the stream overwrite it."""
        known = self._scratches.get(queue)
        if known is None or known[0] < size:
            if len(self._scratches) >= _MOST_SCRATCHES:
                self._scratches.clear()
            known = self._scratches[queue] = size, self._piece(size, queue)
        return known[1]

    def _piece(self, size: int, queue: int) -> tuple[int, Any]:
        """The address of memory from the pool of a stream, and the memory."""
        memory = self.taken(self.pool(queue).allocate, size)
        return int(memory), memory

    def taken(self, take: Callable[[int], Any], size: int) -> Any:
        """Allocate; where memory is short, release the pools and what streams hold, and try again."""
        try:
            return take(size)
        except contexts.driver().MemoryError:
            self._context.synchronize()
            self.trim()
            return take(size)

    def trim(self) -> None:
        """Return the memory of freed arrays to the driver."""
        self._held.clear()
        self._scratches.clear()
        for pool in contexts.pools(self.ordinal).values():
            pool.free_held()

    def pool(self, queue: int) -> Any:
        """The pool of memory for the work of a stream, given by its number."""
        return contexts.pool(self.ordinal, queue)

    def hold(self, memory: Any) -> None:
        """Keep memory alive until the next synchronisation, because work in a stream uses it."""
        self._held[id(memory)] = memory

    def flag(self) -> CudaArray:
        """An array of one int32 that is 0 until a kernel writes it; the host reads it without a copy."""
        refuse_in_capture("a flag for the host")
        if self._flag is None:
            self._flag = HostNumber(self)
        return self._flag

    def upload(self, host: Any, name: str = "") -> CudaArray:
        """Copy a host array to the device: NumPy's, torch's on the CPU, any with ``__dlpack__``."""
        host = uploadable(host, name or "the array")
        array = self.allocate(host.shape, host.dtype, name)
        array.upload(host)
        return array

    def adopt(self, foreign: Any) -> CudaArray:
        """Take another library's device array (CUDA array interface or DLPack) without a copy.

        For a torch tensor, later work of the default stream begins behind the work in torch's current stream,
        which may write it.

        Raises
        ------
        ShapeError
            If it is not contiguous in C order.
        DtypeError
            If it is on another device, has elements that NumPy does not know or that are not aligned, or its
            library does not share it.
        """
        array = self.adopted(foreign)
        stream = torch_stream_of(foreign)
        if stream is not None and stream.cuda_stream:
            there = self.in_stream(stream)
            if not there.capturing:
                there.before_default()
        return array

    def adopted(self, foreign: Any) -> CudaArray:
        """Take another library's device array, as `adopt`, for work in the stream that writes it."""
        known = place_of(foreign)
        if known is not None and known[0] == self.ordinal:
            return CudaArray(self, *known[1:], keep=foreign)
        what = f"a device array ({type(foreign).__name__})"
        view, dtype = view_of(foreign)
        if view.device_id != self.ordinal:
            raise DtypeError(
                f"{what} is on CUDA device {view.device_id}\nthe call is for CUDA device {self.ordinal}\n"
                f"move it, or give device=gpu.CudaDevice({view.device_id})"
            )
        if int(view.ptr) % dtype.itemsize:
            raise DtypeError(
                f"{what} begins at address {int(view.ptr):#x}\n"
                f"kernels load {dtype} from multiples of {dtype.itemsize} bytes\ncopy it to memory of its own"
            )
        shape = tuple(int(n) for n in view.shape)
        if view.strides is not None:
            dense = np.cumprod([1, *shape[:0:-1]])[::-1]
            if 0 not in shape and any(
                n > 1 and s != d for n, s, d in zip(shape, view.strides, dense, strict=True)
            ):
                raise ShapeError(
                    f"{what} is not contiguous\nkernels take arrays in C order\ncopy it first: .contiguous()"
                )
        return CudaArray(self, int(view.ptr), shape, dtype, keep=foreign)

    def tensor_map(
        self,
        array: CudaArray,
        box: Extent | None = None,
        *,
        shape: Extent | None = None,
        strides: Sequence[int] | None = None,
        element_strides: Sequence[int] | None = None,
        data_type: str | None = None,
        interleave: int = 0,
        swizzle: int = 0,
        l2_promotion: int = 0,
        fill: str = "zeros",
        im2col: Im2col | None = None,
    ) -> bytes:
        """The 128 bytes of a tensor map, made by the driver; see `gpu.device.Device.tensor_map`."""
        found = tensor_map_of(
            array,
            box,
            shape=shape,
            strides=strides,
            element_strides=element_strides,
            data_type=data_type,
            interleave=interleave,
            swizzle=swizzle,
            l2_promotion=l2_promotion,
            fill=fill,
            im2col=im2col,
        )
        return encoded(found, self.compute_capability)

    def allocate_image(
        self,
        shape: Extent,
        dtype: npt.DTypeLike,
        name: str = "",
        *,
        channels: int = 1,
        layered: bool = False,
        cubemap: bool = False,
    ) -> CudaImage:
        """Reserve an image, for textures and surfaces; see `gpu.device.Device.allocate_image`."""
        form = image_of(shape, dtype, channels=channels, layered=layered, cubemap=cubemap)
        return CudaImage(self, form, name or "image")

    def upload_image(
        self, host: Any, name: str = "", *, channels: int = 1, layered: bool = False, cubemap: bool = False
    ) -> CudaImage:
        """Copy a host array to an image of its shape; see `gpu.device.Device.allocate_image`."""
        host = uploadable(host, name or "the image")
        image = self.allocate_image(
            host.shape, host.dtype, name, channels=channels, layered=layered, cubemap=cubemap
        )
        image.upload(host)
        return image

    def texture(
        self,
        source: CudaImage | CudaArray,
        *,
        address_mode: str | Sequence[str] = "clamp",
        filter_mode: str = "point",
        read_mode: str = "element",
        normalized: bool = False,
        border: float | Sequence[float] = 0.0,
        channels: int = 1,
    ) -> CudaHandle:
        """A texture of an image, or of an array as linear memory; see `gpu.device.Device.texture`."""
        sampler = sampler_of(address_mode, filter_mode, read_mode, normalized, border)
        return texture_of(source, sampler, channels)

    def surface(self, image: CudaImage) -> CudaSurface:
        """A surface of an image; see `gpu.device.Device.surface`."""
        return surface_of(image)

    def load(self, ptx: Any) -> CudaModule:
        """Load PTX: its text, or what ``gpu.compile`` returned; the driver compiles it for this chip."""
        return _load(self.ordinal, getattr(ptx, "text", ptx))

    def kernel(self, ptx: str, name: str) -> CudaKernel:
        """A kernel of PTX text; each text is loaded once."""
        return _load(self.ordinal, ptx).kernel(name)

    def launch(self, plan: LaunchPlan, arrays: Sequence[CudaArray]) -> None:
        """Launch a plan; ``arrays`` replace the None in its arguments."""
        (plan.bound or self.bound(plan, (plan,)))((arrays,))

    def launch_all(self, chain: LaunchChain, arrays: Sequence[Sequence[CudaArray]]) -> None:
        """Launch the plans of a chain in order, each with its arrays, as one graph."""
        (chain.bound or self.bound(chain, chain.plans))(arrays)

    def bound(self, owner: LaunchPlan | LaunchChain, plans: Sequence[LaunchPlan]) -> BoundChain:
        """Load the kernels of a plan or chain on the device; keep them with their owner."""
        if owner.bound is None:
            kernels = [(self.kernel(plan.ptx, plan.name), plan) for plan in plans]
            launches = [BoundLaunch(*each, self.compute_capability) for each in kernels]
            owner.bound = BoundChain(launches, getattr(owner, "settled", frozenset()))
        return owner.bound

    def capture(self) -> AbstractContextManager[CudaGraph]:
        """Capture the launches of a ``with`` block, on this thread, into a graph."""
        return capture()

    def pinned(self, shape: Extent, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A host array in page-locked memory, which copies in a stream use; undefined until written."""
        return pinned(shape, dtype)

    def is_pinned(self, host: npt.NDArray[Any]) -> bool:
        """True if copies in a stream read a dense host array where it is, as it is page-locked."""
        return is_pinned(host)

    def stream(self, *, independent: bool = False) -> Any:
        """Create a stream; an independent one does not synchronise with the default stream."""
        return contexts.driver().Stream(1 if independent else 0)  # CU_STREAM_NON_BLOCKING

    def in_stream(self, stream: Any) -> Any:
        """The device for work in a stream: its own, torch's, CuPy's, with ``__cuda_stream__``, or an address.

        Raises
        ------
        LaunchError
            For a stream of another device.
        DtypeError
            For what is not a stream.
        """
        return in_stream(self, stream)

    def wait(self) -> None:
        """Wait for the launches in the default stream, without the deferred checks."""
        wait_for(0)

    def event(self) -> CudaEvent:
        """Create a CUDA event."""
        return CudaEvent()

    def defer(self, check: Callable[[], None]) -> None:
        """Call ``check`` at the next synchronisation; it may raise."""
        refuse_in_capture("a check of the host")
        self._checks.append(check)

    def synchronize(self) -> None:
        """Wait for all work, then run the deferred checks."""
        refuse_in_capture("a synchronisation")
        self._context.synchronize()
        self._held.clear()
        while self._checks:  # after a check that raises, the rest runs at the next synchronisation
            self._checks.pop(0)()


@cache
def _load(ordinal: int, ptx: str) -> CudaModule:
    contexts.primary(ordinal)
    return CudaModule(ptx)


@cache
def default_device() -> Device:
    """The first CUDA device, the same object at each call; NoGpuError if there is none."""
    try:
        return cast("Device", CudaDevice())
    except (MissingExtraError, NoGpuError) as error:
        raise NoGpuError(
            f"no CUDA device can be used: {str(error).splitlines()[0]}\n"
            "pass device=simwarp.Device() to run on the simulator"
        ) from None
