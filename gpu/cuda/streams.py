"""Calls in a stream of an NVIDIA GPU: their launches and uploads, and the memory of what they make."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu.cuda.capture import CAPTURES
from gpu.cuda.driver import bindings as driver
from gpu.cuda.driver import checked, refuse
from reference.devices.launch import Extent, uploadable
from reference.errors import CaptureError, DtypeError, LaunchError

if TYPE_CHECKING:
    from gpu.device import LaunchChain, LaunchPlan, Recorded

WHAT = "a call in a stream"
_DEFAULT = (0, 1)
"""The addresses of the legacy default stream."""

_MOST_OF_A_PIECE = 1 << 16
"""The most bytes of a result that shares an allocation of torch's with others of its size."""
_MOST_PIECES = 32
"""The most results that share one."""
_MOST_SIZES = 64
"""The sizes of results for which there are pieces."""


def pointer_of(stream: Any) -> int:
    """The address of a stream of torch, CuPy, PyCUDA or the driver, or with ``__cuda_stream__``."""
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if isinstance(stream, driver.CUstream) or (hasattr(stream, "__index__") and not isinstance(stream, bool)):
        return int(stream)
    raise DtypeError(
        f"stream= is a {type(stream).__name__}\n"
        "a stream of the device, of torch or CuPy, or an address is needed\n"
        "give one of these, or leave it out"
    )


def in_stream(device: Any, stream: Any) -> Any:
    """A device for work in a stream; in its own capture, and in the default stream, the device itself."""
    current = stream.__class__ is TorchStream
    address = stream.cuda_stream if current else pointer_of(stream)
    if current and not address and device.default_of_torch and CAPTURES.graph is None:
        return device.default_of_torch
    queue, number, captured = _handle(address), 0, False
    if address not in _DEFAULT:
        status, capturing = driver.cuStreamIsCapturing(queue)
        home = device.ordinal
        captured = not status and bool(capturing)
        if not status and not captured:  # questions would spoil a capture
            status, home = driver.cuStreamGetDevice(queue)
        if status:
            raise DtypeError(
                f"stream= has the address {address:#x}\nthe driver knows no such stream ({status.name})\n"
                "give a stream that has not been destroyed"
            )
        if int(home) != device.ordinal:
            raise LaunchError(
                f"stream= is a stream of CUDA device {int(home)}\n"
                f"the call is for CUDA device {device.ordinal}, {device.name}\n"
                "give a stream of that device, or move the operands"
            )
        number = -address if captured else int(checked(WHAT, driver.cuStreamGetId(queue)))
    torch = sys.modules.get("torch")
    of_torch = torch if torch and (current or isinstance(stream, torch.cuda.Stream)) else None
    if CAPTURES.graph is not None or (address in _DEFAULT and of_torch is None):
        return device
    there = InStream(device, stream, queue, number, of_torch, captured)
    if current and not address:
        device.default_of_torch = there
    return there


@lru_cache
def _handle(address: int) -> Any:
    """The driver's handle of a stream."""
    return driver.CUstream(address)


class InStream:
    """A `CudaDevice` whose plans, uploads and new arrays are in a stream.

    Memory that was freed is used again behind the earlier work of the same stream only: it is torch's for a
    stream of torch, else of a pool of the stream. Arrays of other streams are held until the device's next
    synchronisation. While others capture the stream (``capturing``), the arrays of a call keep one another
    alive. ``queue`` is the driver's number of the stream, which no other stream ever has; 0 for the default
    one; during such a capture, its address, negative.
    """

    def __init__(
        self, device: Any, stream: Any, handle: Any, queue: int, torch: Any, capturing: bool
    ) -> None:
        self._device, self._stream, self.handle, self._torch = device, stream, handle, torch
        self.queue, self.capturing, self.plans = queue, capturing, device.plans
        if torch is not None:
            home = torch.device("cuda", device.ordinal)
            self._empty = partial(torch.empty, dtype=torch.uint8, device=home)
        self._pieces: dict[int, list[TorchMemory]] = {}
        """By their size, pieces of torch's memory that no array has yet."""
        self._together: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def allocate(self, shape: Extent, dtype: npt.DTypeLike, name: str = "") -> Any:
        """Reserve an array for work in the stream."""
        with self._unrestricted():
            array = self._device.allocate(shape, dtype, name, self._memory)
        array.queue = self.queue
        if self.capturing:
            array.together = self._together
            self._together.append(array)
        return array

    def repeat(self, known: Recorded, call: Any) -> Any:
        """Make a recorded call again in the stream; torch gives the results alone."""
        if self is self._device.default_of_torch and known.nbytes <= _MOST_OF_A_PIECE:
            return self._device.made_again(known, call, self._piece(known.nbytes), self)
        return self._device.made_again(known, call, self._memory(known.nbytes), self)

    def _piece(self, size: int) -> TorchMemory:
        """Memory for small results: torch, which takes 4 us, is asked once for several."""
        try:
            return self._pieces[size].pop()
        except (KeyError, IndexError):
            pass
        step = -(-size // 256) * 256
        count = min(_MOST_PIECES, 4 * _MOST_OF_A_PIECE // step)
        tensor = self._empty(count * step)
        start = tensor.data_ptr()
        pieces = [TorchMemory(start + n * step) for n in range(count)]
        for piece in pieces:
            piece.tensor = tensor
        taken = pieces.pop()
        if len(self._pieces) >= _MOST_SIZES:
            self._pieces.clear()
        self._pieces[size] = pieces
        return taken

    def _memory(self, size: int) -> Any:
        if self._torch is None:
            return self._device.taken(self._device.pool(self.queue).allocate, size)
        if self._stream.__class__ is TorchStream:  # current already; entering a stream takes 10 us
            tensor = self._empty(size)
        else:
            with self._torch.cuda.stream(self._stream):
                tensor = self._empty(size)
        memory = TorchMemory(tensor.data_ptr())
        memory.tensor = tensor
        return memory

    def upload(self, host: Any, name: str = "") -> Any:
        """Copy a host array to the device, in the stream."""
        if self.capturing:
            raise CaptureError(
                f"an upload of {name or 'an array'} in a capture\nonly launches are captured\n"
                "upload or prepare it before"
            )
        host = np.ascontiguousarray(uploadable(host, name or "the array"))
        array = self.allocate(host.shape, host.dtype, name)
        (status,) = driver.cuMemcpyHtoDAsync(array.pointer, host.ctypes.data, host.nbytes, self.handle)
        if status:
            refuse(f"an upload of {name or 'an array'}", status)
        return array

    def adopt(self, foreign: Any) -> Any:
        """Take another library's device array; the caller keeps it for the work in the stream."""
        array = self._device.adopted(foreign)
        array.queue = self.queue
        return array

    def flag(self) -> Any:
        """The device's `flag`: a number that kernels and host share."""
        with self._unrestricted():
            return self._device.flag()

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch a plan's kernel in this stream."""
        bound = plan.bound
        if bound is None:
            with self._unrestricted():
                bound = self._device.bound(plan, (plan,))
        self._hold(arrays)
        bound((arrays,), self.handle, captured=self.capturing)

    def launch_all(self, chain: LaunchChain, arrays: Sequence[Sequence[Any]]) -> None:
        """Launch the plans of a chain in the stream."""
        bound = chain.bound
        if bound is None:
            with self._unrestricted():
                bound = self._device.bound(chain, chain.plans)
        for each in arrays:
            self._hold(each)
        bound(arrays, self.handle, captured=self.capturing)

    def wait(self) -> None:
        """Wait for the launches in the stream, without the deferred checks."""
        wait_for(self.handle)

    def before_default(self) -> None:
        """Let later work of the default stream begin behind the work in this one."""
        event = self._device.event()
        event.record(self._stream)
        event.wait()

    def after_default(self) -> None:
        """Let later work of this stream begin behind the work in the default one."""
        event = self._device.event()
        event.record()
        event.wait(self._stream)

    def _hold(self, arrays: Sequence[Any]) -> None:
        """Keep a launch's arrays alive: with the captured call, or until the next synchronisation."""
        if self.capturing:
            self._together += [x for x in arrays if x.__class__ is not bytes]
            return
        for array in arrays:
            if array.__class__ is not bytes and array.queue != self.queue:
                array.hold()

    def _unrestricted(self) -> AbstractContextManager[None]:
        """Let this thread load and allocate while others capture the stream."""
        return relaxed() if self.capturing else _AS_IT_IS


_AS_IT_IS = nullcontext()


class TorchMemory(int):
    """The address of memory of torch's allocator, which takes it back in a stream's order."""

    tensor: Any  # of bytes

    def free(self) -> None:
        """Return the array's memory to torch's allocator."""
        self.tensor = None


class TorchStream:
    """The stream that is torch's current one in a call, by its address."""

    def __init__(self, address: int) -> None:
        self.cuda_stream = address


@contextmanager
def relaxed() -> Generator[None]:
    """Allow this thread calls that another's capture forbids, although they do not disturb it."""
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = checked(WHAT, driver.cuThreadExchangeStreamCaptureMode(mode))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


def wait_for(handle: Any) -> None:
    """Wait for the work in a stream, also while another one is captured."""
    with relaxed():
        (status,) = driver.cuStreamSynchronize(handle)
    if status:
        refuse(WHAT, status)


def in_current_stream_of_torch(device: Any) -> Any:
    """The device for work in torch's current stream there."""
    address = sys.modules["torch"]._C._cuda_getCurrentRawStream(device.ordinal)
    known = device.default_of_torch
    if address or known is None or CAPTURES.graph is not None:
        return device.in_stream(TorchStream(address))
    return known


def torch_stream_of(*operands: Any) -> TorchStream | None:
    """Torch's current stream on the device of the first CUDA tensor among some operands, or None."""
    torch = sys.modules.get("torch")
    if torch is not None:
        for x in operands:
            if isinstance(x, torch.Tensor) and x.is_cuda:
                return TorchStream(torch._C._cuda_getCurrentRawStream(x.device.index))
    return None
