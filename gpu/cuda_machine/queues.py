"""Streams and events of a machine, on streams and events of the driver that are used again.

A `Stream` holds a stream of the driver, and a handle of cuBLAS, while it has work that the host has not
waited for. One handle for each stream: streams that shared one would share its workspace, so that their
routines would not be independent, nor their bits reproducible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gpu.cuda_machine.contexts import Contexts
from gpu.cuda_machine.cublas import Cublas
from gpu.cuda_machine.driver import Driver
from gpu.cuda_machine.kernels import Argument
from gpu.cuda_machine.memory import Place, place_of
from gpu.machine import Routine, Tile
from reference.devices.launch import Dim
from reference.errors import MachineError

if TYPE_CHECKING:
    from gpu.cuda_machine.layers import Layers
    from gpu.cuda_machine.machine import CudaMachine


class Volume(NamedTuple):
    """Planes of a copy: their number, the copied rows, and all rows of a plane at source and target."""

    depth: int
    height: int
    source_height: int
    target_height: int


class Queue:
    """A stream of the driver, and the handle of cuBLAS for it.

    ``recorded`` and ``reached`` count its events: all, and those that the host knows to have happened.
    """

    def __init__(self, machine: CudaMachine, device: int, stream: Any) -> None:
        self._machine, self.device, self.stream = machine, device, stream
        self.handle = 0
        self.recorded, self.reached = 0, 0

    def call(self, prefix: str, routine: str, **arguments: Any) -> None:
        """Queue a routine of cuBLAS for s, d, c or z; see `Cublas.call`."""
        if not self.handle:
            self.handle = self._machine.cublas.create(int(self.stream), self.device)
        self._machine.cublas.call(self.handle, self.device, prefix, routine, **arguments)

    @property
    def layers(self) -> Layers:
        """The machine's convolutions by cuDNN."""
        return self._machine.layers

    def launch(
        self, source: str, name: str, grid: Dim, block: Dim, *args: Argument, define: str = ""
    ) -> None:
        """Queue a kernel of a ``.cu`` file of this package: see `gpu.cuda_machine.kernels`."""
        self._machine.kernels.launch(self, (source, define), name, grid, block, args)

    def clear(self, place: Place, width: int, height: int) -> None:
        """Queue zeros for ``height`` columns of ``width`` bytes."""
        driver, (address, pitch), stream = self._machine.driver, place, self.stream
        if height == 1 or pitch == width:
            driver.call("cuMemsetD8Async", address, 0, width * height, stream, device=self.device)
        else:
            driver.call("cuMemsetD2D8Async", address, pitch, 0, width, height, stream, device=self.device)

    def copy_volume(self, source: Place, target: Place, width: int, volume: Volume) -> None:
        """Queue a copy, within the device, of rows of ``width`` bytes in planes: see `Volume`."""
        driver, kinds = self._machine.driver, self._machine.driver.api.CUmemorytype
        copy = driver.api.CUDA_MEMCPY3D()
        copy.srcMemoryType = copy.dstMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        copy.srcDevice, copy.srcPitch = source
        copy.dstDevice, copy.dstPitch = target
        copy.srcHeight, copy.dstHeight = volume.source_height, volume.target_height
        copy.WidthInBytes, copy.Height, copy.Depth = width, volume.height, volume.depth
        driver.call("cuMemcpy3DAsync", copy, self.stream, device=self.device)

    def address(self, tile: Tile) -> int:
        """The address of a tile's first element."""
        return place_of(tile, self._machine, self.device, "a tile").address


class CudaRoutine(Routine, Protocol):
    """A `gpu.machine.Routine` that can be queued on a GPU."""

    def queue_on(self, queue: Queue) -> None:
        """Queue the computation in ``queue.stream``, whose context is current, and return."""


class PreparedRoutine(Protocol):
    """A routine that chooses how it is computed before anything is queued."""

    def prepare_on(self, queue: Queue) -> None:
        """Choose the way of computing it; the contents of its tiles may be overwritten."""


class Stream:
    """A queue of work of one device; ``number`` is its own in the machine."""

    def __init__(self, machine: CudaMachine, device: int, number: int) -> None:
        self.machine, self.device, self.number = machine, device, number
        self.queue: Queue | None = None


class Event:
    """A point in a stream's work: event ``number`` of its queue, counted from 1."""

    __slots__ = ("_free", "handle", "machine", "number", "queue")

    def __init__(self, machine: CudaMachine, queue: Queue, handle: Any, free: list[Any]) -> None:
        self.machine, self.queue, self.handle, self._free = machine, queue, handle, free
        queue.recorded += 1
        self.number = queue.recorded

    @property
    def done(self) -> bool:
        """True if all work queued before the event has ended."""
        return self.number <= self.queue.reached or self.machine.has_happened(self)

    def __del__(self) -> None:
        self._free.append(self.handle)


class Queues:
    """The streams, handles and events of a machine; ``active`` streams may have unfinished work."""

    def __init__(self, machine: CudaMachine, driver: Driver, contexts: Contexts, cublas: Cublas) -> None:
        self._machine, self._driver, self._contexts, self._cublas = machine, driver, contexts, cublas
        count = len(contexts.handles)
        self._free: list[list[Queue]] = [[] for _ in range(count)]
        self._spare: list[list[Any]] = [[] for _ in range(count)]
        self._queues: list[Queue] = []
        self._events: list[tuple[int, Any]] = []
        self.active: list[Stream] = []
        self._plain = int(driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._streams = int(driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._not_ready = driver.api.CUresult.CUDA_ERROR_NOT_READY

    def of(self, stream: Stream) -> Queue:
        """The queue of a stream, whose context is current."""
        if stream.queue is None:
            device = stream.device
            stream.queue = self._free[device].pop() if self._free[device] else self._new(device)
            self.active.append(stream)
        return stream.queue

    def _new(self, device: int) -> Queue:
        made = self._driver.call("cuStreamCreate", self._streams, device=device)
        self._queues.append(Queue(self._machine, device, made))
        return self._queues[-1]

    def record(self, stream: Stream) -> Event:
        """An event behind the work of a stream, whose context is current."""
        queue, spare = self.of(stream), self._spare[stream.device]
        handle = spare.pop() if spare else self._new_event(stream.device)
        event = Event(self._machine, queue, handle, spare)
        self._driver.call("cuEventRecord", handle, queue.stream, device=stream.device)
        return event

    def _new_event(self, device: int) -> Any:
        made = self._driver.call("cuEventCreate", self._plain, device=device)
        self._events.append((device, made))
        return made

    def query(self, event: Event) -> bool:
        """Ask the driver whether an event has happened."""
        (status,) = self._driver.api.cuEventQuery(event.handle)
        if not status:
            event.queue.reached = max(event.queue.reached, event.number)
            return True
        if status != self._not_ready:
            raise self._driver.error(status, "cuEventQuery", event.queue.device)
        return False

    def settle(self) -> None:
        """Wait for all work, and then raise the first error."""
        errors: list[MachineError] = []
        while self.active:
            stream = self.active[-1]
            queue = stream.queue
            assert queue is not None
            try:
                with self._contexts.on(queue.device):
                    self._driver.call("cuStreamSynchronize", queue.stream, device=queue.device)
                queue.reached = queue.recorded
                self._free[queue.device].append(queue)
            except MachineError as error:
                errors.append(error)
            stream.queue = None
            self.active.pop()
        if errors:
            raise errors[0]

    def close(self, release: Callable[..., None]) -> None:
        """Destroy everything; ``release`` makes a call of a device and keeps its error."""
        for spare in self._spare:
            spare.clear()
        while self._queues:
            queue = self._queues.pop()
            queue.reached = queue.recorded
            if queue.handle:
                release(queue.device, self._cublas.destroy, queue.handle, queue.device)
            release(queue.device, self._driver.call, "cuStreamDestroy", queue.stream)
        while self._events:
            device, event = self._events.pop()
            release(device, self._driver.call, "cuEventDestroy", event)
        for free in self._free:
            free.clear()
