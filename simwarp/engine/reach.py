"""Which allocations each access of a launch may reach: those that its address was computed from.

A pointer that runs past the end of its array may well land in another one, however far that lies. So an
access is judged by the allocations that its pointers lie in, where these are known: the arguments and
variables that flow into the address (`simwarp.program.provenance`). An address that was loaded from memory,
or passed to a device function, may be any. In the same way a variable in shared memory ends where the
next one starts, a local variable likewise, and a thread's local memory where the frame of the current
function ends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simwarp.faults import OutOfBounds
from simwarp.program.frames import is_whole, name_of
from simwarp.program.provenance import ANYTHING, GRID_BARRIER, Origins, known_origins, symbols_of
from simwarp.ptx.spaces import WINDOW

if TYPE_CHECKING:
    from simwarp.allocation import Allocation
    from simwarp.engine.chunk import Chunk, Mask
    from simwarp.engine.launch import Launch
    from simwarp.memory import Memory

FRAME = "the function's stack frame"
_FRAME = "; a variable is gone when its function has returned"
_MALLOC = "malloc("


class Windows(dict[int, "Window"]):
    """By the number of a step: what it may access of a block's shared memory."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self._launch = launch

    def __missing__(self, number: int) -> Window:
        launch = self._launch
        origins: Origins = ANYTHING
        if launch.checks.action("bounds") != "off":
            origins = known_origins(launch.program, launch.symbols).get(number, ANYTHING)
        names = [] if origins >= ANYTHING else symbols_of(origins)
        extents = [launch.program.shared_variables[name] for name in names]
        first, end = min((a for a, _ in extents), default=0), max((b for _, b in extents), default=WINDOW)
        self[number] = Window(first, min(end, launch.shared_size), " or ".join(map(plain, sorted(names))))
        return self[number]


class Frames(dict[int, "Window"]):
    """By the number of a step: what it may access of its function's frame; if all, of the callers' too."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self._launch = launch

    def __missing__(self, number: int) -> Window:
        launch, routine = self._launch, self._launch.program.routine_at(number)
        origins: Origins = ANYTHING
        if launch.checks.action("bounds") != "off":
            origins = known_origins(launch.program, launch.symbols).get(number, ANYTHING)
        names = [] if origins >= ANYTHING else sorted(symbols_of(origins, "frame"))
        extents = [routine.local_variables.get(name, (0, routine.frame)) for name in names]
        window = Window(0, routine.frame, FRAME)
        if names and not any(map(is_whole, names)):
            whose = " or ".join(name_of(name, b - a) for name, (a, b) in zip(names, extents, strict=True))
            window = Window(min(a for a, _ in extents), max(b for _, b in extents), whose)
        self[number] = window
        return window


class Window(NamedTuple):
    """Bytes ``first`` to before ``end``, and the variables that lie there; "" for all of them."""

    first: int
    end: int
    names: str


def plain(name: str) -> str:
    """The name of a variable as CUDA C++ has it."""
    found = re.search(r"E(\d+)(\w+)$", name) if name.startswith("_Z") else None
    return name if found is None else found[2][: int(found[1])]


class Reach(dict[int, "Memory"]):
    """By the number of a step: the global memory that it may access."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self._launch = launch
        self._origins: dict[int, Origins] = {}
        if launch.checks.action("bounds") != "off":
            self._origins = known_origins(launch.program, launch.symbols)
        self._known: dict[Origins, Memory] = {}

    def __missing__(self, number: int) -> Memory:
        origins = self._origins.get(number, ANYTHING)
        if origins not in self._known:
            found = None if origins >= ANYTHING else self._allocations(origins)
            memory = self._launch.memory
            self._known[origins] = memory.part(found) if found else memory
        self[number] = self._known[origins]
        return self[number]

    def _allocations(self, origins: Origins) -> list[Allocation] | None:
        """Those that addresses of some origins lie in; None if they may lie in any."""
        launch, found = self._launch, set["Allocation"]()
        for origin in origins:
            for address in addresses_of(launch, origin):
                beside = launch.memory.around(address)
                if any(allocation.name.startswith(_MALLOC) for allocation in beside):
                    return None  # the kernel itself may free it
                found |= set(beside)
        return sorted(found, key=lambda allocation: allocation.base)


# ---- windows ----------------------------------------------------------------------------------------


def outside(chunk: Chunk, address: Any, width: int, first: Any, end: Any) -> Mask | None:
    """The executing lanes whose access does not lie from ``first`` on and before ``end``; None if all do."""
    if np.ndim(end) or end < width:
        bad = (address > end) | (address + np.uint64(width) > end)
    else:
        bad = address > end - np.uint64(width)
    if np.ndim(first) or first:
        bad = bad | (address < np.uint64(first))
    bad = bad & chunk.mask
    return bad if bad.any() else None


def leave_out(
    chunk: Chunk, address: Any, width: int, bad: Mask, window: tuple[str, int], part: str, advice: str
) -> None:
    """Find that lanes leave their part of a block's or thread's window; if checks do not raise, skip them."""
    lane, (what, size) = int(bad.argmax()), window
    offset = int(np.broadcast_to(address, chunk.mask.shape).reshape(-1)[lane])
    if offset + width <= size and part:
        what, advice = part, f"index within the array{_FRAME * (part == FRAME)}"
    values, space = f"offset {offset:#x} of {size} bytes", window[0].partition(" ")[0]
    fault = OutOfBounds(f"access of {width} bytes outside {what}", values, advice, allocation=what)
    fault.address, fault.width, fault.space, fault.offset = offset, width, space, offset
    chunk.found(fault, bad)
    chunk.enter(chunk.mask & ~bad, alone=False)


def addresses_of(launch: Launch, origin: str) -> list[int]:
    """What an origin gives that may be an address in global memory."""
    what, _, name = origin.partition(" ")
    if origin in GRID_BARRIER:
        return [launch.workspace]
    if what == "variable":
        return [launch.symbols[name]]
    if what != "parameter":
        return []
    data = launch.parameters[name]
    return np.frombuffer(data, np.uint64, len(data) // 8).tolist()
