"""The allocations that each access of a launch may reach: those from which its address is derived.

A pointer past the end of its array may land in another allocation. So an access may reach only the
allocations of the arguments and variables that flow into its address (`simwarp.program.provenance`); an
address that was loaded from memory, or passed to a device function, may point anywhere. Likewise a variable
in shared or local memory ends where the next one starts, and a thread's local memory where the current
function's frame ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from simwarp.faults import OutOfBounds
from simwarp.program.frames import is_whole, name_of
from simwarp.program.provenance import ANYTHING, GRID_BARRIER, Origins, known_origins, symbols_of
from simwarp.ptx.mangled_names import plain_variable
from simwarp.ptx.spaces import WINDOW

if TYPE_CHECKING:
    from simwarp.allocation import Allocation
    from simwarp.engine.state import Chunk, Launch, Mask
    from simwarp.memory import Memory

T = TypeVar("T")

FRAME = "the function's stack frame"
_FRAME = "; a variable is gone when its function has returned"
_MALLOC = "malloc("


class _ByStep(dict[int, T], Generic[T]):
    """Step number → the memory that it may access, computed from its address's origins on first use."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch
        checked = launch.checks.action("bounds") != "off"
        self._origins = known_origins(launch.program, launch.symbols) if checked else {}

    def __missing__(self, number: int) -> T:
        self[number] = self.of(number, self._origins.get(number, ANYTHING))
        return self[number]

    def of(self, number: int, origins: Origins) -> T:
        """The memory that a step may access if its address has these origins."""
        raise NotImplementedError


class Window(NamedTuple):
    """The bytes ``first <= i < end`` of a window, and the names of their variables; "" for all variables."""

    first: int
    end: int
    names: str


class Windows(_ByStep[Window]):
    """Step number → the window of the block's shared memory that it may access."""

    def of(self, number: int, origins: Origins) -> Window:
        """The window from the first to the last variable that the address is derived from."""
        names = [] if origins >= ANYTHING else symbols_of(origins)
        extents = [self.launch.program.shared_variables[name] for name in names]
        first, end = min((a for a, _ in extents), default=0), max((b for _, b in extents), default=WINDOW)
        return Window(
            first, min(end, self.launch.shared_size), " or ".join(map(plain_variable, sorted(names)))
        )


class Frames(_ByStep[Window]):
    """Step number → the part of its frame that it may access; all of it stands for callers' frames, too."""

    def of(self, number: int, origins: Origins) -> Window:
        """The window from the first to the last variable that the address is derived from."""
        routine = self.launch.program.routine_at(number)
        names = [] if origins >= ANYTHING else sorted(symbols_of(origins, "frame"))
        if not names or any(map(is_whole, names)):
            return Window(0, routine.frame, FRAME)
        extents = [routine.local_variables.get(name, (0, routine.frame)) for name in names]
        whose = " or ".join(name_of(name, b - a) for name, (a, b) in zip(names, extents, strict=True))
        return Window(min(a for a, _ in extents), max(b for _, b in extents), whose)


class Reach(_ByStep["Memory"]):
    """Step number → the global memory that it may access."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self._known: dict[Origins, Memory] = {}

    def of(self, number: int, origins: Origins) -> Memory:
        """The allocations that the address is derived from, or all of global memory."""
        if origins not in self._known:
            allocations = None if origins >= ANYTHING else self._allocations(origins)
            memory = self.launch.memory
            self._known[origins] = memory.part(allocations) if allocations else memory
        return self._known[origins]

    def _allocations(self, origins: Origins) -> list[Allocation] | None:
        """The allocations that addresses with these origins may point to; None if they may point anywhere."""
        launch, allocations = self.launch, set["Allocation"]()
        for origin in origins:
            for address in addresses_of(launch, origin):
                if launch.memory.was_freed(address):
                    # the check of all memory reports the freed allocation by name; the check of neighbours
                    # cannot
                    return None
                beside = launch.memory.around(address)
                if any(allocation.name.startswith(_MALLOC) for allocation in beside):
                    return None  # the kernel may free it and allocate it again
                allocations |= set(beside)
        return sorted(allocations, key=lambda allocation: allocation.base)


# ---- windows ----------------------------------------------------------------------------------------


def outside(chunk: Chunk, address: Any, width: int, first: Any, end: Any) -> Mask | None:
    """The executing lanes whose access is not within ``first <= address < end``; None if there are none."""
    if np.ndim(end) or end < width:
        bad = (address > end) | (address + np.uint64(width) > end)
    else:
        bad = address > end - np.uint64(width)
    if np.ndim(first) or first:
        bad = bad | (address < np.uint64(first))
    bad = bad & chunk.mask
    return bad if bad.any() else None


def leave_out(
    chunk: Chunk,
    address: Any,
    width: int,
    bad: Mask,
    window: tuple[str, int],
    part: str,
    advice: str,
    extent: tuple[int, int] | None = None,
) -> None:
    """Report lanes whose access leaves its part of a window; if the check does not raise, mask them out."""
    lane, (what, size), where = int(bad.argmax()), window, ""
    offset = int(np.broadcast_to(address, chunk.mask.shape).reshape(-1)[lane])
    if offset + width <= size and part:
        what, advice = part, f"index within the array{_FRAME * (part == FRAME)}"
        if extent is not None:
            where = f"; {part} has those from {extent[0]:#x} to {extent[1] - 1:#x}"
    values, space = f"offset {offset:#x} of {size} bytes{where}", window[0].partition(" ")[0]
    fault = OutOfBounds(
        f"access of {width} byte{'s' * (width > 1)} outside {what}", values, advice, allocation=what
    )
    fault.address, fault.width, fault.space, fault.offset = offset, width, space, offset
    chunk.found(fault, bad)
    chunk.enter(chunk.mask & ~bad, alone=False)


def addresses_of(launch: Launch, origin: str) -> list[int]:
    """The addresses in global memory that an origin, such as a parameter, may hold."""
    what, _, name = origin.partition(" ")
    if origin in GRID_BARRIER:
        return [launch.workspace]
    if what == "variable":
        return [launch.symbols[name]]
    if what != "parameter":
        return []
    data = launch.parameters[name]
    return np.frombuffer(data, np.uint64, len(data) // 8).tolist()
