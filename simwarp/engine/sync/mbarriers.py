"""Barriers in shared memory (PTX ISA 9.7.13.15): arrivals, transaction bytes and phases.

A phase is complete when no arrival and no byte is pending; the next one begins at once. An arrival is a
release, unless it is relaxed, and a wait that finds its phase complete acquires all arrivals of that phase.
Between blocks only operations without ``.cta`` order anything. The ISA's default scope is ``.cta``, too, but
remote arrivals without a scope, as CUTLASS has them, count as ``.cluster``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.dice import Dice
from simwarp.engine.events import OrderedAccess
from simwarp.engine.memory.accesses import announce_store, places
from simwarp.faults import BarrierFault, KernelFault, Place
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.instructions.mbarrier import PENDING_BITS

if TYPE_CHECKING:
    from simwarp.engine.components import Target, Transfer
    from simwarp.engine.state import Chunk
    from simwarp.program.program import Step

_Lanes = npt.NDArray[np.int64]
_MOST = (1 << PENDING_BITS) - 1
"""The largest count of arrivals, and of pending bytes."""
_WORD = np.dtype(np.uint64)
_LISTED = 3
_NOWHERE = Place()
_PATIENCE = 8
"""Tests of a phase by a warp that are refused, where the program may go on without a yes."""
_CANDID = 8
"""Under the random schedule, one of so many phases answers every test truly."""
_INITIALISE = "initialise it first, let the block meet at __syncthreads(), and store nothing there"
_EXPECT = "let as many arrivals and bytes reach the barrier as it expects"


@dataclass
class _Barrier:
    """The state of an mbarrier: expected and pending arrivals, pending bytes, and the phase's number."""

    expected: int
    pending: int
    made: Place
    expects: Place = _NOWHERE
    """Where bytes were expected last."""
    transaction: int = 0
    phase: int = 0
    counted: int = 0
    """The bytes that arrived in this phase."""

    @property
    def state(self) -> int:
        """The opaque word in memory: pending and expected arrivals, pending bytes, and the parity on top."""
        fields = self.pending | self.expected << PENDING_BITS
        return fields | (self.transaction & (2 * _MOST + 1)) << 2 * PENDING_BITS | (self.phase & 1) << 63

    def __str__(self) -> str:
        pending = f"{self.pending} of {self.expected} arrivals and {self.transaction} bytes pending"
        return f"phase {self.phase}, {pending}, {self.counted} bytes arrived"

    @property
    def source(self) -> tuple[str, Place] | None:
        """The location that announced pending arrivals or bytes, with words for a note; None without one."""
        if self.transaction > 0 and self.expects.line is not None:
            return "its bytes were last expected here by", self.expects
        return ("initialised here by", self.made) if self.pending else None


class MBarriers:
    """The mbarrier objects in a chunk's shared memory, and their phases."""

    def __init__(self, chunk: Chunk) -> None:
        self._shared = chunk.shared
        self._barriers: dict[int, _Barrier] = {}
        """By address in the chunk's shared memory."""
        self._waiting: dict[int, tuple[int, Place]] = {}
        """By address: a phase that was found incomplete, and by whom."""
        self._unheeded: dict[int, tuple[int, str, Place]] = {}
        """Warp → its last wait that ordered nothing: the barrier's address, and words and place of a note."""
        self._asked: dict[int, tuple[int, npt.NDArray[np.int64]]] = {}
        """By address: a phase, and for each warp how often its tests of it were refused."""
        self._warps = chunk.warps
        launch = chunk.launch
        self._dice = Dice(launch.seed, chunk.blocks << 1) if launch.schedule == "random" else None

    def execute(self, chunk: Chunk, step: Step) -> Any:
        """Execute an operation in each executing lane; returns the results, (warps, 32)."""
        operands = [np.broadcast_to(read(chunk), chunk.mask.shape) for read in step.sources]
        results = np.zeros(chunk.mask.shape, _WORD)
        for place in places(chunk, step, _WORD.itemsize):
            mask, lanes = chunk.mask, np.flatnonzero(chunk.mask)
            at = np.broadcast_to(place.address, mask.shape)[mask]
            given = operands[0][mask].astype(_WORD) if operands else np.ones(lanes.size, _WORD)
            if place.space != "shared":
                self._find(chunk, lanes[0], "a barrier outside shared memory", f"{place.space} memory")
                continue
            self._announce(chunk, step, place, lanes, at)
            answers, order = np.zeros(lanes.size, _WORD), np.argsort(at, kind="stable")
            addresses, first = np.unique(at[order], return_index=True)
            words = self._shared.read(addresses, _WORD).tolist()
            for address, word, here in zip(
                addresses.tolist(), words, np.split(order, first[1:]), strict=True
            ):
                answers[here] = self._operate(chunk, step, address, word, lanes[here], given[here])
            self._keep(chunk, addresses)
            results[mask] = answers
        return results

    def add_waits(self, chunk: Chunk, fault: KernelFault) -> tuple[Place, ...]:
        """Add the barriers that threads wait for to a fault; returns the threads, one of alike blocks."""
        waits: dict[object, tuple[str, _Barrier, int, Place]] = {}
        for address, (phase, place) in self._waiting.items():
            if (barrier := self._barriers.get(address)) is not None:
                key = address % chunk.shared_stride, str(barrier), phase, place.line
                waits.setdefault(key, (self._where(chunk, address), barrier, phase, place))
        for where, barrier, phase, place in list(waits.values())[:_LISTED]:
            fault.values += f"{'; ' * bool(fault.values)}mbarrier at {where}: {barrier}"
            fault.note(f"mbarrier at {where}: phase {phase} is waited for here by", place)
            if barrier.source is not None:
                fault.note(*barrier.source)
        return tuple(place for *_, place in waits.values())

    # ---- one barrier ---------------------------------------------------------------------------------

    def _operate(self, chunk: Chunk, step: Step, address: int, word: int, lanes: _Lanes, given: Any) -> Any:
        """Execute an operation on one mbarrier for some lanes, in order; return each lane's result word."""
        form, barrier, where = step.form, self._barriers.get(address), self._where(chunk, address)
        if form.has("init"):
            self._make(chunk, address, lanes, given)
            return 0
        if barrier is None or barrier.state != word:
            what = "an overwritten mbarrier" if barrier else "an operation on memory without an mbarrier"
            self._find(chunk, lanes[0], what, where, _INITIALISE)
            return 0
        if form.has("inval"):
            del self._barriers[address]
            return 0
        if form.has("test_wait") or form.has("try_wait"):
            return self._test(chunk, step, address, barrier, lanes, given)
        if form.has("expect_tx"):
            barrier.transaction += int(given.sum())
            barrier.expects = chunk.place(int(lanes[-1]), step)
        if form.has("complete_tx"):
            self._count(barrier, int(given.sum()))
        if abs(barrier.transaction) > _MOST:
            self._find(chunk, lanes[0], f"more than {_MOST} pending bytes", f"{where}: {barrier}")
        states: Any = 0
        if form.has("arrive") or form.has("arrive_drop"):
            counts = np.ones_like(given) if form.has("expect_tx") else given
            states = self._arrive(chunk, step, address, barrier, lanes, counts)
        self._advance(chunk, address, barrier)
        return states

    def _make(self, chunk: Chunk, address: int, lanes: _Lanes, counts: Any) -> None:
        """Initialise an mbarrier; report a second lane, which would initialise it again."""
        count, where = int(counts[0]), self._where(chunk, address)
        if address in self._barriers or lanes.size > 1:
            advice = "let one thread initialise it, once"
            self._find(chunk, lanes[0], "an mbarrier that is initialised twice", where, advice)
        if not 1 <= count <= _MOST:
            advice = f"expect 1 to {_MOST} arrivals"
            self._find(chunk, lanes[0], f"an mbarrier that expects {count} arrivals", where, advice)
        self._barriers[address] = _Barrier(count, count, chunk.place(int(lanes[0])))

    def _arrive(
        self, chunk: Chunk, step: Step, address: int, barrier: _Barrier, lanes: _Lanes, counts: Any
    ) -> npt.NDArray[np.uint64]:
        """Count arrivals lane by lane, as many as a phase takes at once; return the states before them.

        Lanes of a warp get the state before the first of them, as on an H200.
        """
        states, done = np.empty(lanes.size, _WORD), 0
        while done < lanes.size:
            before = np.concatenate([[0], np.cumsum(counts[done:]).astype(np.int64)])
            fitting = max(1, int(np.searchsorted(before, barrier.pending, "right")) - 1)
            now = lanes[done : done + fitting]
            _, first, of = np.unique(now // WARP_SIZE, return_index=True, return_inverse=True)
            taken = before[first][of].clip(max=barrier.pending).astype(_WORD)
            states[done : done + fitting] = _WORD.type(barrier.state) - taken
            if chunk.launch.races is not None:
                chunk.launch.races.mbarrier_arrive(chunk, now, (address, barrier.phase), *_order(step))
            count = int(before[fitting])
            if count > barrier.pending:
                self._find(
                    chunk,
                    now[0],
                    f"{count} arrivals at an mbarrier",
                    f"{self._where(chunk, address)}: {barrier}",
                )
            barrier.pending = max(0, barrier.pending - count)
            if step.form.has("arrive_drop"):
                barrier.expected = max(0, barrier.expected - count)
            if step.form.has("noComplete") and not barrier.pending:
                advice = "use an arrival that may complete the phase"
                self._find(chunk, now[-1], "an arrival with .noComplete that completes the phase", "", advice)
            done += fitting
            if done < lanes.size:
                self._advance(chunk, address, barrier)
        return states

    def _test(
        self, chunk: Chunk, step: Step, address: int, barrier: _Barrier, lanes: _Lanes, given: Any
    ) -> npt.NDArray[np.uint64]:
        """Return 1 for lanes whose phase is complete, else 0; lanes with 1 acquire the phase's arrivals."""
        parity = given if step.form.has("parity") else given >> _WORD.type(63)
        if (parity > 1).any():
            advice = "pass 0 for an even phase, 1 for an odd one"
            self._find(
                chunk, lanes[0], f"a wait for parity {int(parity.max())}", self._where(chunk, address), advice
            )
        awaited = parity & _WORD.type(1)
        complete = awaited != _WORD.type(barrier.phase & 1)
        unheeded = chunk.program.unheeded_tests
        if step.number in unheeded.ignored:
            self._disregard(chunk, lanes, address, "a wait whose answer is not used, here by")
            return complete.astype(_WORD)
        refused = np.zeros_like(complete)
        if step.number in unheeded.passed:
            refused = self._refuse(chunk, address, barrier.phase - complete.astype(np.int64), lanes, complete)
        if not (complete | refused).all():  # a copy that the wait needs completes now
            self._catch_up(chunk, address)
            complete = awaited != _WORD.type(barrier.phase & 1)
        complete &= ~refused
        self._waiting.pop(address, None)
        if not complete.all():
            self._waiting[address] = barrier.phase, chunk.place(int(lanes[~complete][0]))
        if complete.any():
            for warp in np.unique(chunk.warp[lanes[complete] // WARP_SIZE, 0]).tolist():
                self._unheeded.pop(warp, None)
            if chunk.transfers is not None:
                chunk.transfers.waited(chunk, address, barrier.phase - 1)
            if chunk.launch.races is not None:
                phase = address, barrier.phase - 1
                chunk.launch.races.mbarrier_wait(chunk, lanes[complete], phase, *_order(step))
        return complete.astype(_WORD)

    # ---- tests that the program does not heed --------------------------------------------------------

    def _refuse(self, chunk: Chunk, address: int, awaited: _Lanes, lanes: _Lanes, complete: Any) -> Any:
        """The lanes whose test may return false, since the end of their phase is not ordered before the test.

        The program continues although the result was false; a warp that keeps testing gets true in the end.
        """
        newest, warps = int(awaited.max()), chunk.warp[lanes // WARP_SIZE, 0]
        phase, asked = self._asked.get(address, (-1, None))
        if asked is None or phase != newest:
            told = self._dice is not None and not self._dice.below(_CANDID)
            asked = np.full(self._warps, _PATIENCE * told)
            self._asked[address] = newest, asked
        refused = asked[warps] < _PATIENCE
        races = chunk.launch.races
        if races is not None and complete.any() and refused.any():
            refused[complete] &= ~races.mbarrier_settled(
                chunk, lanes[complete], (address, int(awaited[complete][0]))
            )
        elif races is None:
            refused &= ~complete
        if refused.any():
            asked[warps[refused]] += 1
            self._disregard(chunk, lanes[refused], address, "a wait that answers no, as it may, here by")
        return refused

    def _disregard(self, chunk: Chunk, lanes: _Lanes, address: int, words: str) -> None:
        """Remember a wait that returned before its phase was complete, for a later fault of the warp."""
        warps = chunk.warp[lanes // WARP_SIZE, 0]
        for warp in set(warps.tolist()):
            old = self._unheeded.get(warp)
            if old is None or old[:2] != (address, words):
                place = chunk.place(int(lanes[(warps == warp).argmax()]))
                self._unheeded[warp] = address, words, place

    def note_unheeded(self, chunk: Chunk, fault: KernelFault, lane: int, address: int | None = None) -> None:
        """Add the warp's last wait to a lane's fault, if that wait ordered nothing."""
        wait = self._unheeded.get(int(chunk.warp[lane // WARP_SIZE, 0]))
        if wait is not None and address in (None, wait[0]):
            fault.note(*wait[1:])
            fault.advice = "go on only where mbarrier.try_wait or test_wait has answered yes: ask in a loop"

    # ---- one phase ends ------------------------------------------------------------------------------

    def _advance(self, chunk: Chunk, address: int, barrier: _Barrier) -> None:
        """Begin the next phase, if neither arrivals nor bytes are pending in this one."""
        if barrier.pending or barrier.transaction or not barrier.expected:
            return
        if chunk.transfers is not None and (late := chunk.transfers.uncounted(address, barrier.phase)):
            self._blame(
                chunk,
                late[0],
                "a phase of an mbarrier completes before all copies that it counts have ended",
                f"mbarrier at {self._where(chunk, address)}: phase {barrier.phase}, {barrier.counted} bytes "
                f"arrived as expected, {sum(one.bytes for one in late)} bytes in flight",
                "expect the bytes of all copies of the phase",
                barrier.expects,
            )
        barrier.pending, barrier.counted = barrier.expected, 0
        barrier.phase += 1

    # ---- asynchronous copies ---------------------------------------------------------------------------

    def expect(self, chunk: Chunk, transfer: Transfer) -> int:
        """The phase of the barrier that will count a transfer."""
        address = transfer.barrier
        assert address is not None
        if (barrier := self._barriers.get(address)) is None:
            what, advice = "a copy that signals memory without an mbarrier", "initialise the mbarrier first"
            self._blame(chunk, transfer, what, self._where(chunk, address), advice)
            return 0
        return barrier.phase

    def count(self, chunk: Chunk, transfer: Transfer) -> None:
        """Count the bytes of a completed transfer."""
        address = transfer.barrier
        assert address is not None
        if (barrier := self._barriers.get(address)) is None:
            return
        if chunk.launch.races is not None:
            chunk.launch.races.complete(("mbarrier", address), transfer.time, (address, barrier.phase))
        self._count(barrier, transfer.bytes)
        if abs(barrier.transaction) > _MOST:
            what = f"more than {_MOST} pending bytes at an mbarrier"
            self._blame(chunk, transfer, what, f"{self._where(chunk, address)}: {barrier}", _EXPECT)
        self._advance(chunk, address, barrier)
        self._keep(chunk, np.array([address], np.uint64))

    def expect_late(self, chunk: Chunk, address: int, count: int) -> bool:
        """Add ``count`` arrivals to an mbarrier's current phase; return False if there is no mbarrier."""
        if (barrier := self._barriers.get(address)) is None:
            what = "an operation on memory without an mbarrier"
            self._find(chunk, chunk.mask.argmax(), what, self._where(chunk, address), _INITIALISE)
            return False
        barrier.pending += count
        self._keep(chunk, np.array([address], np.uint64))
        return True

    def arrive_late(self, chunk: Chunk, address: int, count: int, time: int) -> None:
        """Count arrivals of threads whose copies have ended; ``time`` is the race detector's, of the last."""
        if (barrier := self._barriers.get(address)) is not None:
            if chunk.launch.races is not None and time:
                chunk.launch.races.complete(("cp.async", address), time, (address, barrier.phase))
            if count > barrier.pending:
                values = f"{self._where(chunk, address)}: {barrier}"
                self._find(chunk, chunk.mask.argmax(), f"{count} arrivals at an mbarrier", values)
            barrier.pending = max(0, barrier.pending - count)
            self._advance(chunk, address, barrier)
            self._keep(chunk, np.array([address], np.uint64))

    @staticmethod
    def _count(barrier: _Barrier, count: int) -> None:
        barrier.transaction -= count
        barrier.counted += count

    def _catch_up(self, chunk: Chunk, address: int) -> None:
        """Move the bytes of all copies that the mbarrier at an address counts."""
        if chunk.transfers is not None:
            chunk.transfers.deliver(chunk, address)
        if chunk.copies is not None:
            chunk.copies.deliver(chunk, address)

    def _blame(
        self,
        chunk: Chunk,
        transfer: Transfer,
        what: str,
        values: str,
        advice: str,
        other: Place | None = None,
    ) -> None:
        """Report a fault of the lane that issued a transfer."""
        place = chunk.place_of(transfer.thread, transfer.step)
        fault = BarrierFault(what, values, advice, place, other=other or Place())
        if fault.other.line is not None:
            fault.note("its bytes were last expected here by", fault.other)
        chunk.launch.found(fault)

    # ---- memory --------------------------------------------------------------------------------------

    def _announce(self, chunk: Chunk, step: Step, place: Target, lanes: _Lanes, at: Any) -> None:
        """Run an access's checks: initialising or invalidating an mbarrier is a write, using it a read."""
        if chunk.copies is not None and chunk.copies.in_flight:
            chunk.copies.check(chunk, place.memory, lanes, at, _WORD.itemsize, "update")
        if step.form.has("init") or step.form.has("inval"):
            announce_store(chunk, step, place, at, np.zeros(at.size, _WORD))
        elif chunk.launch.races is not None:
            chunk.launch.races.access(
                OrderedAccess(chunk, step, "read", place.memory, lanes, at, _WORD.itemsize)
            )

    def _keep(self, chunk: Chunk, addresses: npt.NDArray[np.uint64]) -> None:
        """Store the words of the barriers at these addresses."""
        states = {at: barrier.state for at in addresses.tolist() if (barrier := self._barriers.get(at))}
        at = np.array(list(states), np.uint64)
        words = np.array(list(states.values()), _WORD)
        if chunk.launch.journal is not None:
            chunk.launch.journal.note(self._shared, at, _WORD.itemsize, chunk.step, words)
        self._shared.write(at, words)

    def _where(self, chunk: Chunk, address: int) -> str:
        return chunk.program.shared_place(address % chunk.shared_stride)

    def _find(self, chunk: Chunk, lane: Any, what: str, values: str, advice: str = "") -> None:
        """Report a fault of one lane at an mbarrier."""
        advice = advice or _EXPECT
        chunk.found(BarrierFault(what, values, advice), int(lane))


def _order(step: Step) -> tuple[bool, bool]:
    """Whether an arrival or wait is relaxed, and whether its scope is wider than the block."""
    return step.form.has("relaxed"), not step.form.has("cta")


def operate(chunk: Chunk, step: Step) -> None:
    """Execute an ``mbarrier`` instruction."""
    assert chunk.mbarriers is not None
    if step.base is None:
        results = np.bitwise_and(step.sources[0](chunk), _WORD.type(_MOST)).astype(np.uint32)
    else:
        results = chunk.mbarriers.execute(chunk, step)
    write = step.destinations[0] if step.destinations else None
    if write is not None:
        write(chunk, results != 0 if step.row.destinations[0].kind == "pred" else results)
