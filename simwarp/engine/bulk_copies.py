"""Bulk copies and reductions, ``st.async`` and ``red.async``: their operands (PTX ISA 9.7.9.25.4).

They become `simwarp.engine.transfers.Transfer`, one for each lane and each block that receives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.accesses import Place, examine, places
from simwarp.engine.transfers import Transfer
from simwarp.faults import Misaligned, OutOfBounds
from simwarp.ptx.rows import DTYPES

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk
    from simwarp.program.program import Step

_UNIT = 16
"""Sizes and addresses of bulk copies are multiples of this many bytes."""


def copy(chunk: Chunk, step: Step) -> None:
    """Execute a bulk copy or reduction, one lane after the other."""
    mask, alone, needed = chunk.mask, chunk.alone, chunk.needed
    transfers = chunk.transfers
    assert transfers is not None
    for lane in np.flatnonzero(mask).tolist():
        one = np.zeros_like(mask)
        one.reshape(-1)[lane] = True
        chunk.enter(one, alone=False)
        transfer = _stored(chunk, step, lane) if step.source is None else _copied(chunk, step, lane)
        if transfer is not None:
            for one_of in _of_blocks(chunk, step, transfer):
                transfers.issue(chunk, one_of)
    chunk.enter(mask, alone, needed)


def group(chunk: Chunk, step: Step) -> None:
    """Execute a commit, or a wait for bulk groups."""
    assert chunk.transfers is not None
    if step.sources:
        chunk.transfers.wait(chunk, int(step.sources[0](chunk)), step.form.has("read"))
    else:
        chunk.transfers.commit(chunk)


def _copied(chunk: Chunk, step: Step, lane: int) -> Transfer | None:
    """The transfer of the executing lane's bulk copy; None if one of its addresses is bad."""
    assert step.source is not None
    size = int(_of_lane(chunk, step.sources[0], lane))
    if size % _UNIT:
        fault = Misaligned(
            f"a bulk copy of {size} bytes",
            f"expected a multiple of {_UNIT} bytes",
            f"copy whole units of {_UNIT} bytes, and the rest by ordinary instructions",
            width=_UNIT,
        )
        chunk.found(fault, lane)
        size -= size % _UNIT
    width = step.form.dtype.itemsize if step.form.T else _UNIT
    target = place_of(chunk, step, size, lane, "write")
    source = place_of(chunk, step.source, size, lane, "read")
    if source is None or target is None:
        return None
    offsets = np.arange(0, size, width, dtype=np.uint64)
    barrier = barrier_of(chunk, step)
    return Transfer(
        step,
        lane,
        target.memory,
        _pick(chunk, target.address, lane) + offsets,
        width,
        source.memory,
        _pick(chunk, source.address, lane) + offsets,
        combine=_combination(step, target),
        barrier=barrier,
        bytes=size,
    )


def _stored(chunk: Chunk, step: Step, lane: int) -> Transfer | None:
    """The transfer of the executing lane's ``st.async`` or ``red.async``; None if its address is bad."""
    dtype, count = DTYPES[step.form.T], step.form.vector
    given = step.sources[0](chunk)
    values = given if count > 1 else [given]
    data = np.array([_pick(chunk, value, lane) for value in values], dtype)
    target = place_of(chunk, step, dtype.itemsize * count, lane, "write", dtype.itemsize * count)
    if target is None:
        return None
    offsets = np.arange(count, dtype=np.uint64) * np.uint64(dtype.itemsize)
    return Transfer(
        step,
        lane,
        target.memory,
        _pick(chunk, target.address, lane) + offsets,
        dtype.itemsize,
        data=data.view(f"V{dtype.itemsize}"),
        combine=_combination(step, target),
        barrier=barrier_of(chunk, step),
        bytes=dtype.itemsize * count,
    )


def _of_blocks(chunk: Chunk, step: Step, transfer: Transfer) -> Iterator[Transfer]:
    """A transfer to each block that a multicast names; else the transfer itself."""
    if not step.form.has("multicast::cluster"):
        yield transfer
        return
    ranks = int(_of_lane(chunk, step.sources[1], transfer.lane))
    yield from multicast(chunk, transfer, ranks)


def multicast(chunk: Chunk, transfer: Transfer, ranks: int) -> Iterator[Transfer]:
    """A transfer to each block of the cluster whose bit is set, at the same place of its shared memory."""
    blocks, stride = chunk.launch.blocks_per_cluster, np.uint64(chunk.shared_stride)
    if not 0 < ranks < 1 << blocks:
        fault = OutOfBounds(
            "a multicast to blocks that are not in the cluster",
            f"mask {ranks:#x}; the cluster has {blocks} blocks",
            "set one bit for each rank that receives",
        )
        chunk.found(fault, transfer.lane)
    block = int(chunk.block_in_chunk[transfer.lane // 32, 0])
    first = np.uint64(block - block % blocks)
    for rank in range(blocks):
        if ranks >> rank & 1:
            there = (first + np.uint64(rank)) * stride
            barrier = None if transfer.barrier is None else int(transfer.barrier % int(stride) + int(there))
            yield replace(transfer, writes=transfer.writes % stride + there, barrier=barrier)


def place_of(chunk: Chunk, step: Step, size: int, lane: int, verb: str, unit: int = _UNIT) -> Place | None:
    """Where the executing lane accesses ``size`` bytes, checked in units; None if its window ends before."""
    for place in places(chunk, step, size):
        at = _pick(chunk, place.address, lane) + np.arange(0, size, unit, dtype=np.uint64)
        if at.size:
            examine(chunk, place.memory, at, unit, np.full(at.size, lane), verb, follows=True)
        return place
    return None


def barrier_of(chunk: Chunk, step: Step) -> int | None:
    """The address in the chunk's shared memory of the mbarrier that counts the executing lane's copy."""
    if step.barrier is not None:
        for place in places(chunk, step.barrier, 8):
            return int(np.broadcast_to(place.address, chunk.mask.shape)[chunk.mask][0])
    return None


def _combination(step: Step, target: Place) -> Callable[[Any, Any], Any] | None:
    """The function that combines old and new units of a reduction; None for a copy."""
    if step.kind != "bulk reduction":
        return None
    return partial(_combined, step, target.space == "shared")


def _combined(step: Step, shared: bool, old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    dtype = DTYPES[step.form.T]
    result = step.function(old.view(dtype), new.view(dtype), shared=shared)
    return np.ascontiguousarray(result).view(old.dtype)


def _of_lane(chunk: Chunk, read: Callable[[Any], Any], lane: int) -> Any:
    return _pick(chunk, read(chunk), lane)


def _pick(chunk: Chunk, value: Any, lane: int) -> Any:
    return np.broadcast_to(value, chunk.mask.shape).reshape(-1)[lane]
