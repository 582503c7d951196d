"""Asynchronous products of warpgroups (PTX ISA 9.7.15): their groups, and the times when they execute.

A product happens at a moment between its issue and the end of a wait for its group: as late as possible under
the schedule "lowest pc", at once under "stack", at random under "random". The products of a warp happen in
the order of their issue. Those that follow one another on the same registers share one read and one write of
the accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.engine.dice import Dice
from simwarp.engine.events import AccessEvent, OrderedAccess, StageEvent
from simwarp.engine.tensor_core import warpgroups
from simwarp.engine.tensor_core.register_fences import RegisterFences
from simwarp.engine.tensor_core.registers_in_flight import RegistersInFlight
from simwarp.faults import ProductInFlight
from simwarp.fragments.descriptors import CHUNK, rows_of
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.kinds import WARPGROUP_PRODUCT

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask
    from simwarp.engine.tensor_core.warpgroups import Chunks, Plan
    from simwarp.program.program import Step

_Warps = npt.NDArray[np.intp]
_Some = npt.NDArray[np.bool_]
_Tiles = npt.NDArray[Any]

_CHUNK_TYPE = np.dtype(f"V{CHUNK}")


@dataclass
class _Product:
    """The products that some warpgroups issued at one step.

    Attributes
    ----------
    warps : (n, 4) int
        Their warps, numbered through the whole chunk.
    a : (n, 64, …) array
        The words of A that were in registers, or the addresses of its chunks.
    b : (n, …) uint64
        The addresses of B's chunks.
    keeps : (n,) bool
        Whether the accumulators are added to.
    groups : (n, 4) int
        How many groups each warp had committed.
    pending, in_flight : (n, 4) bool
        The warps for which it has yet to happen, and those that have not waited for it.
    reads : dict of int to int
        Agent of the race detector → the time of its reads.
    kept : dict of int to (array, array)
        By index: A and B of warpgroups of which some warps have waited, so that others may write there.
    """

    plan: Plan
    warps: _Warps
    a: npt.NDArray[Any]
    b: npt.NDArray[np.uint64]
    keeps: _Some
    groups: npt.NDArray[np.int64]
    pending: _Some
    in_flight: _Some
    reads: dict[int, int] = field(default_factory=dict[int, int])
    kept: dict[int, tuple[_Tiles, _Tiles]] = field(default_factory=dict[int, tuple[_Tiles, _Tiles]])

    def factors(self, chunk: Chunk, some: _Warps, now: _Some) -> tuple[_Tiles, _Tiles]:
        """A and B of some warpgroups; the warps marked in ``now`` execute the product."""
        left = self.a[some] if self.plan.a else _tile(chunk, self.plan, self.a[some], 0)
        right = _tile(chunk, self.plan, self.b[some], 1).swapaxes(-1, -2)
        if self.kept:
            for i, which in enumerate(some.tolist()):
                if which in self.kept:
                    left[i], right[i] = self.kept[which]
        if not now.all():
            for i in np.flatnonzero(~now.all(axis=1)).tolist():
                self.kept.setdefault(int(some[i]), (left[i], right[i]))
        return left, right


class AsyncProducts:
    """The products of a chunk's warpgroups that no wait has ended yet."""

    def __init__(self, chunk: Chunk) -> None:
        launch, program = chunk.launch, chunk.program
        self._size = chunk.warps
        steps = [step for step in program.steps if step.kind is WARPGROUP_PRODUCT]
        self._plans = {step.number: warpgroups.Plan(program, step) for step in steps}
        self._products: dict[int, _Product] = {}
        """By number, from 1 on, in the order of issue."""
        self._issued = 0
        self._commits = np.zeros(chunk.warps, np.int64)
        slots = dict.fromkeys(slot for plan in self._plans.values() for slot in (*plan.d, *plan.a))
        self.registers = RegistersInFlight(program, chunk.warps, self._happen_to)
        self._fences = RegisterFences(program.registers, tuple(slots), chunk.warps)
        self._written: _Written | None = None
        self._latest = launch.schedule != "stack"
        self._dice = Dice(launch.seed, chunk.blocks) if launch.schedule == "random" else None

    @property
    def in_flight(self) -> bool:
        """Whether some ``wgmma`` products have been issued and not yet waited for."""
        return bool(self._products)

    def forget(self) -> None:
        """Drop references to the chunk, so that its memory is freed without a garbage collection."""
        for plan in self._plans.values():
            plan.known.clear()

    # ---- products and groups -------------------------------------------------------------------------

    def issue(self, chunk: Chunk, step: Step, rows: _Warps) -> None:
        """Begin the products of warpgroups; ``rows`` (n, 4) are the chunk's rows of their warps."""
        if not rows.size:
            return
        plan, warps = self._plans[step.number], chunk.warp[:, 0][rows]
        _, a, b, scale = (read for read in step.sources[:4])
        keeps = warpgroups.agreed(chunk, scale(chunk), rows, "predicate scale-d")
        self._fences.check(chunk, plan, warps.reshape(-1), self.registers)
        self.registers.check_inputs(chunk, plan.d)
        if keeps.any():
            self.registers.check_defined(chunk, plan.d, warpgroups.lanes_of(chunk, rows[keeps]))
        read: list[Chunks] = []
        if plan.a:
            left = plan.a_layout.unpack(_gather(chunk, a(chunk), rows))
        else:
            read.append(warpgroups.chunks_of(chunk, plan, a(chunk), rows, "A"))
            left = read[0].at
        read.append(warpgroups.chunks_of(chunk, plan, b(chunk), rows, "B"))
        right = read[-1].at
        every = np.ones(warps.shape, np.bool_)
        made = _Product(plan, warps, left, right, keeps, self._commits[warps], every, every)
        self._issued += 1
        self._products[self._issued] = made
        self.registers.mark(chunk, step, plan.d, plan.a, warps.reshape(-1), self._issued)
        self._announce(chunk, made, read, rows)
        if chunk.launch.on_access:
            self._notify_reads(chunk, made, rows)
        self._notify(chunk, made, np.arange(len(warps)))
        if not self._latest:
            self._happen_to(chunk, warps, self._issued)
        self._some_happen(chunk)

    def fence(self, chunk: Chunk) -> None:
        """Order accesses to registers before the next products of the executing warps."""
        self._fences.fence(chunk, _executing(chunk))

    def commit(self, chunk: Chunk) -> None:
        """Close the current ``wgmma`` group of each executing warp."""
        self._commits[_executing(chunk)] += 1
        self._some_happen(chunk)

    def wait(self, chunk: Chunk, pending: int) -> None:
        """End all groups of the executing warps except the latest ``pending``."""
        self._some_happen(chunk)
        waiting = self._mask(_executing(chunk))
        done = np.zeros(self._size, np.int64)
        for number, made in self._products.items():
            old = made.groups < self._commits[made.warps] - pending
            done[made.warps[made.in_flight & waiting[made.warps] & old]] = number
        if done.any():
            self._happen(chunk, done)
            self._end(chunk, done)

    def leave(self, chunk: Chunk, mask: Mask) -> None:
        """Report warps that exit before their products have ended."""
        exiting = self._mask(chunk.warp[mask.any(axis=1), 0])
        done = np.zeros(self._size, np.int64)
        for number, made in self._products.items():
            done[made.warps[made.in_flight & exiting[made.warps]]] = number
        if not done.any():
            return
        lanes = mask & (done > 0)[chunk.warp]
        lane = int(lanes.argmax())
        latest = self._products[int(done[chunk.warp[lane // WARP_SIZE, 0]])]
        other = chunk.place(lane, latest.plan.step)
        fault = ProductInFlight(
            "a warp exits before its products have ended",
            "",
            "wait for all products before the end of the kernel (wgmma.wait_group 0)",
            product=other,
        )
        fault.note("the latest was issued here by", other)
        self._end(chunk, done)
        chunk.found(fault, lanes)

    def _end(self, chunk: Chunk, done: npt.NDArray[np.int64]) -> None:
        """Complete each warp's products up to a number; 0 completes none."""
        for number, made in list(self._products.items()):
            ended = number <= done[made.warps]
            if ended.any():
                self._retire(chunk, made, ended & (number == done[made.warps]))
                self._notify(chunk, made, np.flatnonzero(ended.any(axis=1)))
                made.pending, made.in_flight = made.pending & ~ended, made.in_flight & ~ended
                if not made.in_flight.any():
                    del self._products[number]
        self.registers.unmark(chunk, done)

    # ---- what the race detector sees -----------------------------------------------------------------

    def _announce(self, chunk: Chunk, made: _Product, read: list[Chunks], rows: _Warps) -> None:
        """Report a product's shared-memory reads to the race detector, as by the warpgroup's lane 0."""
        races = chunk.launch.races
        if races is None:
            return
        agents = self._agents(chunk, made)
        for agent in np.unique(agents).tolist():
            for chunks in read:
                kept = None if chunk.is_part else chunks.accesses
                access = None if kept is None else kept.get(agent)
                if access is None:
                    access = _reads(chunk, made.plan, chunks.at, rows, agents == agent)
                    if kept is not None:
                        kept[agent] = access = access._replace(kept={})
                if access.lanes.size:
                    made.reads[agent] = races.issue(access, ("wgmma", agent))

    def _retire(self, chunk: Chunk, made: _Product, last: _Some) -> None:
        """Report to the race detector which warps have waited for their product's reads."""
        races = chunk.launch.races
        if races is None:
            return
        agents = self._agents(chunk, made)
        for agent in np.unique(agents[last.any(axis=1)]).tolist():
            mine = agents == agent
            rows = _rows(chunk, made.warps[mine][last[mine]])
            lanes = (rows[rows >= 0][:, None] * WARP_SIZE + np.arange(WARP_SIZE)).reshape(-1)
            if lanes.size and agent in made.reads:
                races.retire(chunk, lanes, ("wgmma", agent), made.reads[agent])

    @staticmethod
    def _notify_reads(chunk: Chunk, made: _Product, rows: _Warps) -> None:
        """Notify observers of a product's reads of shared memory, attributed to each warpgroup's lane 0."""
        for at in (made.b,) if made.plan.a else (made.a, made.b):
            inside = at != warpgroups.NOWHERE
            lanes = np.broadcast_to(rows[:, :1, None] * WARP_SIZE, at.shape)[inside]
            offsets = at[inside] % np.uint64(chunk.shared_stride)
            event = AccessEvent(chunk, made.plan.step, "load", "shared", lanes, offsets, CHUNK, "products")
            for observe in chunk.launch.on_access:
                observe(event)

    @staticmethod
    def _notify(chunk: Chunk, made: _Product, some: _Warps) -> None:
        """Notify observers that products of some warpgroups begin or end reading pipeline stages."""
        if not chunk.launch.on_stage:
            return
        stride = np.uint64(chunk.shared_stride)
        read = [made.b[some]] if made.plan.a else [made.a[some], made.b[some]]
        at = np.concatenate([part.reshape(-1) for part in read])
        at = at[at != warpgroups.NOWHERE]
        for block in np.unique(at // stride).tolist():
            number, offsets = int(chunk.block_numbers[int(block)]), at[at // stride == block] % stride
            event = StageEvent(chunk, made.plan.step, "read", "", number, offsets, CHUNK)
            for observe in chunk.launch.on_stage:
                observe(event)

    @staticmethod
    def _agents(chunk: Chunk, made: _Product) -> _Warps:
        """(n,): the number of the agent to which the race detector attributes each warpgroup's accesses.

        Warpgroups of different blocks may share an agent, since they read different memory, unless other
        blocks of a cluster can write there.
        """
        alone = chunk.launch.blocks_per_cluster == 1
        return made.warps[:, 0] % chunk.warps_per_block if alone else made.warps[:, 0]

    # ---- moments -------------------------------------------------------------------------------------

    def _some_happen(self, chunk: Chunk) -> None:
        """Execute a random part of the pending products, under the random schedule."""
        if self._dice is not None:
            for number, made in self._products.items():
                if made.pending.any() and self._dice.below(2):
                    self._happen_to(chunk, made.warps[self._dice.some(len(made.warps))], number)

    def _happen_to(self, chunk: Chunk, warps: _Warps, last: int) -> None:
        """Execute the pending products of some warps, up to a number."""
        self._happen(chunk, self._mask(warps) * np.int64(last))

    def _happen(self, chunk: Chunk, last: npt.NDArray[np.int64]) -> None:
        """Execute the pending products of each warp up to a number; 0 executes none."""
        held: _Held | None = None
        for number, made in self._products.items():
            now = made.pending & (number <= last[made.warps])
            some = np.flatnonzero(now.any(axis=1))
            if not some.size:
                continue
            if held is None or not held.continues(made, some, now[some]):
                self._put_back(chunk, held)
                held = _Held.of(chunk, made, some, now[some], self._written)
            held.multiply(chunk, made, some)
            made.pending = made.pending & ~now
        self._put_back(chunk, held)

    def _put_back(self, chunk: Chunk, held: _Held | None) -> None:
        """Write accumulators back to their registers, and keep them as the last ones written."""
        if held is not None:
            self._written = held.write(chunk)
            self._fences.note_results(chunk, held.plan.d, held.warps[held.here])

    def _mask(self, warps: _Warps) -> _Some:
        """(warps of the whole chunk,): a mask of some warps."""
        mask = np.zeros(self._size, np.bool_)
        mask[warps] = True
        return mask


@dataclass
class _Held:
    """Accumulators kept outside the registers, while more products of the same registers and warps follow.

    Attributes
    ----------
    warps : (n, 4) int
        Numbered through the whole chunk.
    rows : (n, 4) int
        Their rows in this part of the chunk; -1 for a warp elsewhere.
    now : (n, 4) bool
        The warps for which the products happen.
    d : (n, 64, columns) of words
    factors : list of (array, array)
        Factors of exact products that are yet to be multiplied, all at once.
    """

    plan: Plan
    warps: _Warps
    rows: _Warps
    now: _Some
    d: _Tiles
    factors: list[tuple[_Tiles, _Tiles]] = field(default_factory=list[tuple[_Tiles, _Tiles]])

    @classmethod
    def of(cls, chunk: Chunk, made: _Product, some: _Warps, now: _Some, before: _Written | None) -> _Held:
        """The accumulators of some warpgroups of a product; reuses ``before`` if those were written last."""
        plan, warps = made.plan, made.warps[some]
        rows = _rows(chunk, warps)
        if before is not None and before.remain(chunk, plan, warps):
            return cls(plan, warps, rows, now, before.d)
        words = _gather(chunk, [chunk.registers[slot] for slot in plan.d], rows)
        return cls(plan, warps, rows, now, plan.d_layout.unpack(words))

    @property
    def here(self) -> _Some:
        """(n, 4): the warps of this part of the chunk for which the products execute."""
        return self.now & (self.rows >= 0)

    def continues(self, made: _Product, some: _Warps, now: _Some) -> bool:
        """Whether a product has the same accumulator registers and warps as the accumulators held here."""
        same = made.plan.d == self.plan.d and made.plan.shape == self.plan.shape
        return same and np.array_equal(made.warps[some], self.warps) and np.array_equal(now, self.now)

    def multiply(self, chunk: Chunk, made: _Product, some: _Warps) -> None:
        """Multiply, now or later; where scale-d is false the accumulators start at 0."""
        keeps, opcode = made.keeps[some], made.plan.step.instruction.opcode
        if not keeps.all() or opcode != self.plan.step.instruction.opcode:
            self._flush(chunk)
            self.plan = made.plan
            self.d = np.where(keeps[:, None, None], self.d, self.d.dtype.type(0))
        left, right = made.factors(chunk, some, self.now)
        if made.plan.a and made.plan.negated[0]:
            left = left ^ made.plan.sign
        self.factors.append((left, right))
        if not made.plan.exact:
            self._flush(chunk)

    def _flush(self, chunk: Chunk) -> None:
        """Compute the postponed multiplications, all at once."""
        if self.factors:
            left, right = zip(*self.factors, strict=True)
            a = left[0] if len(left) == 1 else np.concatenate(left, axis=-1)
            b = right[0] if len(right) == 1 else np.concatenate(right, axis=-2)
            self.d, self.factors = self.plan.step.function(chunk.launch.cc, a, b, self.d), []

    def write(self, chunk: Chunk) -> _Written | None:
        """Write the accumulators to their registers; return them if they cover all warps."""
        self._flush(chunk)
        tiles: npt.NDArray[np.uint32] = self.d.view(np.uint32).reshape(len(self.d), -1)
        # mode="wrap" skips the check of the indices
        held = tiles.take(self.plan.d_places, axis=-1, mode="wrap")
        words = np.ascontiguousarray(held.swapaxes(0, 1)).reshape(len(self.plan.d), -1, WARP_SIZE)
        rows, here = self.rows.reshape(-1), self.here.reshape(-1)
        if rows.size == len(chunk.live) and here.all() and (rows == np.arange(rows.size)).all():
            values = list(words)
            for slot, word in zip(self.plan.d, values, strict=True):
                chunk.registers[slot] = word
            return _Written(self.plan, self.warps, values, self.d)
        for slot, word in zip(self.plan.d, words, strict=True):
            new = np.array(np.broadcast_to(chunk.registers[slot], chunk.live.shape))
            new[rows[here]] = word[here]
            chunk.registers[slot] = new
        return None


class _Written(NamedTuple):
    """Accumulators in two forms: ``values``, as written to registers, and ``d``, as a tile."""

    plan: Plan
    warps: _Warps
    values: list[npt.NDArray[np.uint32]]
    d: _Tiles

    def remain(self, chunk: Chunk, plan: Plan, warps: _Warps) -> bool:
        """Whether these are a product's accumulators and no instruction has written their registers since."""
        same = plan.d == self.plan.d and plan.shape == self.plan.shape and np.array_equal(warps, self.warps)
        return same and all(
            chunk.registers[slot] is value for slot, value in zip(plan.d, self.values, strict=True)
        )


def _reads(chunk: Chunk, plan: Plan, at: npt.NDArray[np.uint64], rows: _Warps, mine: _Some) -> OrderedAccess:
    """The reads of shared memory by some warpgroups, attributed to lane 0 of each."""
    inside = (at[mine] != warpgroups.NOWHERE).reshape(-1)
    lanes = np.repeat(rows[mine, 0] * WARP_SIZE, at[0].size)[inside]
    flat = at[mine].reshape(-1)[inside]
    return OrderedAccess(chunk, plan.step, "read", chunk.shared, lanes, flat, CHUNK)


def _tile(chunk: Chunk, plan: Plan, at: npt.NDArray[np.uint64], side: int) -> _Tiles:
    """The words of A (n, 64, k) or of B (n, columns, k), loaded from the addresses of their chunks."""
    flat = at.reshape(-1)
    data = chunk.shared.peek(flat, _CHUNK_TYPE)
    data = chunk.shared.read(flat, _CHUNK_TYPE) if data is None else data
    tile = rows_of(data.reshape(at.shape), plan.word, plan.k_major[side])
    return tile ^ plan.sign if plan.negated[side] else tile


def _gather(chunk: Chunk, registers: list[Any], rows: _Warps) -> npt.NDArray[np.uint32]:
    """Registers of warpgroups, (n, 128, registers), from their warps' rows; 0 for a row of -1."""
    flat, shape = rows.reshape(-1), chunk.live.shape
    words = np.empty((len(registers), flat.size, WARP_SIZE), np.uint32)
    for word, value in zip(words, registers, strict=True):
        if np.shape(value) == shape:
            np.take(value, flat, axis=0, out=word, mode="wrap")
        else:
            word[...] = value if np.ndim(value) == 0 else np.broadcast_to(value, shape)[flat]
    words[:, flat < 0] = 0
    return np.ascontiguousarray(np.moveaxis(words, 0, -1)).reshape(len(rows), -1, len(registers))


def _executing(chunk: Chunk) -> _Warps:
    """(n,): the warps with an executing lane, numbered through the whole chunk."""
    return chunk.warp[chunk.mask.any(axis=1), 0]


def _rows(chunk: Chunk, warps: _Warps) -> _Warps:
    """The rows of warps in this part of the chunk; -1 for warps outside it."""
    here = chunk.warp[:, 0]
    rows = np.searchsorted(here, warps).clip(max=here.size - 1)
    return np.where(here[rows] == warps, rows, -1)
