"""Tensor maps in memory: reads by copies, changes by instructions, and the fences between the two.

Copies read a map by the tensormap proxy. What changed the map, they see only behind a release by the block
that changed it and an acquire of its address by the block that copies (PTX ISA 9.0, sections 9.7.13.4 and
9.7.13.16); the end of a launch orders all. An ordinary store into a map is noticed by the next copy of a
block that has used the map before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError, SimwarpError
from simwarp import tensormaps
from simwarp.engine.asynchronous.bulk_copies import in_turn, of_lane
from simwarp.engine.memory.accesses import announce_store, examine, places
from simwarp.faults import BarrierFault, Misaligned, MissingProxyFence, TensorMapFault
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.spaces import NAMES, WINDOWS

if TYPE_CHECKING:
    from reference.devices.tensor_map import TensorMap
    from simwarp.engine.memory.accesses import Place
    from simwarp.engine.state import Chunk
    from simwarp.memory import Memory
    from simwarp.program.program import Step

_PIECE = np.dtype("V16")
_PIECES = np.arange(0, tensormaps.SIZE, _PIECE.itemsize, dtype=np.uint64)
_FENCES = "execute fence.proxy.tensormap::generic.release after the change, and .acquire before the copy"


@dataclass
class _Change:
    """A change of a tensor map: its thread, whether it was released, and the blocks that acquired it."""

    block: int
    step: Step
    thread: int
    released: bool = False
    acquired: set[int] = field(default_factory=set[int])


class ChangedMaps:
    """The tensor maps in global memory that a launch changed, and the bytes that its blocks have seen."""

    def __init__(self) -> None:
        self._changes: dict[int, _Change] = {}
        """By address."""
        self._seen: dict[tuple[int, int], bytes] = {}
        """Address and block → the map's bytes at its last use or acquire."""

    def change(self, chunk: Chunk, step: Step, address: int, lane: int, released: bool) -> None:
        """Record that a lane changed the tensor map at an address."""
        self._changes[address] = _Change(_block(chunk, lane), step, _thread(chunk, lane), released)

    def release(self, chunk: Chunk) -> None:
        """Release the map changes that threads of the executing blocks made."""
        blocks = set(chunk.block[chunk.mask.any(axis=1), 0].tolist())
        for change in self._changes.values():
            change.released |= change.block in blocks

    def acquire(self, chunk: Chunk, address: int, lane: int) -> None:
        """Make the released changes of a map visible to a lane's block."""
        change, block = self._changes.get(address), _block(chunk, lane)
        if change is not None and change.released:
            change.acquired.add(block)
        self._seen.pop((address, block), None)

    def check(self, chunk: Chunk, address: int, lane: int, data: bytes) -> None:
        """Report a lane that uses a map without the fences since its change."""
        change, block = self._changes.get(address), _block(chunk, lane)
        seen = self._seen.setdefault((address, block), data)
        if change is not None and block not in change.acquired:
            where = chunk.place_of(change.thread, change.step)
            since = "acquired" if change.released else "released"
            what = f"a tensor map that an instruction changed, not {since} since"
            fault = MissingProxyFence(what, "", _FENCES)
            fault.other = where
            fault.note("changed here by", where)
        elif seen != data:
            what = "a tensor map that was overwritten since the block's last use of it"
            fault = MissingProxyFence(what, "no fence of the tensormap proxy between the two", _FENCES)
        else:
            return
        fault.address, fault.width, fault.space = address, tensormaps.SIZE, "global"
        self._seen[address, block] = data
        chunk.found(fault, lane)


def read(chunk: Chunk, access: Step, lane: int) -> TensorMap | None:
    """The tensor map at a lane's address; None, after a fault, if the bytes there are not a valid map."""
    assert access.base is not None
    address = int(of_lane(chunk, access.base(chunk), lane))
    space = NAMES.get(address >> 40, "global")
    launch = chunk.launch
    memories: dict[str, Memory] = {"global": launch.memory, "const": launch.constants}
    if space == "param":
        memories["param"] = launch.parameter_memory
    if space not in memories:
        _report(
            chunk,
            lane,
            f"a tensor map in {space} memory",
            f"address {address:#x}",
            "keep it in a kernel parameter, in constant or in global memory",
        )
        return None
    at = address - WINDOWS.get(space, 0)
    data = _bytes(chunk, memories[space], at, lane)
    if data is None:
        return None
    if space == "global":
        launch.changed_maps.check(chunk, at, lane, data)
    try:
        tensor = tensormaps.decode(data)
        tensor.check()
    except SimwarpError as error:
        _report(chunk, lane, *_lines(error))
        return None
    return tensor


def execute(chunk: Chunk, step: Step) -> None:
    """Execute ``tensormap.replace``, or a fence that orders changes of maps before copies, lane by lane."""
    if step.base is None:
        chunk.launch.changed_maps.release(chunk)
        return
    for (lane,) in in_turn(chunk, None if step.source is None else _whole_warps(chunk)):
        for place in places(chunk, step, tensormaps.SIZE):
            if step.form.has("acquire"):
                chunk.launch.changed_maps.acquire(chunk, _address(chunk, place, lane), lane)
            elif step.source is not None:
                _copy(chunk, step, step.source, place, lane)
            else:
                _replace(chunk, step, place, lane)


def _whole_warps(chunk: Chunk) -> list[npt.NDArray[np.int64]]:
    """The first executing lane of each warp; a warp of which some lanes do not execute is a fault."""
    lanes = np.flatnonzero(chunk.mask)
    firsts = lanes[np.unique(lanes // WARP_SIZE, return_index=True)[1]]
    missing = (chunk.live & ~chunk.mask) & chunk.mask.any(axis=1, keepdims=True)
    if missing.any():
        fault = BarrierFault(
            "an aligned instruction that some lanes of a warp do not execute",
            f"{np.count_nonzero(missing)} lanes are missing",
            "let all lanes of the warp execute it together",
        )
        chunk.found(fault, int(firsts[0]))
    return np.split(firsts, firsts.size)


def _copy(chunk: Chunk, step: Step, source: Step, place: Place, lane: int) -> None:
    """Copy a map from shared to global memory, and release it."""
    for there in places(chunk, source, tensormaps.SIZE):
        data = _bytes(chunk, there.memory, _address(chunk, there, lane), lane)
        if data is not None:
            _write(chunk, step, place, lane, data)
            chunk.launch.changed_maps.change(chunk, step, _address(chunk, place, lane), lane, released=True)


def _replace(chunk: Chunk, step: Step, place: Place, lane: int) -> None:
    """Execute ``tensormap.replace``: replace one field of the tensor map at a lane's address."""
    at = _address(chunk, place, lane)
    data = _bytes(chunk, place.memory, at, lane)
    if data is None:
        return
    *ordinal, value = (int(of_lane(chunk, given(chunk), lane)) for given in step.sources)
    try:
        changed = tensormaps.replaced(tensormaps.decode(data), step.form.modifiers[0], value, *ordinal)
    except FormatError as error:
        _report(chunk, lane, *_lines(error))
        return
    _write(chunk, step, place, lane, tensormaps.encode(changed))
    if place.space == "global":
        chunk.launch.changed_maps.change(chunk, step, at, lane, released=False)


def _bytes(chunk: Chunk, memory: Memory, at: int, lane: int) -> bytes | None:
    """The 128 bytes at an address; None if one of them is out of bounds, misaligned or uninitialised."""
    if at % tensormaps.ALIGNMENT:
        fault = Misaligned(
            "a misaligned tensor map",
            f"address {at:#x}, expected a multiple of {tensormaps.ALIGNMENT}",
            "align it: alignas(64), or .align 64",
        )
        fault.address, fault.width, fault.space = at, tensormaps.SIZE, memory.space
        chunk.found(fault, lane)
        return None
    pieces = np.uint64(at) + _PIECES
    data = memory.peek(pieces, _PIECE)
    if data is None:
        examine(chunk, memory, pieces, _PIECE.itemsize, np.full(pieces.size, lane), "read")
        return None
    return data.tobytes()


def _write(chunk: Chunk, step: Step, place: Place, lane: int, data: bytes) -> None:
    """Write the bytes of a map, with the checks of a store."""
    at, pieces = np.uint64(_address(chunk, place, lane)) + _PIECES, np.frombuffer(data, _PIECE)
    for one, piece in zip(at, pieces, strict=True):
        announce_store(chunk, step, place, np.array([one]), np.array([piece]))
    if chunk.launch.journal is not None:
        chunk.launch.journal.note(place.memory, at, _PIECE.itemsize)
    place.memory.write(at, pieces)


def _address(chunk: Chunk, place: Place, lane: int) -> int:
    """The address that a lane accesses in the memory of ``place``."""
    return int(of_lane(chunk, place.address, lane))


def _block(chunk: Chunk, lane: int) -> int:
    return int(chunk.block[lane // WARP_SIZE, 0])


def _thread(chunk: Chunk, lane: int) -> int:
    return int(chunk.thread.reshape(-1)[lane])


def _lines(error: SimwarpError) -> tuple[str, str, str]:
    """An error's message as the parts of a fault: first line, values, and advice joined by ";"."""
    what, values, *advice = str(error).split("\n")
    return what, values, "; ".join(advice)


def _report(chunk: Chunk, lane: int, what: str, values: str, advice: str) -> None:
    chunk.found(TensorMapFault(what, values, advice), lane)


def refuse(chunk: Chunk, lane: int, error: SimwarpError) -> None:
    """Report a copy that its tensor map does not allow."""
    _report(chunk, lane, *_lines(error))
