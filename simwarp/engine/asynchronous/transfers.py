"""Operations of the asynchronous proxy: bulk copies and reductions, and the times when they execute.

A transfer happens at a moment between its issue and the end of a wait for it: as late as possible under the
schedule "lowest pc", at once under "stack", at random under "random". An mbarrier counts its bytes, or the
issuing thread waits for its bulk group. The race detector records its accesses at the issue as those of an
agent that only that wait orders with others, so one run judges all interleavings of its paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.dice import Dice
from simwarp.engine.events import AccessEvent, Agent, OrderedAccess, StageEvent, WriteEvent
from simwarp.faults import CopyInFlight, Place

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask
    from simwarp.memory import Memory
    from simwarp.program.program import Step

_Addresses = npt.NDArray[np.uint64]


@dataclass(eq=False)
class Transfer:
    """An operation that one lane issues: units of memory that are read, combined and written.

    Attributes
    ----------
    step : Step
    lane : int
        The issuing lane, in the chunk or part of it that executes; of several, the first.
    target : Memory
    writes : (n,) uint64
        Addresses of the units in it.
    width : int
        Bytes of a unit, 1 to 16.
    source : Memory or None
        None for a transfer of ``data``.
    reads : (n,) uint64
        Addresses of the units in ``source``.
    filled : (n,) bool or None
        The units that are not read but become ``fill``, one unit: those outside a tensor.
    data : (n,) or None
        The units that are written, if they do not come from memory.
    combine : callable, optional
        For a reduction: takes the old and the new units; returns those to write.
    swizzle : int or None
        The span of the tensor map's swizzle, for a copy of a tile to shared memory.
    barrier : int or None
        Address in the chunk's shared memory of the mbarrier that counts ``bytes``; None: a bulk group.
    lanes : (n,) or None
        The issuing lane of each unit; None if all are ``lane``'s.
    repeated : bool
        Whether another transfer of the same multicast has read the source: memory is read once.
    """

    step: Step
    lane: int
    target: Memory
    writes: _Addresses
    width: int
    source: Memory | None = None
    reads: _Addresses = field(default_factory=lambda: np.zeros(0, np.uint64))
    filled: npt.NDArray[np.bool_] | None = None
    fill: Any = 0
    data: npt.NDArray[Any] | None = None
    combine: Callable[[Any, Any], Any] | None = None
    swizzle: int | None = None
    barrier: int | None = None
    bytes: int = 0
    lanes: npt.NDArray[np.int64] | None = None
    repeated: bool = False
    thread: int = -1
    group: int = 0
    phase: int = 0
    time: int = 0
    pending: bool = True
    reading: bool = True
    """Whether its source may not be overwritten yet, as far as its issuer knows."""

    def issuers(self, count: int) -> npt.NDArray[np.int64]:
        """(count,): the issuing lane of each of ``count`` units."""
        return np.full(count, self.lane) if self.lanes is None else self.lanes

    @property
    def counts_in(self) -> int | None:
        """The phase of the mbarrier that counts the transfer's bytes; None if there is none."""
        return None if self.barrier is None else self.phase

    @property
    def copied(self) -> npt.NDArray[np.bool_] | slice:
        """Mask of the units that are read from the source; the other units are filled."""
        return slice(None) if self.filled is None else ~self.filled


class Transfers:
    """The transfers of a chunk that no thread has waited for yet."""

    def __init__(self, chunk: Chunk) -> None:
        launch = chunk.launch
        self._shared = chunk.shared
        self._grouped: list[Transfer] = []
        self._counted: dict[int, list[Transfer]] = {}
        """By the address of the mbarrier that counts them."""
        self._commits: dict[int, int] = {}
        """Thread → how many bulk groups it committed."""
        self._exits: dict[int, Place] = {}
        """Block of a cluster, numbered in the chunk → where a thread of it exited last."""
        self._latest = launch.schedule != "stack"
        self._dice = Dice(launch.seed, ~chunk.blocks) if launch.schedule == "random" else None

    @property
    def in_flight(self) -> bool:
        """Whether the bytes of some issued transfer have not moved yet."""
        counted = (one for some in self._counted.values() for one in some)
        return bool(self._grouped) or any(one.pending for one in counted)

    # ---- issue -------------------------------------------------------------------------------------

    def issue(self, chunk: Chunk, transfer: Transfer) -> None:
        """Issue a bulk transfer whose addresses have been checked."""
        transfer.thread = int(chunk.thread.reshape(-1)[transfer.lane])
        transfer.group = self._commits.get(transfer.thread, 0)
        if transfer.barrier is not None:
            assert chunk.mbarriers is not None
            transfer.phase = chunk.mbarriers.expect(chunk, transfer)
        self._check_block(chunk, transfer)
        self._check_copies(chunk, transfer)
        self._show(chunk, transfer)
        self._notify(chunk, transfer, "issued")
        self._notify_accesses(chunk, transfer)
        mine = self._grouped if transfer.barrier is None else self._counted.setdefault(transfer.barrier, [])
        mine.append(transfer)
        if not self._latest:
            self._happen(chunk, transfer)
        self.some_happen(chunk)

    def _check_block(self, chunk: Chunk, transfer: Transfer) -> None:
        """Report a transfer into the shared memory of a block that has exited."""
        if transfer.target is not self._shared or chunk.is_part or not transfer.writes.size:
            return
        block, offset = divmod(int(transfer.writes[0]), chunk.shared_stride)
        warps = slice(block * chunk.warps_per_block, (block + 1) * chunk.warps_per_block)
        if not chunk.live[warps].any():
            place = self._exits.get(block, Place())
            fault = CopyInFlight(
                "a copy into the shared memory of a block that has exited",
                chunk.program.shared_place(offset),
                "let the blocks of a cluster meet at barrier.cluster before one exits, or send it nothing",
                copy=chunk.place(transfer.lane),
                exit=place,
            )
            fault.note("the block exited here with", place)
            chunk.found(fault, transfer.lane)

    def _check_copies(self, chunk: Chunk, transfer: Transfer) -> None:
        """Report a transfer of bytes that a ``cp.async`` in flight writes, or into bytes that one reads."""
        copies = chunk.copies
        if copies is None or not copies.in_flight:
            return
        reads = transfer.reads[transfer.copied] if transfer.reads.size else transfer.reads
        for memory, at, verb in (
            (transfer.source, reads, "read"),
            (transfer.target, transfer.writes, "write"),
        ):
            if memory is not None and at.size:
                copies.check(chunk, memory, transfer.issuers(at.size), at, transfer.width, verb)

    def _show(self, chunk: Chunk, transfer: Transfer) -> None:
        """Pass the reads and writes of a transfer to the race detector."""
        races, step = chunk.launch.races, transfer.step
        if races is None:
            return
        source, copied = step.source or step, transfer.copied
        if transfer.source is not None and transfer.reads[copied].size:
            shared = transfer.source is self._shared
            if shared or source.number in chunk.launch.watched_loads:
                reads = transfer.reads[copied]
                lanes = transfer.issuers(reads.size)
                access = OrderedAccess(chunk, source, "read", transfer.source, lanes, reads, transfer.width)
                transfer.time = races.issue(access, _agent(transfer, "bulk read"), transfer.counts_in)
        if transfer.writes.size:
            data = None if transfer.combine is not None else self._data(transfer)[0]
            if data is not None and self._written_by_another(transfer, data):
                return
            kind = "write" if transfer.combine is None else "atomic"
            lanes = transfer.issuers(transfer.writes.size)
            access = OrderedAccess(
                chunk, step, kind, transfer.target, lanes, transfer.writes, transfer.width, data
            )
            transfer.time = races.issue(access, _agent(transfer, "bulk"), transfer.counts_in)

    def _written_by_another(self, transfer: Transfer, data: npt.NDArray[Any]) -> bool:
        """Whether a pending transfer writes the same bits to the same address: then the two do not race."""
        return any(
            other.pending
            and other.combine is None
            and other.target is transfer.target
            and other.width == transfer.width
            and np.array_equal(other.writes, transfer.writes)
            and np.array_equal(self._data(other)[0], data)
            for other in self._grouped
        )

    def _notify_accesses(self, chunk: Chunk, transfer: Transfer) -> None:
        """Notify the observers of a transfer's accesses to memory."""
        if not chunk.launch.on_access:
            return
        kind = "store" if transfer.combine is None else "reduction"
        reads = transfer.reads[transfer.copied] if transfer.reads.size else transfer.reads
        source, step = None if transfer.repeated else transfer.source, transfer.step
        copies = "tensor copies" if step.coordinates else "bulk copies"
        unit = "remote stores" if step.source is None else copies
        for memory, at, does in ((source, reads, "load"), (transfer.target, transfer.writes, kind)):
            if memory is not None and at.size:
                space, lanes = "global", transfer.issuers(at.size)
                if memory is self._shared:
                    space, at = "shared", at % np.uint64(chunk.shared_stride)
                event = AccessEvent(chunk, step, does, space, lanes, at, transfer.width, unit)
                for observe in chunk.launch.on_access:
                    observe(event)

    def _notify(self, chunk: Chunk, transfer: Transfer, moment: str) -> None:
        """Notify the observers of a copy that an mbarrier counts."""
        if chunk.launch.on_stage and transfer.barrier is not None and transfer.writes.size:
            stride = chunk.shared_stride
            block = int(chunk.block_numbers[int(transfer.writes[0]) // stride])
            at, stage = transfer.writes % np.uint64(stride), f"mbarrier {transfer.barrier % stride}"
            event = StageEvent(chunk, transfer.step, moment, stage, block, at, transfer.width)
            for observe in chunk.launch.on_stage:
                observe(event)

    # ---- waits -------------------------------------------------------------------------------------

    def commit(self, chunk: Chunk) -> None:
        """End the current bulk group of each executing thread."""
        for thread in chunk.thread[chunk.mask].tolist():
            self._commits[thread] = self._commits.get(thread, 0) + 1
        self.some_happen(chunk)

    def wait(self, chunk: Chunk, pending: int, reads_only: bool) -> None:
        """Complete the executing threads' bulk groups, or only their reads, except the latest ``pending``."""
        self.some_happen(chunk)
        lanes = {int(chunk.thread.reshape(-1)[lane]): lane for lane in np.flatnonzero(chunk.mask).tolist()}
        left: list[Transfer] = []
        for transfer in self._grouped:
            if (
                transfer.thread not in lanes
                or transfer.group >= self._commits.get(transfer.thread, 0) - pending
            ):
                left.append(transfer)
                continue
            self._happen(chunk, transfer)
            self._retire(chunk, transfer, lanes[transfer.thread], "bulk read")
            transfer.reading = False
            if reads_only:
                left.append(transfer)
            else:
                self._retire(chunk, transfer, lanes[transfer.thread], "bulk")
        self._grouped = left

    def _retire(self, chunk: Chunk, transfer: Transfer, lane: int, word: str) -> None:
        if chunk.launch.races is not None and transfer.time:
            chunk.launch.races.retire(chunk, np.array([lane]), _agent(transfer, word), transfer.time)

    def deliver(self, chunk: Chunk, barrier: int) -> None:
        """Execute all transfers that an mbarrier counts, since a thread tests its phase."""
        for transfer in self._counted.get(barrier, ()):
            self._happen(chunk, transfer)

    def waited(self, chunk: Chunk, barrier: int, phase: int) -> None:
        """Forget the transfers of a phase that a thread observed as complete."""
        if barrier in self._counted:
            for transfer in self._counted[barrier]:
                if transfer.phase <= phase and not transfer.pending:
                    self._notify(chunk, transfer, "filled")
            self._counted[barrier] = [t for t in self._counted[barrier] if t.phase > phase or t.pending]

    def uncounted(self, barrier: int, phase: int) -> list[Transfer]:
        """The pending transfers whose bytes count in a phase of an mbarrier."""
        return [t for t in self._counted.get(barrier, ()) if t.phase <= phase and t.pending]

    def leave(self, chunk: Chunk, mask: Mask) -> None:
        """Report bulk groups that still read shared memory when their thread exits."""
        exiting = set(chunk.thread[mask].tolist())
        if chunk.launch.blocks_per_cluster > 1:
            blocks, lanes = np.unique(chunk.block_in_chunk[np.nonzero(mask)[0], 0], return_index=True)
            for block, lane in zip(blocks.tolist(), np.flatnonzero(mask)[lanes].tolist(), strict=True):
                self._exits[block] = chunk.place(lane)
        for transfer in self._grouped:
            if transfer.thread in exiting and transfer.reading:
                transfer.reading = False
                if transfer.source is self._shared:
                    self._left(
                        chunk,
                        transfer,
                        "a thread exits before its asynchronous copy has read shared memory",
                        "let the thread wait for it (cp.async.bulk.wait_group.read) before it exits",
                        chunk.place_of(transfer.thread, chunk.step),
                    )

    def _left(
        self, chunk: Chunk, transfer: Transfer, what: str, advice: str, exit_: Place | None = None
    ) -> None:
        place = chunk.place_of(transfer.thread, transfer.step)
        shared = [
            at
            for memory, at in ((transfer.source, transfer.reads), (transfer.target, transfer.writes))
            if memory is self._shared and at.size
        ]
        values = f"{transfer.bytes} bytes"
        if shared:
            values += f" from {chunk.program.shared_place(int(shared[0][0]) % chunk.shared_stride)} on"
        fault = CopyInFlight(what, values, advice, place, exit=exit_ or Place())
        if exit_ is not None:
            fault.note("the thread exits here:", exit_)
        fault.copy = place
        chunk.launch.found(fault)

    # ---- moments -----------------------------------------------------------------------------------

    def some_happen(self, chunk: Chunk) -> None:
        """Execute a random part of the pending transfers, under the random schedule."""
        if self._dice is not None:
            for transfer in self._all():
                if transfer.pending and self._dice.below(2):
                    self._happen(chunk, transfer)

    def finish(self, chunk: Chunk) -> None:
        """Complete all transfers at the end of the chunk; report those that no thread waited for."""
        for transfer in self._all():
            self._happen(chunk, transfer)
            if transfer.barrier is not None:
                self._left(
                    chunk,
                    transfer,
                    "blocks exit without a wait for an asynchronous copy",
                    "wait for the phase of the mbarrier that counts it before the end of the kernel",
                )

    def _all(self) -> list[Transfer]:
        return [*self._grouped, *(one for counted in self._counted.values() for one in counted)]

    def _happen(self, chunk: Chunk, transfer: Transfer) -> None:
        """Move the bytes of a pending transfer, and count them at its mbarrier."""
        if not transfer.pending:
            return
        transfer.pending = False
        if transfer.writes.size:
            self._write(chunk, transfer)
        if transfer.barrier is not None:
            assert chunk.mbarriers is not None
            chunk.mbarriers.count(chunk, transfer)

    def _write(self, chunk: Chunk, transfer: Transfer) -> None:
        launch, target, at, width = chunk.launch, transfer.target, transfer.writes, transfer.width
        data, unwritten = self._data(transfer)
        if launch.journal is not None:
            launch.journal.note(target, at, width)
        if launch.lent.cells:
            launch.lent.forget(target, at, width)
        if transfer.combine is not None:
            data = transfer.combine(target.read(at, data.dtype), data)
        target.write(at, data)
        if unwritten is not None:
            target.forget(at, unwritten)
        if chunk.tiles is not None and target is self._shared:
            chunk.tiles.fill(chunk, transfer)
        if target is not self._shared and launch.on_write:
            event = WriteEvent(chunk, transfer.issuers(at.size), at, data, "")
            for observe in launch.on_write:
                observe(event)

    @staticmethod
    def _data(transfer: Transfer) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8] | None]:
        """The units to write, and their unwritten bits, byte by byte, or None."""
        if transfer.data is not None:
            return transfer.data, None
        assert transfer.source is not None
        copied, unit = transfer.copied, np.dtype(f"V{transfer.width}")
        reads = transfer.reads[copied]
        data = (
            np.full(transfer.writes.size, transfer.fill).view(unit) if transfer.filled is not None else None
        )
        read = transfer.source.peek(reads, unit) if reads.size else np.zeros(0, unit)
        unwritten = None
        if read is None:
            read = transfer.source.read(reads, unit)
            bits = transfer.source.unwritten_bits(reads, transfer.width)
            if bits.any():
                unwritten = np.zeros((transfer.writes.size, transfer.width), np.uint8)
                unwritten[copied] = bits
        if data is None:
            return read, unwritten
        data[copied] = read
        return data, unwritten


def _agent(transfer: Transfer, word: str) -> Agent:
    """The agent of a transfer in the race detector: its mbarrier, or ``word`` and the issuing thread."""
    return (word, transfer.thread) if transfer.barrier is None else ("mbarrier", transfer.barrier)
