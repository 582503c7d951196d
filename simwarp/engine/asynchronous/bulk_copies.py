"""Bulk copies and reductions, ``st.async`` and ``red.async``: their operands (PTX ISA 9.7.9.25.4).

They become a `Transfer` of `simwarp.engine.asynchronous.transfers`, one for each lane and each block that
receives; values of one warp that one mbarrier counts are one transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.asynchronous.transfers import Transfer
from simwarp.engine.memory.accesses import Place, examine, places
from simwarp.faults import Misaligned, NotClustered, OutOfBounds
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.rows import DTYPES

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk
    from simwarp.program.program import Step

_UNIT = 16
"""Sizes and addresses of bulk copies are multiples of this many bytes."""


def copy(chunk: Chunk, step: Step) -> None:
    """Execute a bulk copy or reduction lane by lane; ``st.async`` and ``red.async`` warp by warp."""
    assert chunk.transfers is not None
    if not chunk.launch.explicit_cluster and (step.source is None or step.source.space == "shared"):
        _refuse_without_cluster(chunk, step)
    for lanes in in_turn(chunk, _together(chunk, step)):
        made = _stored(chunk, step) if step.source is None else _copied(chunk, step, int(lanes[0]))
        for transfer in made:
            for one_of in _of_blocks(chunk, step, transfer):
                chunk.transfers.issue(chunk, one_of)


def _refuse_without_cluster(chunk: Chunk, step: Step) -> None:
    """Raise a fault for a cluster operation in a launch without clusters, as an H200 does."""
    if step.barrier is not None:
        fault = NotClustered(
            f"{step.row.base} between blocks in a launch without clusters",
            "an illegal instruction on the device, also for a block's own shared memory",
            "launch it in clusters, if only of one block: cluster=, or __cluster_dims__ in its source",
        )
        raise chunk.placed(fault, chunk.mask)


def in_turn(
    chunk: Chunk, groups: Sequence[npt.NDArray[np.int64]] | None = None
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield groups of the executing lanes, by default one lane each; meanwhile only that group executes."""
    mask, alone, needed = chunk.mask, chunk.alone, chunk.needed
    for lanes in np.flatnonzero(mask)[:, None] if groups is None else groups:
        some = np.zeros_like(mask)
        some.reshape(-1)[lanes] = True
        chunk.enter(some, alone=False)
        yield lanes
    chunk.enter(mask, alone, needed)


def _together(chunk: Chunk, step: Step) -> list[npt.NDArray[np.int64]]:
    """The executing lanes in groups; the lanes of a group issue one transfer."""
    lanes = np.flatnonzero(chunk.mask)
    if step.source is not None or step.base is None or step.barrier is None or step.barrier.base is None:
        return np.split(lanes, lanes.size)
    barriers = np.broadcast_to(step.barrier.base(chunk), chunk.mask.shape).reshape(-1)[lanes]
    at = np.broadcast_to(step.base(chunk), chunk.mask.shape).reshape(-1)[lanes]
    groups = list[npt.NDArray[np.int64]]()
    for warp in np.unique(lanes // WARP_SIZE):
        for barrier in np.unique(barriers[lanes // WARP_SIZE == warp]):
            here = (lanes // WARP_SIZE == warp) & (barriers == barrier)
            apart = np.unique(at[here]).size == np.count_nonzero(here)
            groups += [lanes[here]] if apart else np.split(lanes[here], np.count_nonzero(here))
    return groups


def group(chunk: Chunk, step: Step) -> None:
    """Execute a commit, or a wait for bulk groups."""
    assert chunk.transfers is not None
    if step.sources:
        chunk.transfers.wait(chunk, int(step.sources[0](chunk)), step.form.has("read"))
    else:
        chunk.transfers.commit(chunk)


def _copied(chunk: Chunk, step: Step, lane: int) -> Iterator[Transfer]:
    """The transfer of the executing lane's bulk copy; none if one of its addresses is invalid."""
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
        return
    offsets = np.arange(0, size, width, dtype=np.uint64)
    barrier = barrier_of(chunk, step)
    yield Transfer(
        step,
        lane,
        target.memory,
        of_lane(chunk, target.address, lane) + offsets,
        width,
        source.memory,
        of_lane(chunk, source.address, lane) + offsets,
        combine=_combination(step, target),
        barrier=barrier,
        bytes=size,
    )


def _stored(chunk: Chunk, step: Step) -> Iterator[Transfer]:
    """The transfer of the executing lanes' ``st.async`` or ``red.async``; none if an address is invalid."""
    dtype, count = DTYPES[step.form.T], step.form.vector
    given = step.sources[0](chunk)
    for place in places(chunk, step, dtype.itemsize * count):
        mask, lanes = chunk.mask, np.flatnonzero(chunk.mask)
        at = np.broadcast_to(place.address, mask.shape)[mask]
        _examine(chunk, step, place, at, dtype.itemsize * count, lanes, "write")
        values = [np.broadcast_to(value, mask.shape)[mask] for value in (given if count > 1 else [given])]
        data = np.stack(values, axis=1).astype(dtype).reshape(-1)
        offsets = np.arange(count, dtype=np.uint64) * np.uint64(dtype.itemsize)
        yield Transfer(
            step,
            int(lanes[0]),
            place.memory,
            (at[:, None] + offsets).reshape(-1),
            dtype.itemsize,
            data=data.view(f"V{dtype.itemsize}"),
            combine=_combination(step, place),
            barrier=barrier_of(chunk, step),
            bytes=data.nbytes,
            lanes=np.repeat(lanes, count),
        )


def _of_blocks(chunk: Chunk, step: Step, transfer: Transfer) -> Iterator[Transfer]:
    """A transfer to each block that a multicast names; else the transfer itself."""
    if not step.form.has("multicast::cluster"):
        yield transfer
        return
    ranks = int(_of_lane(chunk, step.sources[1], transfer.lane))
    yield from multicast(chunk, transfer, ranks)


def multicast(chunk: Chunk, transfer: Transfer, ranks: int) -> Iterator[Transfer]:
    """A transfer to each block of the cluster whose bit is set, at the same offset in its shared memory."""
    blocks, stride = chunk.launch.blocks_per_cluster, np.uint64(chunk.shared_stride)
    if not 0 < ranks < 1 << blocks:
        fault = OutOfBounds(
            "a multicast to blocks that are not in the cluster",
            f"mask {ranks:#x}; the cluster has {blocks} blocks",
            "set one bit for each rank that receives",
        )
        chunk.found(fault, transfer.lane)
    block = int(chunk.block_in_chunk[transfer.lane // WARP_SIZE, 0])
    first = np.uint64(block - block % blocks)
    receivers = [rank for rank in range(blocks) if ranks >> rank & 1]
    for rank in receivers:
        there = (first + np.uint64(rank)) * stride
        barrier = None if transfer.barrier is None else int(transfer.barrier % int(stride) + int(there))
        repeated = rank != receivers[0]
        yield replace(transfer, writes=transfer.writes % stride + there, barrier=barrier, repeated=repeated)


def place_of(chunk: Chunk, step: Step, size: int, lane: int, verb: str, unit: int = _UNIT) -> Place | None:
    """The memory that a lane accesses, ``size`` bytes checked in units; None if they exceed its window."""
    for place in places(chunk, step, size):
        at = of_lane(chunk, place.address, lane) + np.arange(0, size, unit, dtype=np.uint64)
        if at.size:
            _examine(chunk, step, place, at, unit, np.full(at.size, lane), verb)
        return place
    return None


def _examine(chunk: Chunk, step: Step, place: Place, at: Any, unit: int, lanes: Any, verb: str) -> None:
    """Report the faults of a transfer's reads or writes; a reduction also reads its target."""
    reduces = step.kind.updates and verb == "write"
    verbs = ("read", "write") if reduces else (verb,)
    examine(chunk, place.memory, at, unit, lanes, *verbs, follows=not reduces)


def barrier_of(chunk: Chunk, step: Step) -> int | None:
    """The address in the chunk's shared memory of the mbarrier that counts the executing lane's copy."""
    if step.barrier is not None:
        for place in places(chunk, step.barrier, 8):
            return int(np.broadcast_to(place.address, chunk.mask.shape)[chunk.mask][0])
    return None


def _combination(step: Step, target: Place) -> Callable[[Any, Any], Any] | None:
    """The function that combines old and new units of a reduction; None for a copy."""
    if not step.kind.updates:
        return None
    return partial(_combined, step, target.space == "shared")


def _combined(step: Step, shared: bool, old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    dtype = DTYPES[step.form.T]
    result = step.function(old.view(dtype), new.view(dtype), shared=shared)
    return np.ascontiguousarray(result).view(old.dtype)


def _of_lane(chunk: Chunk, read: Callable[[Any], Any], lane: int) -> Any:
    return of_lane(chunk, read(chunk), lane)


def of_lane(chunk: Chunk, value: Any, lane: int) -> Any:
    """The element of a (warps, 32) value that belongs to a lane."""
    return np.broadcast_to(value, chunk.mask.shape).reshape(-1)[lane]
