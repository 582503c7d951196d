"""`CudaMachine`: the GPUs of one process, and its host memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from threading import Lock
from types import TracebackType
from typing import Any

import numpy.typing as npt

from gpu.cuda_machine import running
from gpu.cuda_machine.allocations import Allocations
from gpu.cuda_machine.contexts import Contexts, check_ordinals
from gpu.cuda_machine.copies import Copies
from gpu.cuda_machine.cpu import Cpu, CpuEvent
from gpu.cuda_machine.cublas import Cublas
from gpu.cuda_machine.driver import Driver, DriverStream
from gpu.cuda_machine.kernels import Kernels
from gpu.cuda_machine.layers import Layers
from gpu.cuda_machine.library import CUBLAS, CUDNN
from gpu.cuda_machine.memory import CudaMemory
from gpu.cuda_machine.pins import Pins
from gpu.cuda_machine.queues import Event, PreparedRoutine, Queues, Stream
from gpu.cuda_machine.recording import Recorder
from gpu.finalizers import undisturbed
from gpu.machine import CpuRoutine, Routine, Tile
from reference.devices.timeline import Timeline
from reference.errors import (
    DeviceLostError,
    DeviceMemoryError,
    LaunchError,
    MachineError,
    ShapeError,
)

_RESERVE = 1 << 30
"""Bytes that a budget leaves for cuBLAS, cuDNN and others, or a sixteenth of small devices."""


class CudaMachine:
    """NVIDIA GPUs as a machine: see `gpu.machine.Machine`.

    One thread may use a machine at a time. Work starts when it is queued; `run` drives workers and waits for
    all work. If anything fails in `run`, or Ctrl-C comes, no worker is resumed and nothing more is queued;
    what is queued ends, and the first error is raised.

    Parameters
    ----------
    devices : sequence of int, optional
        The numbers of the GPUs among the visible ones; all of them if None.
    budget : int or sequence of int, optional
        The bytes that may be allocated on each device; if None, what is free, less a gigabyte.
    record : bool
        Whether `timeline` records operations, which costs two more events for each.
    keep_pinned : bool
        Whether memory stays page-locked after the last `unpin`, as long as its array lives: page-locking
        takes longer than most products. A failed `run`, `trim` and `close` end that.
    keep_memory : bool
        Whether the largest memory that was freed on a device stays allocated: the next call takes it, or a
        larger one takes its place. What fails, `trim` and `close` end that.

    Attributes
    ----------
    timeline : Timeline
        With ``record=True``, what has run, in seconds of the host's clock.

    Raises
    ------
    NoGpuError
        If a device or the driver is missing.
    MissingExtraError
        If cuda-bindings or cuBLAS is not installed; cuDNN is loaded by the first convolution.
    DeviceMemoryError, CopyError, DeviceLostError, UnpinnedError, FreedMemoryError
        As a simulated machine does.
    DriverError, RoutineError
        For other failed calls of the driver, and routines that cuBLAS or cuDNN refuses.
    """

    def __init__(
        self,
        devices: Sequence[int] | None = None,
        budget: int | Sequence[int] | None = None,
        *,
        record: bool = False,
        keep_pinned: bool = True,
        keep_memory: bool = True,
    ) -> None:
        check_ordinals(devices)
        self.driver = Driver()
        self.cublas = Cublas(CUBLAS.load())
        self._contexts = Contexts(self.driver, devices)
        try:
            self._budgets = self._given(budget)
            self._peers = self._contexts.peers()
            self._queues = Queues(self, self.driver, self._contexts, self.cublas)
            self._pins = Pins(self.driver, self._contexts, self.settle, keep_pinned)
            self._recorder = Recorder(self.driver, self._contexts, record)
            self._copies = Copies(
                self, self.driver, self._contexts, self._peers, self._queues.of, self._pins, self._recorder
            )
        except BaseException:
            self._contexts.release()
            raise
        self._allocations = Allocations(self.driver, self._contexts, self._budgets, keep_memory)
        self.kernels = Kernels(self.driver, self._contexts)
        self._cpu = Cpu(self, self._recorder)
        self._streams = 0
        self._running = False
        self._layers: Layers | None = None

    # ----------------------------------------------------------------------------------------- devices

    @property
    def devices(self) -> int:
        """The number of GPUs of the machine."""
        return len(self._contexts.ordinals)

    @property
    def ordinals(self) -> tuple[int, ...]:
        """The CUDA driver's ordinal of each device."""
        return self._contexts.ordinals

    @property
    def timeline(self) -> Timeline:
        """The operations that have run, with ``record=True``."""
        return self._recorder.timeline

    @property
    def layers(self) -> Layers:
        """Convolutions by cuDNN, which is loaded now if it is not yet.

        Raises
        ------
        MissingExtraError
            If it is not installed.
        """
        if self._layers is None:
            self._layers = Layers(CUDNN.load(), self._synchronize)
        return self._layers

    def name(self, device: int) -> str:
        """The chip's name, e.g. ``"NVIDIA H200"``."""
        handle = self._contexts.devices[self._device(device)]
        text: bytes = self.driver.call("cuDeviceGetName", 256, handle, device=device)
        return text.split(b"\0")[0].decode()

    def budget(self, device: int) -> int:
        """The bytes of a device that can be allocated now."""
        given = self._budgets[self._device(device)]
        if given is not None:
            return max(given - self._allocations.used(device), 0)
        with self._contexts.on(device):
            free, total = self.driver.call("cuMemGetInfo", device=device)
        return max(int(free) + self._allocations.idle(device) - min(_RESERVE, int(total) // 16), 0)

    def reaches(self, device: int, peer: int) -> bool:
        """True if a device can copy from a peer without the host."""
        return (device, peer) in self._peers

    def seconds(self) -> float:
        """The host's clock in seconds."""
        return time.perf_counter()

    def allocated(self, device: int) -> tuple[CudaMemory, ...]:
        """The memory of a device that is not freed."""
        self._device(device)
        return self._allocations.of(device)

    def pinned(self) -> int:
        """The number of host arrays that are pinned."""
        return len(self._pins)

    def registered(self) -> int:
        """The bytes of host memory that are page-locked by this machine, those that are kept included."""
        return self._pins.registered

    # ------------------------------------------------------------------------------------------ memory

    def allocate(self, device: int, nbytes: int) -> CudaMemory:
        """Memory of a device; its bytes have no value.

        Raises
        ------
        DeviceMemoryError
            If the device has no room, or its budget none.
        ShapeError
            If ``nbytes`` is not positive.
        """
        self._usable(device)
        if nbytes < 1:
            raise ShapeError(f"allocation of {nbytes} bytes\na memory has at least one byte\nask for more")
        given, used = self._budgets[device], self._allocations.used(device)
        if given is not None and nbytes > given - used:
            raise self._no_room(device, nbytes, given - used)
        try:
            found = self._allocations.allocate(self, device, nbytes)
        except BaseException:
            self._expire()
            raise
        if isinstance(found, CudaMemory):
            return found
        if found.name == "CUDA_ERROR_OUT_OF_MEMORY":
            raise self._no_room(device, nbytes, self.budget(device))
        raise self.driver.error(found, "cuMemAlloc", device)

    def free(self, memory: object) -> None:
        """Return memory; the host must have waited for all work on it."""
        self._allocations.free(memory)

    def borrow(self, address: int, nbytes: int) -> CudaMemory:
        """Memory of a device that another library has allocated, and which it keeps.

        Waits for all work of the device, as it may come from any stream.

        Raises
        ------
        LaunchError
            If the address is not of a device of this machine.
        """
        which = self.driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        with self._contexts.on(0):
            status, ordinal = self.driver.api.cuPointerGetAttribute(which, address)
        if status or int(ordinal) not in self.ordinals:
            where = "no GPU" if status else f"CUDA device {int(ordinal)}"
            raise LaunchError(
                f"memory at address {address:#x} is of {where}\n"
                f"the machine has the CUDA devices {list(self.ordinals)}\n"
                "copy it to one of them, or pass a machine that has its device"
            )
        device = self.ordinals.index(int(ordinal))
        self._usable(device)
        with self._contexts.on(device):
            self.driver.call("cuCtxSynchronize", device=device)
        return CudaMemory(self, device, nbytes, address)

    def trim(self) -> None:
        """Free memory of the devices and locked pages that are kept without a use."""
        self._allocations.trim()
        self._pins.forget()

    def pin(self, array: npt.NDArray[Any]) -> None:
        """Page-lock a host array, as copies need; pins of one array are counted."""
        self._pins.pin(array)

    def unpin(self, array: npt.NDArray[Any]) -> None:
        """Undo one `pin` of the array; the host must have waited for its copies."""
        self._pins.unpin(array)

    def pins(self, array: npt.NDArray[Any]) -> int:
        """The pins of an array that no `unpin` has undone."""
        return self._pins.count(array)

    # ------------------------------------------------------------------------------------------ streams

    def stream(self, device: int) -> Stream:
        """Create a stream on a device."""
        self._usable(device)
        self._streams += 1
        return Stream(self, device, self._streams - 1)

    def copy_in(self, stream: object, source: npt.NDArray[Any], target: Tile) -> None:
        """Queue a copy of a column-major host matrix, in a pinned array, to a tile of the stream's device."""
        self._copies.copy_in(self._stream(stream), source, target)

    def copy_out(self, stream: object, source: Tile, target: npt.NDArray[Any]) -> None:
        """Queue a copy of a tile of the stream's device to a column-major host matrix in a pinned array."""
        self._copies.copy_out(self._stream(stream), source, target)

    def copy_peer(self, stream: object, source: Tile, target: Tile) -> None:
        """Queue a copy of a peer's tile to one of the stream's device, which must reach the peer."""
        self._copies.copy_peer(self._stream(stream), source, target)

    def launch(self, stream: object, routine: Routine) -> None:
        """Queue a routine on tiles of the stream's device.

        Raises
        ------
        LaunchError
            If the routine has no ``queue_on``: see `CudaRoutine`.
        RoutineError
            If cuBLAS or cuDNN refuses it.
        """
        own = self._stream(stream)
        queue_on = getattr(routine, "queue_on", None)
        if queue_on is None:
            raise LaunchError(
                f"{routine.name} is a {type(routine).__name__}, which only the host computes\n"
                "a routine of GPUs queues its work itself\n"
                "give it a method queue_on(queue), see gpu.cuda_machine.CudaRoutine"
            )
        with self._contexts.on(own.device):
            queue = self._queues.of(own)
            if self._recorder.is_on:
                operations = routine.operations
                self._recorder.begin(queue, own.number, "routine", routine.name, operations=operations)
            queue_on(queue)
            if self._recorder.is_on:
                self._recorder.end()

    def prepare(self, device: int, routines: Iterable[PreparedRoutine]) -> None:
        """Let routines choose how they will be computed, while their tiles' values do not matter.

        They may compute on their tiles to find out what is fastest. The host waits.
        """
        self._usable(device)
        own = self.stream(device)
        try:
            with self._contexts.on(device):
                queue = self._queues.of(own)
                for routine in routines:
                    routine.prepare_on(queue)
            self.settle()
        except BaseException:
            running.settle_quietly(self)
            self._expire()
            raise

    @property
    def has_cpu(self) -> bool:
        """True: the host's cores compute routines, too."""
        return True

    def compute(self, routine: CpuRoutine) -> CpuEvent:
        """Queue a routine of the host's cores behind their earlier ones; the event of its end.

        A thread of the machine computes it. What fails there, is raised where the event is asked for, as a
        DeviceLostError of device -1.
        """
        return self._cpu.queue(routine)

    def record(self, stream: object) -> Event:
        """An event behind all work that the stream has now."""
        own = self._stream(stream)
        with self._contexts.on(own.device):
            return self._queues.record(own)

    def wait(self, stream: object, event: object) -> None:
        """Hold back later work of the stream until an event, of any device, has happened."""
        own = self._stream(stream)
        if not isinstance(event, Event) or event.machine is not self:
            raise LaunchError(
                f"wait for a {type(event).__name__}\na stream waits for events of its own machine\n"
                "pass what record() of this machine returned"
            )
        if event.number <= event.queue.reached:
            return
        device = own.device
        with self._contexts.on(device):
            queue = self._queues.of(own)
            if queue is not event.queue:
                self.driver.call("cuStreamWaitEvent", queue.stream, event.handle, 0, device=device)

    def has_happened(self, event: Event) -> bool:
        """Ask the driver whether an event has happened."""
        with self._contexts.on(event.queue.device):
            return self._queues.query(event)

    # ---------------------------------------------------------------------------------------------- run

    def run(self, workers: Sequence[Iterator[Any]]) -> None:
        """Run workers to their ends, and then all work that is queued.

        A worker is resumed when the event that it yielded has happened. If anything fails, no worker is
        resumed, what is queued ends, and the first error is raised.
        """
        if self._running:
            raise LaunchError("run in a worker\nthe machine runs already\nyield an event to wait for it")
        self._running = True
        try:
            with self._contexts.on(0):
                try:
                    running.drive(self, workers)
                    self.settle()
                    self._recorder.collect()
                except BaseException:
                    running.close(workers)
                    self._cpu.drop()
                    running.settle_quietly(self)
                    self._recorder.drop()
                    self._expire()
                    raise
        finally:
            self._running = False

    def settle(self) -> None:
        """Wait for all work that is queued; the first error is raised behind all."""
        try:
            self._queues.settle()
        finally:
            self._cpu.settle()

    def close(self) -> None:
        """Wait for all work, and release everything: memory, pages, streams, events, contexts."""
        if not self._contexts.handles:
            return
        errors: list[MachineError] = []

        def release(device: int, call: Any, *args: Any) -> None:
            try:
                with self._contexts.on(device):
                    call(*args)
            except MachineError as error:
                if device not in self.driver.lost:
                    errors.append(error)

        self._cpu.drop()
        running.settle_quietly(self)
        self._pins.close(release)
        self._allocations.close(release)
        self._recorder.close(release)
        if self._layers is not None:
            self._layers.close(release)
        self.kernels.close(release)
        self._queues.close(release)
        try:
            self._contexts.release()
        except MachineError as error:
            errors.append(error)
        if errors:
            raise errors[0]

    def __enter__(self) -> CudaMachine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # a machine that was never made, or the end of the process
            undisturbed(self.close)

    def _synchronize(self, queue: DriverStream) -> None:
        """Wait for all work queued in a stream."""
        self.driver.call("cuStreamSynchronize", queue.stream, device=queue.device)

    def _expire(self) -> None:
        """After a failure, let no pin or block outlive its use; the failure's own error is raised."""
        for forget in (self._pins.expire, self._allocations.expire):
            with suppress(MachineError):
                forget()

    # ---------------------------------------------------------------------------------------- arguments

    def _given(self, budget: int | Sequence[int] | None) -> list[int | None]:
        """The memory budget of each device in bytes, None where unlimited."""
        if budget is None or isinstance(budget, int):
            return [budget] * self.devices
        if len(budget) != self.devices:
            raise LaunchError(
                f"budget has {len(budget)} numbers for {self.devices} devices\n"
                "one number is for all devices, a sequence has one for each\ngive as many as devices"
            )
        return list(budget)

    def _stream(self, stream: object) -> Stream:
        if isinstance(stream, Stream) and stream.machine is self:
            return stream
        raise LaunchError(
            f"work for a {type(stream).__name__}\nwork is queued in streams of its machine\n"
            "pass what stream() of this machine returned"
        )

    def _device(self, device: int) -> int:
        if not 0 <= device < self.devices:
            raise LaunchError(
                f"device {device}\nthe machine has devices 0 to {self.devices - 1}\npass one of them"
            )
        return device

    def _usable(self, device: int) -> None:
        """Raise an error if a device has failed."""
        if self._device(device) in self.driver.lost:
            raise DeviceLostError(
                f"device {device} is lost",
                "an earlier call of this process found that",
                "end the process, or leave out the device",
                device=device,
                seconds=self.seconds(),
            )

    def _no_room(self, device: int, nbytes: int, budget: int) -> DeviceMemoryError:
        used = self.allocated(device)
        return DeviceMemoryError(
            f"allocation of {nbytes} bytes on device {device}",
            f"{budget} bytes are free, {sum(one.nbytes for one in used)} in {len(used)} allocations",
            "ask for less than CudaMachine.budget, or free memory first",
            device=device,
            asked=nbytes,
            budget=budget,
        )


DEFAULT_LOCK = Lock()
"""Held while a call uses the default machine, which one thread may use at a time."""


@cache
def default_machine() -> CudaMachine:
    """All GPUs of this computer, the same machine at each call."""
    return CudaMachine()
