"""A CUDA driver and a cuBLAS without a GPU: devices whose memory is NumPy's and whose streams run late.

Types, enumerations and structures are those of `cuda.bindings.driver`. Work is queued, and runs in a drawn
order when events are asked for or streams are synchronised. What a real driver does not forgive is a
`DriverFaultError`.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from support import fake_kernels

_FIRST = 0x7F00_0000_0000
_GUARD = 1 << 20


class DriverFaultError(AssertionError):
    """A use of the driver that is wrong."""


def demand(condition: Any, what: str) -> None:
    if not condition:
        raise DriverFaultError(what)


@dataclass(eq=False)
class Allocation:
    context: int
    start: int
    data: Any

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass(eq=False)
class Token:
    """One recording of an event."""

    time: float | None = None


@dataclass(eq=False)
class Work:
    run: Callable[[], None]
    uses: tuple[Any, ...] = ()
    needs: Token | None = None


@dataclass(eq=False)
class FakeStream:
    context: int
    work: deque[Work] = field(default_factory=deque[Work])

    @property
    def is_ready(self) -> bool:
        return bool(self.work) and (self.work[0].needs is None or self.work[0].needs.time is not None)


@dataclass(eq=False)
class FakeEvent:
    context: int
    flags: int
    token: Token | None = None


class FakeDriver:
    """The driver; ``failing`` is a call's name, the number of the call that fails, and the status.

    ``lost`` is the status of all later calls, once one has failed with a status after which nothing works.
    """

    def __init__(
        self, devices: int = 1, seed: int = 0, peers: bool = True, failing: tuple[str, int, str] | None = None
    ) -> None:
        import cuda.bindings.driver as real

        self.real, self.devices, self.peers, self.failing = real, devices, peers, failing
        self.draw = random.Random(seed)
        self.calls: dict[str, int] = {}
        self.lost = ""
        self.stack: list[int] = []
        self.retained = [0] * devices
        self.reach: set[tuple[int, int]] = set()
        self.allocations: list[Allocation] = []
        self.registrations: dict[int, int] = {}
        self.foreign: list[tuple[int, int]] = []
        self.streams: dict[int, FakeStream] = {}
        self.events: dict[int, FakeEvent] = {}
        self.modules: dict[int, str] = {}
        self.functions: dict[int, Any] = {}
        self.prefetches: list[tuple[int, int, Any]] = []
        self.clock, self._numbers, self._next = 0.0, 1000, _FIRST
        self.free_bytes = 1 << 30

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or not hasattr(type(self), "_" + name):
            return getattr(self.real, name)
        made = getattr(self, "_" + name)

        def call(*args: Any) -> tuple[Any, ...]:
            self.calls[name] = self.calls.get(name, 0) + 1
            if status := self._status(name):
                return (getattr(self.real.CUresult, f"CUDA_ERROR_{status}"), None, None)[: self._width(name)]
            result = made(*args)
            if isinstance(result, self.real.CUresult):
                return (result, None, None)[: self._width(name)]
            found = () if result is None else result if isinstance(result, tuple) else (result,)
            return (self.real.CUresult.CUDA_SUCCESS, *found)

        return call

    def _status(self, name: str) -> str:
        """The status that a call fails with, or nothing."""
        if self.lost and name not in ("cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxSetCurrent"):
            return self.lost
        if self.failing and self.failing[:2] == (name, self.calls[name]):
            if self.failing[2] in ("ILLEGAL_ADDRESS", "ECC_UNCORRECTABLE"):
                self.lost = self.failing[2]
                for stream in self.streams.values():
                    stream.work.clear()
            return self.failing[2]
        return ""

    def _width(self, name: str) -> int:
        if name == "cuMemGetInfo":
            return 3
        makes = ("cuMemAlloc", "cuStreamCreate", "cuEventCreate", "cuDevicePrimaryCtxRetain", "cuDeviceGet")
        more = ("cuDeviceGetCount", "cuDeviceCanAccessPeer", "cuEventElapsedTime", "cuCtxPopCurrent")
        loads = ("cuMemAllocManaged", "cuModuleLoadData", "cuModuleGetFunction", "cuDeviceGetAttribute")
        return 2 if name in (*makes, *more, *loads, "cuPointerGetAttribute", "cuDeviceGetName") else 1

    def is_clean(self) -> bool:
        """True if nothing is left behind, contexts included."""
        held = (self.allocations, self.registrations, self.streams, self.events, self.modules, self.stack)
        return not any(held) and not any(self.retained)

    # ---- devices and contexts

    def _cuDriverGetVersion(self) -> int:  # noqa: N802
        return 13000

    def _cuDeviceGetCount(self) -> int:  # noqa: N802
        return self.devices

    def _cuDeviceGet(self, ordinal: int) -> Any:  # noqa: N802
        return self.real.CUdevice(ordinal)

    def _cuDeviceGetName(self, length: int, device: Any) -> bytes:  # noqa: N802
        return b"A device that is not there".ljust(length, b"\0")

    def _cuDeviceGetAttribute(self, which: Any, device: Any) -> int:  # noqa: N802
        known = self.real.CUdevice_attribute
        found = {
            known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9,
            known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0,
        }
        demand(which in found, "another attribute")
        return found[which]

    def _cuDevicePrimaryCtxRetain(self, device: Any) -> Any:  # noqa: N802
        self.retained[int(device)] += 1
        return self.real.CUcontext(100 + int(device))

    def _cuDevicePrimaryCtxRelease(self, device: Any) -> None:  # noqa: N802
        demand(self.retained[int(device)] > 0, "a context is released that was not retained")
        self.retained[int(device)] -= 1

    def _cuDeviceCanAccessPeer(self, device: Any, peer: Any) -> int:  # noqa: N802
        return int(self.peers)

    def _cuCtxEnablePeerAccess(self, context: Any, flags: int) -> Any:  # noqa: N802
        pair = self.current(), int(context)
        if pair in self.reach:
            return self.real.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
        self.reach.add(pair)
        return None

    def _cuCtxPushCurrent(self, context: Any) -> None:  # noqa: N802
        self.stack.append(int(context))

    def _cuCtxPopCurrent(self) -> Any:  # noqa: N802
        return self.real.CUcontext(self.stack.pop())

    def _cuCtxSetCurrent(self, context: Any) -> None:  # noqa: N802
        self.stack[-1] = int(context)

    def _cuCtxSynchronize(self) -> None:  # noqa: N802
        while any(one.work for one in self.streams.values() if one.context == self.current()):
            self.step()

    def current(self) -> int:
        demand(self.stack, "no context is current")
        demand(self.retained[self.stack[-1] - 100], "the current context is released")
        return self.stack[-1]

    # ---- memory

    def _cuMemGetInfo(self) -> tuple[int, int]:  # noqa: N802
        used = sum(len(one.data) for one in self.allocations if one.context == self.current())
        return self.free_bytes + (64 << 20) - used, 1 << 30

    def _cuMemAlloc(self, nbytes: int) -> Any:  # noqa: N802
        free, _ = self._cuMemGetInfo()
        if nbytes > free:
            return self.real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        made = Allocation(self.current(), self._next, np.full(nbytes, 0xFF, np.uint8))
        self._next += -(-nbytes // 512) * 512 + _GUARD
        bisect.insort(self.allocations, made, key=lambda one: one.start)
        return self.real.CUdeviceptr(made.start)

    def _cuMemAllocManaged(self, nbytes: int, flags: int) -> Any:  # noqa: N802
        demand(flags == int(self.real.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL), "attached to something else")
        free, _ = self._cuMemGetInfo()
        demand(nbytes <= free, "more managed memory than is free")
        data = np.full(nbytes, 0xFF, np.uint8)
        made = Allocation(self.current(), data.__array_interface__["data"][0], data)
        bisect.insort(self.allocations, made, key=lambda one: one.start)
        return self.real.CUdeviceptr(made.start)

    def _cuMemPrefetchAsync(  # noqa: N802
        self, address: int, nbytes: int, place: Any, flags: int, stream: Any
    ) -> None:
        queue, found = self.stream(stream), self.allocation(address, nbytes)
        demand(flags == 0, "flags of a prefetch are 0")
        self._own(queue, found)
        self.prefetches.append((address, nbytes, place.type))
        queue.work.append(Work(lambda: None, (found,)))

    def _cuMemFree(self, address: Any) -> None:  # noqa: N802
        found = self.allocation(int(address), 1)
        demand(found.start == int(address), "free of an address within an allocation")
        demand(found.context == self.current(), "free in another context")
        demand(not self._is_used(found), "free of memory that queued work uses")
        self.allocations.remove(found)

    def allocation(self, address: int, nbytes: int) -> Allocation:
        """The allocation that holds some bytes."""
        at = bisect.bisect_right([one.start for one in self.allocations], address) - 1
        demand(at >= 0 and address + nbytes <= self.allocations[at].end, "access outside of allocations")
        return self.allocations[at]

    def _is_used(self, what: Any) -> bool:
        return any(what in work.uses for stream in self.streams.values() for work in stream.work)

    def _cuMemHostRegister(self, address: int, nbytes: int, flags: int) -> Any:  # noqa: N802
        demand(self.current() and flags == 1, "registered for one context only")
        spans = [*self.registrations.copy().items(), *self.foreign]
        pages = address // mmap.PAGESIZE, -(-(address + nbytes) // mmap.PAGESIZE)
        if any(a // mmap.PAGESIZE < pages[1] and pages[0] < -(-b // mmap.PAGESIZE) for a, b in spans):
            return self.real.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
        self.registrations[address] = address + nbytes
        return None

    def _cuMemHostUnregister(self, address: int) -> None:  # noqa: N802
        self.current()
        demand(address in self.registrations, "unregistered what is not registered")
        demand(not self._is_used(("host", address)), "unregistered under a copy")
        del self.registrations[address]

    def _cuPointerGetAttribute(self, which: Any, address: int) -> Any:  # noqa: N802
        known = self.real.CUpointer_attribute
        if which == known.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            found = [one.context for one in self.allocations if one.start <= address < one.end]
            return found[0] - 100 if found else self.real.CUresult.CUDA_ERROR_INVALID_VALUE
        demand(which == known.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "another attribute")
        if any(a <= address < b for a, b in (*self.registrations.copy().items(), *self.foreign)):
            return self.real.CUmemorytype.CU_MEMORYTYPE_HOST
        return self.real.CUresult.CUDA_ERROR_INVALID_VALUE

    def host(self, address: int, nbytes: int) -> Any:
        """The registration that a copy of host memory uses."""
        spans = (*self.registrations.copy().items(), *self.foreign)
        registration = next((a for a, b in spans if a <= address and address + nbytes <= b), None)
        demand(registration is not None, "copy of host memory that one registration does not hold")
        return ("host", registration)

    # ---- streams and events

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _cuStreamCreate(self, flags: int) -> Any:  # noqa: N802
        demand(flags == 1, "a stream that waits for the default stream")
        number = self._number()
        self.streams[number] = FakeStream(self.current())
        return self.real.CUstream(number)

    def _cuStreamDestroy(self, stream: Any) -> None:  # noqa: N802
        demand(not self.stream(stream).work, "destroyed a stream with work")
        del self.streams[int(stream)]

    def stream(self, stream: Any) -> FakeStream:
        """A stream of the current context."""
        demand(int(stream) in self.streams, "a stream that does not exist")
        found = self.streams[int(stream)]
        demand(found.context == self.current(), "another context is current than that of the stream")
        return found

    def _cuStreamSynchronize(self, stream: Any) -> None:  # noqa: N802
        found = self.stream(stream)
        while found.work:
            self.step()

    def _cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:  # noqa: N802
        demand(int(event) in self.events, "an event that does not exist")
        token = self.events[int(event)].token
        self.stream(stream).work.append(Work(lambda: None, needs=token))

    def _cuEventCreate(self, flags: int) -> Any:  # noqa: N802
        number = self._number()
        self.events[number] = FakeEvent(self.current(), flags)
        return self.real.CUevent(number)

    def _cuEventDestroy(self, event: Any) -> None:  # noqa: N802
        demand(self.events[int(event)].context == self.current(), "destroyed in another context")
        del self.events[int(event)]

    def _cuEventRecord(self, event: Any, stream: Any) -> None:  # noqa: N802
        one, queue = self.events[int(event)], self.stream(stream)
        demand(one.context == queue.context, "event and stream are of different contexts")
        token = one.token = Token()
        queue.work.append(Work(lambda: setattr(token, "time", self.clock)))

    def _cuEventQuery(self, event: Any) -> Any:  # noqa: N802
        self.current()
        for _ in range(self.draw.randrange(3)):
            self.step()
        token = self.events[int(event)].token
        is_done = token is None or token.time is not None
        return None if is_done else self.real.CUresult.CUDA_ERROR_NOT_READY

    def _cuEventSynchronize(self, event: Any) -> None:  # noqa: N802
        token = self.events[int(event)].token
        while token is not None and token.time is None:
            self.step()

    def _cuEventElapsedTime(self, start: Any, end: Any) -> float:  # noqa: N802
        pair = self.events[int(start)], self.events[int(end)]
        demand(not any(one.flags & 2 for one in pair), "times of events without times")
        demand(pair[0].context == pair[1].context, "times of events of two devices")
        times = [one.token.time for one in pair if one.token is not None and one.token.time is not None]
        demand(len(times) == 2, "times of events that have not happened")
        return times[1] - times[0]

    def step(self) -> None:
        """Run the first work of one stream."""
        ready = [stream for stream in self.streams.values() if stream.is_ready]
        if not ready:
            demand(not any(stream.work for stream in self.streams.values()), "streams wait for ever")
            return
        self.clock += 1
        self.draw.choice(ready).work.popleft().run()

    # ---- copies

    def view(self, address: int, pitch: int, width: int, height: int) -> tuple[Allocation, Any]:
        """Columns of bytes on a device."""
        found = self.allocation(address, (height - 1) * pitch + width)
        demand(height == 1 or pitch >= width, "columns overlap")
        offset = address - found.start
        return found, np.ndarray((height, width), np.uint8, found.data, offset, (pitch, 1))

    def _own(self, stream: FakeStream, found: Allocation) -> None:
        demand(found.context == stream.context, "memory of another device than that of the stream")

    def _move(self, stream: Any, host: int, pitch: int, device: int, other: int, w: int, h: int, kind: str):
        queue = self.stream(stream)
        found, tile = self.view(device, other, w, h)
        self._own(queue, found)
        used = self.host(host, (h - 1) * pitch + w)
        raw = (ctypes.c_ubyte * ((h - 1) * pitch + w)).from_address(host)
        matrix: Any = np.ndarray((h, w), np.uint8, raw, 0, (pitch, 1))
        target, source = (tile, matrix) if kind == "in" else (matrix, tile)
        queue.work.append(Work(lambda: np.copyto(target, source), (found, used)))

    def _cuMemcpyHtoDAsync(self, device: int, host: int, nbytes: int, stream: Any) -> None:  # noqa: N802
        self._move(stream, host, nbytes, device, nbytes, nbytes, 1, "in")

    def _cuMemcpyDtoHAsync(self, host: int, device: int, nbytes: int, stream: Any) -> None:  # noqa: N802
        self._move(stream, host, nbytes, device, nbytes, nbytes, 1, "out")

    def _cuMemcpy2DAsync(self, c: Any, stream: Any) -> None:  # noqa: N802
        kinds = self.real.CUmemorytype
        demand(not (c.srcXInBytes or c.srcY or c.dstXInBytes or c.dstY), "offsets")
        demand(min(c.srcPitch, c.dstPitch) >= c.WidthInBytes, "a pitch below the width")
        size = c.WidthInBytes, c.Height
        if c.srcMemoryType == kinds.CU_MEMORYTYPE_HOST:
            demand(c.dstMemoryType == kinds.CU_MEMORYTYPE_DEVICE, "a copy within the host")
            self._move(stream, c.srcHost, c.srcPitch, int(c.dstDevice), c.dstPitch, *size, "in")
        else:
            demand(c.dstMemoryType == kinds.CU_MEMORYTYPE_HOST, "not to the host")
            self._move(stream, c.dstHost, c.dstPitch, int(c.srcDevice), c.srcPitch, *size, "out")

    def _peer(self, stream: Any, to: Any, source: Any, contexts: tuple[int, int]) -> None:
        queue = self.stream(stream)
        demand((to[0].context, source[0].context) == contexts, "memory of other contexts than those given")
        demand(contexts in self.reach, "a peer that is not reached")
        self._own(queue, to[0])
        queue.work.append(Work(lambda: np.copyto(to[1], source[1]), (to[0], source[0])))

    def _cuMemcpyPeerAsync(self, to: int, own: Any, of: int, peer: Any, n: int, stream: Any):  # noqa: N802
        self._peer(stream, self.view(to, n, n, 1), self.view(of, n, n, 1), (int(own), int(peer)))

    def _cuMemcpy3DPeerAsync(self, c: Any, stream: Any) -> None:  # noqa: N802
        size = c.WidthInBytes, c.Height
        demand(c.Depth == 1 and min(c.srcHeight, c.dstHeight) >= c.Height, "a depth or height")
        to = self.view(int(c.dstDevice), c.dstPitch, *size)
        of = self.view(int(c.srcDevice), c.srcPitch, *size)
        self._peer(stream, to, of, (int(c.dstContext), int(c.srcContext)))

    def _cuMemcpy3DAsync(self, c: Any, stream: Any) -> None:  # noqa: N802
        device = self.real.CUmemorytype.CU_MEMORYTYPE_DEVICE
        demand((c.srcMemoryType, c.dstMemoryType) == (device, device), "not within a device")
        queue, width, height = self.stream(stream), c.WidthInBytes, c.Height
        demand(min(c.srcHeight, c.dstHeight) >= height, "a height below that of the copy")
        for plane in range(c.Depth):
            places = (
                (int(address) + plane * pitch * rows, pitch)
                for address, pitch, rows in (
                    (c.dstDevice, c.dstPitch, c.dstHeight),
                    (c.srcDevice, c.srcPitch, c.srcHeight),
                )
            )
            (to, target), (of, source) = (self.view(*place, width, height) for place in places)
            self._own(queue, to)
            self._own(queue, of)
            queue.work.append(Work(partial(np.copyto, target, source), (to, of)))

    def _cuMemsetD8Async(self, address: int, value: int, n: int, stream: Any) -> None:  # noqa: N802
        self._cuMemsetD2D8Async(address, n, value, n, 1, stream)

    def _cuMemsetD2D8Async(self, to: int, pitch: int, x: int, w: int, h: int, stream: Any):  # noqa: N802
        queue, (found, view) = self.stream(stream), self.view(to, pitch, w, h)
        self._own(queue, found)
        queue.work.append(Work(lambda: view.fill(x), (found,)))

    # ---- kernels

    def _cuModuleLoadData(self, image: bytes) -> Any:  # noqa: N802
        number = self._number()
        self.modules[number] = image.rstrip(b"\0").decode()
        return self.real.CUmodule(number)

    def _cuModuleUnload(self, module: Any) -> None:  # noqa: N802
        del self.modules[int(module)]

    def _cuModuleGetFunction(self, module: Any, name: bytes) -> Any:  # noqa: N802
        number = self._number()
        self.functions[number] = fake_kernels.kernel_of(self.modules[int(module)], name.decode())
        return self.real.CUfunction(number)

    def _cuLaunchKernel(  # noqa: N802
        self, function, x: int, y: int, z: int, a: int, b: int, c: int, shared: int, stream, addresses, extra
    ) -> None:
        grid, block = (x, y, z), (a, b, c)
        demand((shared, extra) == (0, 0), "other parameters")
        queue, kernel = self.stream(stream), self.functions[int(function)]
        given = fake_kernels.parameters_of(self, kernel, addresses)
        used = tuple(one.points_to for one in given if one.points_to)
        for one in used:
            self._own(queue, one)
        queue.work.append(Work(partial(fake_kernels.run, kernel, grid, block, given), used))
