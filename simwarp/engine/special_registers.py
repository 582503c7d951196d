"""The values of the special registers (PTX ISA chapter 10) for all lanes of a chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.lanes import LANE, WARP_SIZE
from simwarp.ptx.spaces import RESERVED, RESERVED_AT, RESERVED_IN_USE

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk

_AXES = "xyz"
_SHARED_UNIT = 128
"""The allocation granularity of shared memory in bytes (sm_80 and later)."""


def value(chunk: Chunk, name: str) -> Any:
    """The value of the special register ``name``; counters are read each time, the others once per chunk.

    Counters (``%clock``, ``%globaltimer`` …) count the thread-instructions of the chunk: they never
    run backwards, and a launch gives the same numbers every time.
    """
    if name in COUNTERS:
        if chunk.launch.journal is not None:
            chunk.launch.journal.timed = True
        return COUNTERS[name](chunk)
    if name not in chunk.special_values:
        group, _, axis = name[1:].partition(".")
        known = FIXED[group]
        chunk.special_values[name] = known(chunk, _AXES.index(axis)) if axis else known(chunk, 0)
    return chunk.special_values[name]


def index_3d(linear: Any, size: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    """The (x, y, z) index of a thread or block, from its linear index."""
    x, y, _ = size
    return linear % x, linear // x % y, linear // (x * y)


def _thread(chunk: Chunk, axis: int) -> Any:
    of_block = np.arange(chunk.warps_per_block * WARP_SIZE).reshape(-1, WARP_SIZE)
    index = index_3d(of_block, chunk.launch.block)[axis]
    return index.astype(np.uint32)[chunk.warp_in_block[:, 0]]


def _block(chunk: Chunk, axis: int) -> Any:
    return index_3d(chunk.block, chunk.launch.grid)[axis].astype(np.uint32)


def _in_cluster(chunk: Chunk, axis: int) -> Any:
    return _block(chunk, axis) % np.uint32(chunk.launch.cluster[axis])


def _cluster(chunk: Chunk, axis: int) -> Any:
    return _block(chunk, axis) // np.uint32(chunk.launch.cluster[axis])


def _cluster_rank(chunk: Chunk, _: int) -> Any:
    x, y, _z = chunk.launch.cluster
    i, j, k = (_in_cluster(chunk, axis) for axis in range(3))
    return i + np.uint32(x) * (j + np.uint32(y) * k)


def _below(chunk: Chunk, _: int) -> Any:
    return (np.left_shift(np.uint64(1), LANE.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)


def _own(chunk: Chunk, _: int) -> Any:
    return np.left_shift(np.uint32(1), LANE)


def _environment(index: int) -> Callable[[Chunk, int], Any]:
    """``%envreg1`` and ``%envreg2``: the address of the grid barrier's workspace, high word first."""
    shift = {1: 32, 2: 0}.get(index)
    if shift is None:
        return lambda chunk, _: np.uint32(0)
    return lambda chunk, _: np.uint32(chunk.launch.workspace >> shift & 0xFFFFFFFF)


def _number(read: Callable[[Chunk], int]) -> Callable[[Chunk, int], Any]:
    return lambda chunk, _: np.uint32(read(chunk))


FIXED: dict[str, Callable[[Chunk, int], Any]] = {
    "tid": _thread,
    "ntid": lambda chunk, axis: np.uint32(chunk.launch.block[axis]),
    "ctaid": _block,
    "nctaid": lambda chunk, axis: np.uint32(chunk.launch.grid[axis]),
    "laneid": lambda chunk, _: LANE.reshape(1, -1),
    "warpid": lambda chunk, _: chunk.warp_in_block.astype(np.uint32),
    "nwarpid": _number(lambda chunk: chunk.warps_per_block),
    "smid": lambda chunk, _: (chunk.block % chunk.launch.multiprocessors).astype(np.uint32),
    "nsmid": _number(lambda chunk: chunk.launch.multiprocessors),
    "gridid": lambda chunk, _: np.uint64(chunk.launch.number),
    "is_explicit_cluster": lambda chunk, _: np.bool_(chunk.launch.explicit_cluster),
    "clusterid": _cluster,
    "nclusterid": lambda chunk, axis: np.uint32(chunk.launch.grid[axis] // chunk.launch.cluster[axis]),
    "cluster_ctaid": _in_cluster,
    "cluster_nctaid": lambda chunk, axis: np.uint32(chunk.launch.cluster[axis]),
    "cluster_ctarank": _cluster_rank,
    "cluster_nctarank": _number(lambda chunk: chunk.launch.blocks_per_cluster),
    "lanemask_eq": _own,
    "lanemask_lt": _below,
    "lanemask_le": lambda chunk, _: _below(chunk, 0) | _own(chunk, 0),
    "lanemask_gt": lambda chunk, _: ~(_below(chunk, 0) | _own(chunk, 0)),
    "lanemask_ge": lambda chunk, _: ~_below(chunk, 0),
    "dynamic_smem_size": _number(lambda chunk: chunk.launch.dynamic_shared),
    "total_smem_size": _number(
        # total shared memory without the reserved part
        lambda chunk: -(-chunk.launch.shared_size // _SHARED_UNIT) * _SHARED_UNIT
    ),
    "aggr_smem_size": _number(lambda chunk: chunk.launch.shared_size + RESERVED),
    "reserved_smem_offset_begin": lambda chunk, _: np.uint32(RESERVED_AT),
    "reserved_smem_offset_end": lambda chunk, _: np.uint32(RESERVED_AT + RESERVED_IN_USE),
    "reserved_smem_offset_cap": lambda chunk, _: np.uint32(RESERVED),
    "reserved_smem_offset_0": lambda chunk, _: np.uint32(RESERVED_AT),
    "reserved_smem_offset_1": lambda chunk, _: np.uint32(RESERVED_AT),
    **{f"envreg{i}": _environment(i) for i in range(32)},
}
"""Name without axis → the value, for registers that are constant while a block runs."""

COUNTERS: dict[str, Callable[[Chunk], Any]] = {
    "%clock": lambda chunk: np.uint32(chunk.executed & 0xFFFFFFFF),
    "%clock_hi": lambda chunk: np.uint32(chunk.executed >> 32),
    "%clock64": lambda chunk: np.uint64(chunk.executed),
    "%globaltimer": lambda chunk: np.uint64(chunk.executed),
    "%globaltimer_lo": lambda chunk: np.uint32(chunk.executed & 0xFFFFFFFF),
    "%globaltimer_hi": lambda chunk: np.uint32(chunk.executed >> 32),
    **{f"%pm{i}": lambda chunk: np.uint32(0) for i in range(8)},
    **{f"%pm{i}_64": lambda chunk: np.uint64(0) for i in range(8)},
}
