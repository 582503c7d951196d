"""Copies of matrices between a host and devices: one call of the driver each, where it can be."""

from __future__ import annotations

from typing import Any

from gpu.cuda_machine.driver import Driver
from gpu.cuda_machine.memory import Place
from reference.errors import CopyError, MachineError

_LARGEST_PITCH = 2**31 - 1
"""The largest pitch of the driver's copies of matrices, on all present devices."""


class Copies:
    """Queues copies in streams of the driver.

    The structures of arguments are made once: the driver reads them before its call returns.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver, self._api = driver, driver.api
        kinds = self._api.CUmemorytype
        self._in, self._out = self._api.CUDA_MEMCPY2D(), self._api.CUDA_MEMCPY2D()
        self._in.srcMemoryType = self._out.dstMemoryType = kinds.CU_MEMORYTYPE_HOST
        self._in.dstMemoryType = self._out.srcMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        self._peer = self._api.CUDA_MEMCPY3D_PEER()
        self._peer.srcMemoryType = self._peer.dstMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        self._peer.Depth = 1

    def queue_in(self, host: Place, tile: Place, width: int, height: int, stream: Any) -> Any:
        """Queue a copy of ``height`` columns of ``width`` bytes to a device; the status."""
        if _is_dense(width, height, host, tile):
            return self._api.cuMemcpyHtoDAsync(tile.address, host.address, width * height, stream)[0]
        if max(host.pitch, tile.pitch) > _LARGEST_PITCH:
            return _each(self.queue_in, host, tile, width, height, stream)
        copy = self._in
        copy.srcHost, copy.srcPitch = host
        copy.dstDevice, copy.dstPitch = tile
        copy.WidthInBytes, copy.Height = width, height
        return self._api.cuMemcpy2DAsync(copy, stream)[0]

    def queue_out(self, tile: Place, host: Place, width: int, height: int, stream: Any) -> Any:
        """Queue a copy to the host; the status."""
        if _is_dense(width, height, host, tile):
            return self._api.cuMemcpyDtoHAsync(host.address, tile.address, width * height, stream)[0]
        if max(host.pitch, tile.pitch) > _LARGEST_PITCH:
            return _each(self.queue_out, tile, host, width, height, stream)
        copy = self._out
        copy.srcDevice, copy.srcPitch = tile
        copy.dstHost, copy.dstPitch = host
        copy.WidthInBytes, copy.Height = width, height
        return self._api.cuMemcpy2DAsync(copy, stream)[0]

    def queue_peer(
        self, source: Place, owner: Any, target: Place, own: Any, width: int, height: int, stream: Any
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

    def error(self, kind: str, nbytes: int, device: int, stream: int, status: Any) -> MachineError:
        """The error for a copy that the driver refused."""
        failure = self._driver.error(status, f"a copy ({kind})", device)
        if device in self._driver.lost:
            return failure
        return CopyError(
            f"copy {kind} of device {device}, stream {stream}: the copy of {nbytes} bytes failed",
            f"the driver returned {status.name}",
            "no later work is queued; free and unpin, then try again or give up",
            device=device,
            stream=stream,
            kind=kind,
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
