"""The registers that a block's warps release and request with ``setmaxnreg``.

What ptxas 13.0 gives a kernel at entry, it must know: from ``.maxnreg``, or from ``.minnctapersm`` with the
block's largest size. Otherwise it ignores ``setmaxnreg``, and so does the pool.

Source: PTX ISA 9.0, 9.7.19.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simwarp.chips.chips import chip_of
from simwarp.faults import RegisterCountFault, RegisterShortage
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.kinds import REGISTER_COUNT
from simwarp.ptx.syntax import Immediate

if TYPE_CHECKING:
    from simwarp.chips.chips import Chip
    from simwarp.engine.state import Chunk, Mask, Scheduler
    from simwarp.faults import Place
    from simwarp.program.program import Program, Step

_WARPGROUP = 4
"""Warps that change their registers alike."""
_UNIT = 8
"""Registers per thread are given in multiples of this."""


def _changes(step: Step) -> bool:
    return step.kind is REGISTER_COUNT


def at_entry(program: Program, chip: Chip) -> int | None:
    """The registers per thread with which ptxas starts a kernel; None if it ignores ``setmaxnreg``."""
    limits = [] if program.max_registers is None else [program.max_registers]
    if program.max_threads is not None and program.min_blocks is not None:
        group = _WARPGROUP * WARP_SIZE
        threads = -(-program.max_threads // group) * group * program.min_blocks
        limits.append(chip.registers // threads // _UNIT * _UNIT)
    if not limits:
        return None
    requested = [count_of(step) for step in program.steps if _changes(step) and step.form.has("inc")]
    limits += [max(requested)] if requested else []  # ptxas does not allocate more registers at entry
    return -(-min(limits) // _UNIT) * _UNIT


def count_of(step: Step) -> int:
    """The number of registers per thread that a ``setmaxnreg`` requests."""
    (operand,) = step.instruction.operands
    return operand.value if isinstance(operand, Immediate) else 0


def _named(step: Step) -> str:
    """The text of a ``setmaxnreg`` with its count, for messages."""
    return f"{step.instruction.opcode} {count_of(step)}"


class RegisterPool:
    """The registers of the blocks in flight, in registers per thread of a warp.

    Attributes
    ----------
    entry : int or None
        The registers of each thread at entry; None if the kernel's ``setmaxnreg`` has no effect.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.entry = at_entry(chunk.program, chip_of(chunk.launch.cc))
        self._per_block, self._threads = chunk.warps_per_block, chunk.thread[:, 0]
        self._owned = np.full(chunk.warps, self.entry or 0)
        self._free = np.zeros(chunk.blocks, np.int64)
        spare = -self._per_block % _WARPGROUP  # registers are allocated for four warps at a time
        self._free += spare * (self.entry or 0)
        self._wanted: dict[int, int] = {}
        """Warp → the registers per thread that it waits for."""
        self._done: list[list[Step]] = [[] for _ in range(chunk.warps)]
        """For each warp, the ``setmaxnreg`` that it has executed."""
        self._broken: set[int] = set()
        """The warpgroups, by their first warp, that were reported."""

    def request(self, chunk: Chunk, step: Step, warp: int) -> bool:
        """Change the number of registers of a warp; return whether the warp may continue."""
        if warp not in self._wanted:
            self._compare(chunk, step, warp)
        block, more = warp // self._per_block, count_of(step) - int(self._owned[warp])
        if self.entry is None or (more < 0) != step.form.has("dec"):
            return True
        if more > self._free[block]:
            self._wanted[warp] = count_of(step)
            return False
        self._wanted.pop(warp, None)
        self._free[block] -= more
        self._owned[warp] += more
        return True

    def _group(self, warp: int) -> range:
        """The numbers of the warps in a warp's warpgroup."""
        block, within = divmod(warp, self._per_block)
        first = block * self._per_block + within // _WARPGROUP * _WARPGROUP
        return range(first, min(first + _WARPGROUP, (block + 1) * self._per_block))

    def _compare(self, chunk: Chunk, step: Step, warp: int) -> None:
        """Record a warp's ``setmaxnreg``; report it if another warp of the warpgroup executes a different."""
        this, mine = step, self._done[warp]
        mine.append(this)
        for other in self._group(warp):
            theirs = self._done[other]
            if len(theirs) >= len(mine) and _named(theirs[len(mine) - 1]) != _named(this):
                that = theirs[len(mine) - 1]
                note = "another one is executed here by", self._place(chunk, other, that)
                values = f"warp {other % self._per_block} executes {_named(that)}"
                self._report(chunk, self._place(chunk, warp, this), values, warp, note)
            elif len(theirs) < len(mine) and not chunk.live[other].any():
                values = f"warp {other % self._per_block} has exited without it"
                self._report(chunk, self._place(chunk, warp, this), values, warp)

    def leave(self, chunk: Chunk, mask: Mask) -> None:
        """Report warps that exit without a ``setmaxnreg`` that other warps of their warpgroup executed."""
        going = mask.any(axis=1) & ~(chunk.live & ~mask).any(axis=1)
        for row in np.flatnonzero(going).tolist():
            warp = int(chunk.warp[row, 0])
            for other in self._group(warp):
                if len(self._done[other]) > len(self._done[warp]):
                    skipped = self._done[other][len(self._done[warp])]
                    values = f"warp {warp % self._per_block} exits without {_named(skipped)}"
                    note = "it exits here:", chunk.place(row * WARP_SIZE)
                    self._report(chunk, self._place(chunk, other, skipped), values, warp, note)

    def _place(self, chunk: Chunk, warp: int, step: Step) -> Place:
        """The location of a warp's first lane at a step."""
        return chunk.place_of(int(self._threads[warp]), step)

    def _report(
        self, chunk: Chunk, place: Place, values: str, warp: int, note: tuple[str, Place] | None = None
    ) -> None:
        """Report the warpgroup of ``warp``, unless it was reported before."""
        first = self._group(warp)[0]
        if first not in self._broken:
            self._broken.add(first)
            fault = RegisterCountFault(
                "the warps of a warpgroup do not execute the same setmaxnreg",
                values,
                "let all four warps, aligned to 128 threads, execute it, with a barrier before the next one",
                place,
            )
            if note is not None:
                fault.note(*note)
            chunk.launch.found(fault)

    def shortage(self, scheduler: Scheduler) -> RegisterShortage | None:
        """The fault of warps that wait for registers while no lane can release any; None if no warp waits."""
        if not self._wanted or self.entry is None:
            return None
        chunk = scheduler.chunk
        parked = {at: mask for at, mask in scheduler.parked.items() if _changes(scheduler.steps[at])}
        standing = scheduler.standing(parked)
        places = tuple(place for _, place in standing)
        block = next(iter(self._wanted)) // self._per_block
        warps = range(block * self._per_block, (block + 1) * self._per_block)
        owned, free = (int(n) * WARP_SIZE for n in (self._owned[list(warps)].sum(), self._free[block]))
        asked = sum(self._wanted.get(warp, int(self._owned[warp])) for warp in warps) * WARP_SIZE
        waiting = [warp for warp in warps if warp in self._wanted]
        fault = RegisterShortage(
            "setmaxnreg.inc waits for registers that nobody releases",
            f"the block has {owned + free} registers, {self.entry} for each thread at entry: {owned} are "
            f"owned, {free} free; with what {len(waiting)} warp{'s' * (len(waiting) > 1)} wait for, its "
            f"warps would own {asked}",
            f"choose counts whose sum over the block's threads is at most {owned + free}, and release first",
            places[0],
            waiting=places,
            registers=owned + free,
            asked=asked,
        )
        fault.note_standing("wait here", standing)
        chunk.step = scheduler.steps[next(iter(parked))]
        return fault


def change(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """``setmaxnreg``: change the registers of each warp that is here as a whole; it may have to wait."""
    chunk, pool = scheduler.chunk, scheduler.chunk.register_pool
    taken, whole = scheduler.taken(step), chunk.mask
    if chunk.is_part or pool is None:
        scheduler.park(pc, taken)
        return scheduler.leave_at(pc + 1, whole & ~taken)
    if pc in scheduler.parked:
        waiting = scheduler.parked.pop(pc)
        taken, whole = taken | waiting, whole | waiting
    some = taken.any(axis=1)
    exists = chunk.warp_in_block * WARP_SIZE + np.arange(WARP_SIZE) < chunk.launch.threads
    never = exists & ~taken & (~chunk.live | whole)
    broken = np.logical_and(some, never.any(axis=1))
    if broken.any():
        chunk.found(
            RegisterCountFault(
                "setmaxnreg that some lanes of the warp skip",
                step.instruction.text,
                "let the whole warp execute it, without a predicate that differs between its lanes",
            ),
            taken & broken[:, None],
        )
    ready = np.flatnonzero(some & (broken | ~(chunk.live & ~taken).any(axis=1)))
    granted: npt.NDArray[np.bool_] = np.zeros((chunk.warps, 1), np.bool_)
    for warp in ready.tolist():
        granted[warp] = pool.request(chunk, step, warp)
    go = taken & granted
    if (late := taken & ~go).any():
        scheduler.park(pc, late)
    if go.any():
        chunk.enter(go, alone=False)
        scheduler.executed(step, go)
        if step.form.has("dec"):  # waiting warps try again, since registers were released
            for at in [at for at in scheduler.parked if at != pc and _changes(scheduler.steps[at])]:
                scheduler.put(at, scheduler.parked.pop(at))
    return scheduler.go_on(pc + 1, whole & ~late)
