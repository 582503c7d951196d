"""Foreign pointers: addresses in shared or local memory that another block or thread loads and uses.

Windows have the same addresses in every block or thread, so an access through a foreign pointer silently
reaches the thread's own memory. The launch therefore records which threads (the *lenders*) store such
addresses where others can load them. A register loaded with a foreign pointer is followed like an undefined
one (`simwarp.engine.undefined.values`), as long as its value is an address in such a window. Only an access
through it is a fault: it may be compared, copied and returned. A kernel that stores no such address costs
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.faults import ForeignPointer
from simwarp.program.provenance import lending_steps
from simwarp.ptx.spaces import BLOCK_BITS, WINDOW, WINDOWS
from simwarp.ptx.syntax import Address, Register

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Launch, Mask
    from simwarp.memory import Memory
    from simwarp.program.program import Step

_Threads = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]
_CELL = 8
_NOBODY = -1


class Foreign(NamedTuple):
    """Foreign pointers that threads loaded, and the step that loaded them.

    Attributes
    ----------
    threads, lenders : (n,) int64
        The threads that loaded the pointers, ascending, and those that stored them, numbered in the launch.
    steps : (n,) int64
        The number of the step that stored each pointer.
    """

    step: Step
    threads: _Threads
    lenders: _Threads
    steps: _Threads

    def of(self, threads: _Threads) -> tuple[npt.NDArray[np.intp], Mask]:
        """For each thread, the index of the load that gave it a foreign pointer, and whether it has one."""
        return _find(self.threads, threads)

    @staticmethod
    def kept(lanes: Mask, value: Any) -> Mask | None:
        """The lanes whose computed value is still an address in shared or local memory; None if none is."""
        if value.dtype.itemsize != _CELL or value.dtype.kind != "u":
            return None
        lanes = lanes & _is_own(value)
        return lanes if lanes.any() else None


class Cells(NamedTuple):
    """Words of one memory that contain addresses in shared or local memory, sorted by position."""

    at: _Words
    values: _Words
    threads: _Threads
    steps: _Threads

    def find(self, at: _Words) -> tuple[npt.NDArray[np.intp], Mask]:
        """For each address, the position of its word in these cells, and whether there is one."""
        return _find(self.at, at)

    def some(self, which: npt.NDArray[Any]) -> Cells:
        """The words that an index array or mask selects."""
        return Cells(self.at[which], self.values[which], self.threads[which], self.steps[which])

    def and_then(self, later: Cells) -> Cells:
        """These words, followed by the words of a later store."""
        pairs: Any = zip(self, later, strict=True)
        return Cells(*map(np.concatenate, pairs))


def _find(held: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], Mask]:
    """For each wanted value, its position in an ascending array, and whether the array contains it."""
    at = np.searchsorted(held, wanted).clip(max=held.size - 1)
    return at, held[at] == wanted


class Lent:
    """The addresses in shared or local memory that threads of a launch stored for others to load.

    Attributes
    ----------
    steps : set of int
        The numbers of the stores that may store an address in shared or local memory.
    cells : dict
        Memory → the words in it that hold such an address.
    followed : bool
        Whether a register may hold a foreign pointer.
    """

    def __init__(self, launch: Launch) -> None:
        self.steps = frozenset[int]()
        if launch.checks.action("bounds") != "off":
            self.steps = lending_steps(launch.program, launch.symbols)
        self.cells: dict[Memory, Cells] = {}
        self.followed = False
        self._slots: dict[int, int | None] = {}

    def enter(self, memory: Memory) -> None:
        """Keep only the words in global ``memory``, when a new chunk starts."""
        self.cells = {held: cells for held, cells in self.cells.items() if held is memory}
        self.followed = False

    # ---- words in memory ---------------------------------------------------------------------------

    def forget(self, memory: Memory, at: Any, width: int) -> None:
        """Remove the recorded words that a store overwrites."""
        known = self.cells.get(memory.whole)
        if known is None:
            return
        covered = [np.asarray(at >> np.uint64(3)) + np.uint64(i) for i in range(max(1, width // _CELL))]
        left = ~np.isin(known.at >> np.uint64(3), np.concatenate(covered))
        if not left.all():
            self._keep(memory.whole, known.some(left))

    def _keep(self, memory: Memory, cells: Cells) -> None:
        if cells.at.size:
            self.cells[memory] = cells
        else:
            self.cells.pop(memory, None)

    def lenders(self, chunk: Chunk) -> tuple[_Threads, _Threads]:
        """(warps, 32) each: the thread and the step that each stored address came from.

        Call it after the store's operand was read.
        """
        threads, lanes, foreign = chunk.thread, chunk.undefined_now(), chunk.undefined_from
        steps = np.full(threads.shape, chunk.step.number)
        if lanes is None or not isinstance(foreign, Foreign):
            return threads, steps
        at, known = foreign.of(threads)
        known = known & lanes
        return np.where(known, foreign.lenders[at], threads), np.where(known, foreign.steps[at], steps)

    def note(self, chunk: Chunk, memory: Memory, given: Cells, threads: _Threads) -> None:
        """Record the stored values that are addresses in a lender's memory."""
        memory, before, at = memory.whole, self.cells.get(memory.whole), given.at
        which = _is_own(given.values)
        if memory is chunk.local:
            owner = _owner(chunk, given.values, given.threads)
            which &= owner != _owner(chunk, given.values, threads)
        if before is None and not which.any():
            return
        given = given.some(which)
        if before is not None:
            stays = ~np.isin(before.at, at) | np.isin(
                before.at, given.at
            )  # a word that an earlier pointer was stored to may have several owners
            given = before.some(stays).and_then(given)
        self._keep(memory, _agreed(chunk, given))

    def loaded(self, chunk: Chunk, step: Step, memory: Memory, at: _Words, value: Any) -> Foreign | None:
        """The foreign pointers among the values that the executing lanes load; None if there are none."""
        known = self.cells.get(memory.whole)
        if known is None:
            return None
        value = np.ascontiguousarray(value).view(np.uint64)
        where, held = known.find(at)
        if not held.any():
            return None
        threads, lenders = chunk.thread[chunk.mask], known.threads[where]
        held &= (known.values[where] == value) & (lenders != _NOBODY)
        held &= _owner(chunk, value, threads) != _owner(chunk, value, lenders)
        if not held.any():
            return None
        self.followed = True
        threads, lenders, steps = threads[held], lenders[held], known.steps[where][held]
        order = np.argsort(threads)
        return Foreign(step, threads[order], lenders[order], steps[order])

    # ---- accesses ----------------------------------------------------------------------------------

    def check(self, chunk: Chunk, step: Step, space: str, address: Any, width: int) -> None:
        """Report lanes that access shared or local memory through a foreign pointer."""
        if step.number not in self._slots:
            self._slots[step.number] = _base_slot(chunk, step)
        slot = self._slots[step.number]
        foreign = None if slot is None else chunk.origins.get(slot)
        if slot not in chunk.partial or not isinstance(foreign, Foreign):
            return
        at, known = foreign.of(chunk.thread)
        generic = np.add(address, np.uint64(WINDOWS[space]))
        bad = chunk.mask & ~chunk.partial[slot] & known & _is_own(generic)
        bad = bad & (_owner(chunk, generic, foreign.lenders[at]) != _owner(chunk, generic, chunk.thread))
        if not bad.any():
            return
        lane = int(bad.argmax())
        which, offset = int(at.reshape(-1)[lane]), int(np.broadcast_to(address, bad.shape).reshape(-1)[lane])
        whose = "another block's shared memory" if space == "shared" else "another thread's local memory"
        stored = chunk.place_of(int(foreign.lenders[which]), chunk.program.steps[int(foreign.steps[which])])
        fault = ForeignPointer(
            f"access of {width} byte{'s' * (width > 1)} by a pointer to {whose}, "
            "which reaches its own instead",
            "",
            "pass the data through global memory or, within a cluster, use map_shared_rank"
            if space == "shared"
            else "pass the data through shared or global memory",
            address=offset,
            offset=offset,
            width=width,
            space=space,
            stored=stored,
            loaded=chunk.place(lane, foreign.step),
        )
        fault.note("the address was stored here by", stored)
        chunk.found(fault, bad)
        chunk.enter(chunk.mask & ~bad, alone=False)


def _agreed(chunk: Chunk, given: Cells) -> Cells:
    """Keep the last store to each word, sorted by address; a word with several owners has no lender."""
    if not given.at.size:
        return given
    given = given.some(np.argsort(given.at, kind="stable"))
    last = np.append(given.at[1:] != given.at[:-1], True)
    starts = np.append(0, np.flatnonzero(last)[:-1] + 1)
    owners = np.where(given.threads < 0, _NOBODY, _owner(chunk, given.values, given.threads))
    differ = np.minimum.reduceat(owners, starts) != np.maximum.reduceat(owners, starts)
    left = given.some(last)
    return left._replace(threads=np.where(differ, _NOBODY, left.threads))


def _is_own(value: Any) -> Any:
    """Whether generic addresses lie in the window of the own block's shared or of local memory."""
    offset = value - np.uint64(WINDOWS["shared"])
    local = value - np.uint64(WINDOWS["local"]) < np.uint64(WINDOW)
    return local | (offset < np.uint64(1 << BLOCK_BITS))


def _owner(chunk: Chunk, value: Any, threads: _Threads) -> npt.NDArray[np.int64]:
    """The owner of the memory at a thread's address: its block, or the thread for local memory."""
    block = threads // (chunk.warps_per_block * chunk.mask.shape[1])
    return np.where(value < np.uint64(WINDOWS["local"]), block, threads)


def _base_slot(chunk: Chunk, step: Step) -> int | None:
    """The slot of the base register of a step's address operand; None without one."""
    address = next((o for o in step.instruction.operands if isinstance(o, Address)), None)
    if address is None or not isinstance(address.base, Register):
        return None
    slots = chunk.program.routine_at(step.number).slots
    return slots.start + chunk.program.registers[slots.start : slots.stop].index(address.base.name)
