"""Copies and reductions through tensor maps (PTX ISA 9.7.9.25.5).

Each becomes `simwarp.engine.asynchronous.transfers.Transfer`, one for each lane and each block that receives.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reference.devices.tensor_map import DATA_TYPES
from reference.errors import SchemeError, SimwarpError
from simwarp import tensormaps
from simwarp.engine.asynchronous import tensor_maps
from simwarp.engine.asynchronous.bulk_copies import barrier_of, in_turn, multicast, of_lane
from simwarp.engine.asynchronous.transfers import Transfer
from simwarp.engine.memory.accesses import examine, places
from simwarp.faults import KernelFault, Misaligned
from simwarp.fragments.swizzles import swizzled
from simwarp.ptx.instructions.tensor_maps import REDUCTIONS
from simwarp.ptx.rows import DTYPES

if TYPE_CHECKING:
    from reference.devices.tensor_map import TensorMap
    from simwarp.engine.state import Chunk
    from simwarp.memory import Memory
    from simwarp.program.program import Step
    from simwarp.tensormaps import Units

_Addresses = npt.NDArray[np.uint64]
_TILE = 128
"""Alignment of a tile in shared memory, in bytes."""
_NAN = 0x7FF7
"""The halves of the NaN that fills what is outside a tensor; no document names its bits."""
_LOW_BITS = 13
"""The bits of an f32 that a tf32 does not have."""


def copy(chunk: Chunk, step: Step) -> None:
    """Execute a tensor copy or reduction, one lane after the other."""
    assert chunk.transfers is not None
    for (lane,) in in_turn(chunk):
        transfer = _transfer(chunk, step, int(lane))
        if transfer is None:
            continue
        if step.form.has("multicast::cluster"):
            ranks = int(of_lane(chunk, step.sources[0](chunk), lane))
            for each in multicast(chunk, transfer, ranks):
                chunk.transfers.issue(chunk, each)
        else:
            chunk.transfers.issue(chunk, transfer)


def _transfer(chunk: Chunk, step: Step, lane: int) -> Transfer | None:
    """The transfer of the executing lane; None if its map, coordinates or addresses are invalid."""
    assert step.source is not None
    loads = step.barrier is not None
    tensor = tensor_maps.read(chunk, step.source if loads else step, lane)
    if tensor is None:
        return None
    try:
        units = _units(chunk, step, tensor, lane)
    except KernelFault:
        raise  # a coordinate register was never written
    except SimwarpError as error:
        tensor_maps.refuse(chunk, lane, error)
        return None
    inside, memory = units.inside, chunk.launch.memory
    target = _tile(chunk, step if loads else step.source, tensor, units, lane)
    if target is None:
        return None
    shared, tile = target
    outer = units.addresses[inside]
    if memory.updatable(outer, units.width) is None:
        verbs = ("read",) if loads else ("read", "write") if step.kind.updates else ("write",)
        examine(chunk, memory, outer, units.width, np.full(outer.size, lane), *verbs, follows=loads)
    moved = tensormaps.tile_bytes(tensor)[0]
    if not loads:
        combine = partial(_combined, step, tensor) if step.kind.updates else None
        to, tile = (memory, outer), tile[inside]
        return Transfer(step, lane, *to, units.width, shared, tile, combine=combine, bytes=moved)
    _check_exact(chunk, tensor, memory, units, lane)
    return Transfer(
        step,
        lane,
        shared,
        tile,
        units.width,
        memory,
        units.addresses,
        filled=None if inside.all() else ~inside,
        fill=_fill(tensor, units.width),
        swizzle=tensor.swizzle,
        barrier=barrier_of(chunk, step),
        bytes=moved,
    )


def _units(chunk: Chunk, step: Step, tensor: TensorMap, lane: int) -> Units:
    """The units (addresses inside and outside the tensor) that the executing lane's tensor copy moves.

    Raises
    ------
    SimwarpError
        If the instruction and the map do not fit.
    """
    images = step.form.has("im2col") or step.form.has("im2col_no_offs")
    if images != (tensor.im2col is not None):
        have, mode = ("an im2col", "tile") if tensor.im2col else ("a tiled", "im2col")
        raise SchemeError(
            f"a copy in .{mode} mode through {have} tensor map\nmap and instruction must have the same mode\n"
            "make the map with im2col= for copies of images, with box= for others"
        )
    coordinates = [int(of_lane(chunk, read(chunk), lane)) for read in step.coordinates]
    offsets = [int(of_lane(chunk, read(chunk), lane)) for read in step.offsets]
    stores = step.barrier is None
    tensormaps.check_coordinates(tensor, coordinates, offsets, stores)
    if not step.kind.updates:
        return tensormaps.units_of(tensor, coordinates, offsets, stores=stores)
    operation, kind = next(word for word in step.form.modifiers if word in REDUCTIONS), _kind(tensor)
    if kind not in REDUCTIONS[operation].split() or tensor.data_type not in _PLAIN:
        raise SchemeError(
            f"a reduction .{operation} of elements of {tensor.data_type}\n"
            f".{operation} takes {', '.join(REDUCTIONS[operation].split())}\n"
            "make the map with data_type= one of these"
        )
    return tensormaps.units_of(tensor, coordinates, offsets, tensor.itemsize, stores)


_PLAIN = [name for name in DATA_TYPES if not name.endswith("_ftz")]


def _tile(
    chunk: Chunk, access: Step, tensor: TensorMap, units: Units, lane: int
) -> tuple[Memory, _Addresses] | None:
    """Shared memory, and the addresses of a tile's units in it; None if the tile leaves its window."""
    assert access.base is not None
    start = of_lane(chunk, access.base(chunk), lane)
    if start % np.uint64(_TILE):
        fault = Misaligned(
            "a tile of a tensor copy that is misaligned in shared memory",
            f"byte {int(start):#x}, expected a multiple of {_TILE}",
            f"align the tile: alignas({_TILE}), or more for the swizzle's pattern to begin with it",
        )
        fault.address, fault.width, fault.space = int(start), _TILE, "shared"
        chunk.found(fault, lane)
        return None
    offsets = swizzled(start + units.offsets, tensor.swizzle) - start
    for place in places(chunk, access, int(offsets.max()) + units.width):
        return place.memory, of_lane(chunk, place.address, lane) + offsets
    return None


def _fill(tensor: TensorMap, width: int) -> Any:
    """The ``width`` bytes that a tensor copy writes for an element outside the tensor: zeros or NaN."""
    half = _NAN if tensor.fill == "nan" else 0
    return np.full(-(-width // 2), half, np.uint16).view(np.uint8)[:width].view(f"V{width}")[0]


def _check_exact(chunk: Chunk, tensor: TensorMap, memory: Memory, units: Units, lane: int) -> None:
    """Report elements that the map's data type cannot represent: the chip's conversion is not documented."""
    if tensor.data_type in ("tfloat32", *(name for name in DATA_TYPES if name not in _PLAIN)):
        at = units.addresses[units.inside]
        words = memory.read(at, np.dtype(f"V{units.width}")).view(np.uint8)
        bits = words[: words.size // 4 * 4].view(np.uint32)
        lost = np.zeros(bits.shape, np.bool_)
        if tensor.data_type.startswith("tfloat32"):
            lost |= (bits & np.uint32((1 << _LOW_BITS) - 1)) != 0
        if tensor.data_type not in _PLAIN:
            lost |= ((bits & np.uint32(0x7F800000)) == 0) & ((bits & np.uint32(0x7FFFFFFF)) != 0)
        if lost.any():
            error = SchemeError(
                f"a copy of {int(bits[lost][0]):#010x} as {tensor.data_type}, which cannot hold it\n"
                "no document tells how the copy engine rounds or flushes\n"
                "round before, or copy as float32"
            )
            tensor_maps.refuse(chunk, lane, error)


def _kind(tensor: TensorMap) -> str:
    """The PTX type of a tensor map's elements, such as "f32"."""
    return DATA_TYPES[tensor.data_type][1]


def _combined(
    step: Step, tensor: TensorMap, old: npt.NDArray[Any], new: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """New values of a tensor's elements after ``cp.reduce.async.bulk.tensor``: old combined with new."""
    dtype = DTYPES[_kind(tensor)]
    result = step.function(old.view(dtype), new.view(dtype), kind=_kind(tensor))
    return np.ascontiguousarray(result).view(old.dtype)
