"""Copies of matrices between a host and devices: one call of the driver each, where it can be."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Literal, Protocol

import numpy.typing as npt

from gpu.cuda_machine.contexts import Contexts
from gpu.cuda_machine.driver import Driver, DriverStream
from gpu.cuda_machine.memory import Place, matrix_of, place_of
from gpu.cuda_machine.pins import Pins
from gpu.cuda_machine.recording import Recorder
from gpu.machine import Tile
from reference.errors import CopyError, LaunchError, MachineError, ShapeError, UnpinnedError

_LARGEST_PITCH = 2**31 - 1
"""The largest pitch of the driver's copies of matrices, on all present devices."""


class Stream(Protocol):
    """A stream of a machine, as `gpu.cuda_machine.queues.Stream` is."""

    device: int
    number: int


class Copies:
    """Checks copies, and queues them in streams of a machine.

    ``peers`` has the pairs of devices that can copy, and ``queue_of`` gives the queue of a stream. The
    structures of arguments are made once: the driver reads them before its call returns.
    """

    def __init__(
        self,
        machine: object,
        driver: Driver,
        contexts: Contexts,
        peers: Container[tuple[int, int]],
        queue_of: Callable[[Any], DriverStream],
        pins: Pins,
        recorder: Recorder,
    ) -> None:
        self._machine, self._contexts, self._reached, self._queue_of = machine, contexts, peers, queue_of
        self._pins, self._recorder, self._driver, self._api = pins, recorder, driver, driver.api
        kinds = self._api.CUmemorytype
        self._in, self._out = self._api.CUDA_MEMCPY2D(), self._api.CUDA_MEMCPY2D()
        self._in.srcMemoryType = self._out.dstMemoryType = kinds.CU_MEMORYTYPE_HOST
        self._in.dstMemoryType = self._out.srcMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        self._peer = self._api.CUDA_MEMCPY3D_PEER()
        self._peer.srcMemoryType = self._peer.dstMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        self._peer.Depth = 1

    def copy_in(self, stream: Stream, source: npt.NDArray[Any], target: Tile) -> None:
        """Queue a copy of a host matrix to a tile."""
        tile = place_of(target, self._machine, stream.device, "the target")
        host = matrix_of(source, target, "the source")
        width, height = target.rows * target.dtype.itemsize, target.columns
        self._check_pinned(source, host.address, (height - 1) * host.pitch + width, "the source")
        self._queue(stream, "in", self._queue_in, host, tile, width, height)

    def copy_out(self, stream: Stream, source: Tile, target: npt.NDArray[Any]) -> None:
        """Queue a copy of a tile to a host matrix."""
        tile = place_of(source, self._machine, stream.device, "the source")
        host = matrix_of(target, source, "the target")
        if not target.flags.writeable:
            raise ShapeError(
                f"the target is a read-only {target.dtype} matrix\na copy writes it\npass a writeable array"
            )
        width, height = source.rows * source.dtype.itemsize, source.columns
        self._check_pinned(target, host.address, (height - 1) * host.pitch + width, "the target")
        self._queue(stream, "out", self._queue_out, tile, host, width, height)

    def copy_peer(self, stream: Stream, source: Tile, target: Tile) -> None:
        """Queue a copy of a peer's tile to one of the stream's device."""
        to = place_of(target, self._machine, stream.device, "the target")
        of = place_of(source, self._machine, None, "the source")
        device, peer = stream.device, source.memory.device
        if (device, peer) not in self._reached:
            raise LaunchError(
                f"copy from device {peer} to device {device}\nthey do not reach one another\n"
                "ask reaches() first, and go through the host"
            )
        if (source.rows, source.columns, source.dtype) != (target.rows, target.columns, target.dtype):
            raise ShapeError(
                f"the source is {source.shape} {source.dtype}\nthe target is {target.shape} {target.dtype}\n"
                "copy between tiles of one shape and dtype"
            )
        width, height = source.rows * source.dtype.itemsize, source.columns
        self._queue(stream, "peer", self._queue_peer, of, to, width, height, peer)

    def _queue(
        self,
        stream: Stream,
        kind: Literal["in", "out", "peer"],
        queue_copy: Callable[..., Any],
        source: Place,
        target: Place,
        width: int,
        height: int,
        peer: int = -1,
    ) -> None:
        """Queue a copy of ``height`` columns of ``width`` bytes in a stream, and record it."""
        device = stream.device
        with self._contexts.on(device):
            queue = self._queue_of(stream)
            if self._recorder.is_on:
                self._recorder.begin(queue, stream.number, kind, f"copy {kind}", width * height, peer=peer)
            contexts = () if peer < 0 else (self._contexts.handles[peer], self._contexts.handles[device])
            if status := queue_copy(source, target, width, height, queue.stream, *contexts):
                raise self._refused(status, kind, width * height, stream)
            if self._recorder.is_on:
                self._recorder.end()

    def _queue_in(self, host: Place, tile: Place, width: int, height: int, stream: Any) -> Any:
        """Queue a copy to a device; the status."""
        if _is_dense(width, height, host, tile):
            return self._api.cuMemcpyHtoDAsync(tile.address, host.address, width * height, stream)[0]
        if max(host.pitch, tile.pitch) > _LARGEST_PITCH:
            return _each(self._queue_in, host, tile, width, height, stream)
        copy = self._in
        copy.srcHost, copy.srcPitch = host
        copy.dstDevice, copy.dstPitch = tile
        copy.WidthInBytes, copy.Height = width, height
        return self._api.cuMemcpy2DAsync(copy, stream)[0]

    def _queue_out(self, tile: Place, host: Place, width: int, height: int, stream: Any) -> Any:
        """Queue a copy to the host; the status."""
        if _is_dense(width, height, host, tile):
            return self._api.cuMemcpyDtoHAsync(host.address, tile.address, width * height, stream)[0]
        if max(host.pitch, tile.pitch) > _LARGEST_PITCH:
            return _each(self._queue_out, tile, host, width, height, stream)
        copy = self._out
        copy.srcDevice, copy.srcPitch = tile
        copy.dstHost, copy.dstPitch = host
        copy.WidthInBytes, copy.Height = width, height
        return self._api.cuMemcpy2DAsync(copy, stream)[0]

    def _queue_peer(
        self, source: Place, target: Place, width: int, height: int, stream: Any, owner: Any, own: Any
    ) -> Any:
        """Queue a copy from the context of a peer to that of the stream; the status."""
        if _is_dense(width, height, source, target):
            nbytes = width * height
            return self._api.cuMemcpyPeerAsync(target.address, own, source.address, owner, nbytes, stream)[0]
        copy = self._peer
        copy.srcContext, copy.dstContext = owner, own
        copy.srcDevice, copy.srcPitch = source
        copy.dstDevice, copy.dstPitch = target
        copy.srcHeight = copy.dstHeight = height
        copy.WidthInBytes, copy.Height = width, height
        return self._api.cuMemcpy3DPeerAsync(copy, stream)[0]

    def _refused(self, status: Any, kind: str, nbytes: int, stream: Stream) -> MachineError:
        """The error for a copy that the driver refused."""
        device = stream.device
        failure = self._driver.error(status, f"a copy ({kind})", device)
        if device in self._driver.lost:
            return failure
        return CopyError(
            f"copy {kind} of device {device}, stream {stream.number}: the copy of {nbytes} bytes failed",
            f"the driver returned {status.name}",
            "no later work is queued; free and unpin, then try again or give up",
            device=device,
            stream=stream.number,
            kind=kind,
        )

    def _check_pinned(self, matrix: npt.NDArray[Any], start: int, nbytes: int, what: str) -> None:
        """Check that a pinned array holds a host matrix."""
        if not self._pins.holds(start, start + nbytes):
            raise UnpinnedError(
                f"{what} is a {matrix.dtype} matrix of shape {matrix.shape} that is not pinned",
                f"it lies in none of the {len(self._pins)} pinned arrays",
                "pin its array with CudaMachine.pin before the copy",
            )


def _is_dense(width: int, height: int, *places: Place) -> bool:
    """True if the columns follow one another without gaps."""
    return height == 1 or all(place.pitch == width for place in places)


def _each(queue: Any, source: Place, target: Place, width: int, height: int, stream: Any) -> Any:
    """Queue a copy column by column; the first status that is an error, or the last."""
    status: Any = None
    for column in range(height):
        pair = (Place(place.address + column * place.pitch, place.pitch) for place in (source, target))
        if status := queue(*pair, width, 1, stream):
            break
    return status
