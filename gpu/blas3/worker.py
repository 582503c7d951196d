"""The work of one device: its streams, its tiles, and the order of their use (BLASX, algorithm 1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from gpu.blas3.blocks import Block
from gpu.blas3.cache import Entry, TileCache
from gpu.blas3.pools import Pool
from gpu.blas3.routines import TileRoutine
from gpu.blas3.stations import Slot
from gpu.blas3.statistics import DeviceStatistics
from gpu.blas3.tasks import Kernel, Output, Step, Task
from gpu.machine import Event, Stream, Tile
from reference.errors import LaunchError

if TYPE_CHECKING:
    from gpu.blas3.run import Run


@dataclass(frozen=True, eq=False)
class Copy:
    """A device's copy of a block, and the event after which it is valid."""

    tile: Tile
    ready: Event  # happens once the tile's values are in memory
    stream: Stream  # the stream that filled the tile


Held: TypeAlias = Entry[Block, Copy]
Kind: TypeAlias = Literal["in", "out", "peer"]
KINDS: tuple[Kind, ...] = ("in", "out", "peer")
COPY = Kernel("geam", 1.0, 0.0)
"""A copy within a device."""
IN_A_ROW = 8
"""So often each stream gets a step until it is the other workers' turn: a GPU may be as fast as its host."""


@dataclass
class Lane:
    """A stream with the task that it computes."""

    stream: Stream
    # steps that are not queued yet, each with its output
    steps: deque[tuple[Output, Step]] = field(default_factory=deque[tuple[Output, Step]])
    buffer: Tile | None = None  # the output that is being computed
    queued: deque[Event] = field(default_factory=deque[Event])  # ends of queued steps
    tasks: deque[Event] = field(default_factory=deque[Event])  # ends of tasks whose steps are all queued


@dataclass
class Pending:
    """The tiles and buffers that a queued step holds until its event has happened."""

    end: Event
    held: list[Held]  # tiles that the step reads
    buffers: list[Tile]  # outputs that are not needed after the step
    written: list[Block]  # blocks that the step has written back


class DeviceWorker:
    """The host-side loop that feeds one device with tasks."""

    def __init__(self, run: Run, device: int, pool: Pool, statistics: DeviceStatistics) -> None:
        self._run, self._machine, self.device, self.pool = run, run.machine, device, pool
        self.cache: TileCache[Block, Copy] = TileCache(lambda copy: pool.free(copy.tile))
        self.loans: list[tuple[Held, Event]] = []
        """Tiles that peers are copying, each with the end of the copy."""
        self.statistics = statistics
        self._pending: deque[Pending] = deque()
        self._lanes = [Lane(run.machine.stream(device)) for _ in range(run.streams)]
        is_ordered = run.options.copies == "ordered"
        self._copies = [run.machine.stream(device) for _ in range(3)] if is_ordered else []
        self._deliveries: dict[int, Stream] = {}
        """Streams of other devices, for results that lie there."""

    def hold(
        self, block: Block, home: Tile, ready: Event | None = None, stream: Stream | None = None
    ) -> None:
        """Register a block that is already on this device; a permanent reader protects it from eviction."""
        stream = stream or self._lanes[0].stream
        self.cache.insert(block, Copy(home, ready or self._machine.record(stream), stream))
        self._run.directory.read(block, self.device)

    def has_arrived(self, block: Block) -> bool:
        """True if the device has a cached copy of the block that has arrived."""
        copy = self.cache.place(block)
        return copy is not None and copy.ready.done

    # ----------------------------------------------------------------------------------------------
    # Tasks
    # ----------------------------------------------------------------------------------------------

    def work(self) -> Iterator[Event]:
        """Compute tasks until none is left; yield each event to wait for."""
        if self._run.options.advance == "batch":
            yield from self._in_batches()
        else:
            yield from self._in_streams()
        yield from self._synchronise()

    def _in_batches(self) -> Iterator[Event]:
        """Give each stream a task when all have finished theirs."""
        while self._has_tasks():
            yield from self._synchronise()
            for lane, task in zip(self._lanes, self._tasks(len(self._lanes)), strict=False):
                lane.steps.extend(task.steps())
            while any(lane.steps for lane in self._lanes):
                for lane in self._lanes:
                    if lane.steps:
                        yield from self._advance(lane)

    def _in_streams(self) -> Iterator[Event]:
        """Feed each stream with a task whenever it has few steps ahead."""
        # the stream is empty, so the event has happened
        turn, in_a_row = self._machine.record(self._lanes[0].stream), 0
        while True:
            has_advanced = False
            for lane in self._lanes:
                if self._may_advance(lane):
                    yield from self._advance(lane)
                    has_advanced = True
            in_a_row += 1
            if has_advanced and in_a_row < IN_A_ROW:
                continue
            in_a_row = 0
            if has_advanced:
                yield turn
            else:
                self._settle()
                waiting = [pending.end for pending in self._pending]
                waiting += [event for lane in self._lanes for event in (*lane.queued, *lane.tasks)]
                if not waiting:
                    return
                yield waiting[0]

    def _may_advance(self, lane: Lane) -> bool:
        """Whether a stream should get a step now; gives the stream a task if it has none.

        While tasks are plenty a stream has its next one before the last has ended; the last tasks go to those
        that wait for one.
        """
        for events in (lane.queued, lane.tasks):
            while events and events[0].done:
                events.popleft()
        if lane.steps:
            return len(lane.queued) < self._run.options.ahead
        stations = self._run.stations
        is_plenty = stations.left >= len(self._lanes) * self._machine.devices
        if len(lane.tasks) > is_plenty or not self._has_tasks():
            return False
        lane.steps.extend(self._tasks(1)[0].steps())
        return True

    def _has_tasks(self) -> bool:
        """Fill the device's reservation station; return whether it has tasks."""
        self.statistics.stolen += self._run.stations.fill(self.device)
        return bool(self._run.stations.waiting(self.device))

    def _tasks(self, count: int) -> list[Task]:
        """Take up to ``count`` next tasks from the device's station."""
        if self._run.options.order == "priority":
            self._run.stations.refresh(self.device, self._priority)
        tasks = self._run.stations.take(self.device, count)
        self.statistics.tasks += len(tasks)
        return tasks

    def _priority(self, slot: Slot) -> float:
        """The mean over the task's reads: 2 for a tile that is here, 1 at a peer (equation 3)."""
        worth = [
            2 if block in self.cache else int(self._run.is_at_peer(block, self.device))
            for block in slot.reads
        ]
        return sum(worth) / max(len(worth), 1)

    # ----------------------------------------------------------------------------------------------
    # Steps
    # ----------------------------------------------------------------------------------------------

    def _advance(self, lane: Lane) -> Iterator[Event]:
        """Queue the next step of a stream, with the copies that it needs."""
        output, step = lane.steps.popleft()
        if lane.buffer is None:
            lane.buffer = yield from self._allocate(output.block.shape)
            if output.is_loaded:
                self._load(output.block, lane.buffer, lane.stream)
        held: list[Held] = []
        for block in step.reads:
            entry = yield from self._fetch(block, lane.stream)
            held.append(entry)
        operands = tuple(entry.place.tile for entry in held)
        self._machine.launch(lane.stream, TileRoutine(step.kernel, operands, lane.buffer))
        pending = Pending(self._machine.record(lane.stream), held, [], [])
        if not lane.steps or lane.steps[0][0] is not output:
            self._write_back(lane, output, pending)
        self._pending.append(pending)
        lane.queued.append(pending.end)
        if not lane.steps:
            lane.tasks.append(pending.end)

    def _load(self, block: Block, buffer: Tile, stream: Stream) -> None:
        """Copy the old values of a block into a buffer, before the stream's later work."""
        home = self._run.home(block)
        if home is not None and home.memory.device == self.device:
            self._machine.launch(stream, TileRoutine(COPY, (home,), buffer))
            return
        loads = self._stream_of("in" if home is None else "peer", stream)
        if home is None:
            self._machine.copy_in(loads, self._run.host(block), buffer)
            self.statistics.bytes_in += buffer.nbytes
        else:
            self._machine.copy_peer(loads, home, buffer)
            self.statistics.bytes_peer += buffer.nbytes
        self._wait(stream, loads)

    def _write_back(self, lane: Lane, output: Output, pending: Pending) -> None:
        """Copy a finished tile to its block's home; keep it as a copy if later tiles read it."""
        buffer, block = lane.buffer, output.block
        assert buffer is not None
        lane.buffer = None
        for holder in self._run.directory.write(block, self.device):
            self._run.workers[holder].cache.drop(block)
        home = self._run.home(block)
        stores = self._store(buffer, block, home, lane.stream)
        is_elsewhere = home is not None and home.memory.device != self.device
        if output.is_reused and (is_elsewhere or (home is None and self._run.options.cache)):
            copy = Copy(buffer, pending.end, lane.stream)
            pending.held.append(self.cache.insert(block, copy))
            self._run.directory.read(block, self.device)
        else:
            pending.buffers.append(buffer)
            if output.is_reused and home is None:  # later steps read the block from the host again
                self._wait(self._stream_of("in", lane.stream), stores)
        pending.written.append(block)
        pending.end = self._machine.record(stores)
        if output.is_reused and home is not None and not is_elsewhere:
            self.hold(block, home, pending.end, stores)

    def _store(self, buffer: Tile, block: Block, home: Tile | None, stream: Stream) -> Stream:
        """Copy a finished tile of a stream to its block's home; returns the stream of the copy."""
        if home is None:
            stores = self._stream_of("out", stream)
            self._wait(stores, stream)
            self._machine.copy_out(stores, buffer, self._run.host(block))
            self.statistics.bytes_out += buffer.nbytes
            return stores
        owner = home.memory.device
        if owner == self.device:
            self._machine.launch(stream, TileRoutine(COPY, (buffer,), home))
            return stream
        if owner not in self._deliveries:
            self._deliveries[owner] = self._machine.stream(owner)
        stores = self._deliveries[owner]
        self._wait(stores, stream)
        self._machine.copy_peer(stores, buffer, home)
        self.statistics.bytes_peer += buffer.nbytes
        return stores

    # ----------------------------------------------------------------------------------------------
    # Tiles
    # ----------------------------------------------------------------------------------------------

    def _fetch(self, block: Block, stream: Stream) -> Generator[Event, None, Held]:
        """Fetch a tile and add a reader; its values are there for the stream's later work."""
        entry = self.cache.take(block)
        if entry is not None:
            self.statistics.hits += 1
            if entry.place.stream is not stream:
                self._machine.wait(stream, entry.place.ready)
            return entry
        tile = yield from self._allocate(block.shape)
        peer = self._run.peer_with(block, self.device)
        copies = self._stream_of("in" if peer is None else "peer", stream)
        if peer is None:
            self._machine.copy_in(copies, self._run.host(block), tile)
            self.statistics.misses += 1
            self.statistics.bytes_in += tile.nbytes
        else:
            self._copy_from(peer, block, tile, copies)
        copy = Copy(tile, self._machine.record(copies), copies)
        if copies is not stream:
            self._machine.wait(stream, copy.ready)
        if not self._run.options.cache:
            return Entry(block, copy, is_found=False)
        self._run.directory.read(block, self.device)
        return self.cache.insert(block, copy)

    def _copy_from(self, peer: DeviceWorker, block: Block, tile: Tile, stream: Stream) -> None:
        """Copy a peer's tile, which has a reader until the copy has ended."""
        source = peer.cache.take(block)
        assert source is not None
        self._machine.wait(stream, source.place.ready)
        self._machine.copy_peer(stream, source.place.tile, tile)
        peer.loans.append((source, self._machine.record(stream)))
        self.statistics.peer_hits += 1
        self.statistics.bytes_peer += tile.nbytes

    def _stream_of(self, kind: Kind, stream: Stream) -> Stream:
        """The stream of a copy: that of its kind, or that of the task."""
        return self._copies[KINDS.index(kind)] if self._copies else stream

    def _wait(self, stream: Stream, other: Stream) -> None:
        """Make a stream wait for another's work so far."""
        if other is not stream:
            self._machine.wait(stream, self._machine.record(other))

    def _allocate(self, shape: tuple[int, int]) -> Generator[Event, None, Tile]:
        """Allocate memory for a tile; if all tiles are in use, wait for queued work to end."""
        while True:
            tile = self.pool.allocate(shape)
            if tile is not None:
                return tile
            if self._settle():
                continue
            evicted = self.cache.evict()
            if evicted is not None:
                self._run.directory.evicted(evicted, self.device)
                self.statistics.evictions += 1
            elif self._pending or self.loans:
                self.statistics.stalls += 1
                yield from self._make_room()
            else:
                raise LaunchError(
                    f"device {self.device} has no room for a tile of {shape}\n"
                    "all its tiles are in use by one batch\nchoose a smaller tile, or a larger budget"
                )

    # ----------------------------------------------------------------------------------------------
    # Ends of queued work
    # ----------------------------------------------------------------------------------------------

    def _make_room(self) -> Iterator[Event]:
        """Wait for the oldest step to end (as in the paper, for all of them), or for a peer's copy."""
        if not self._pending:
            yield self.loans[0][1]
        elif self._run.options.advance == "batch":
            yield from self._synchronise()
        else:
            yield self._pending[0].end

    def _synchronise(self) -> Iterator[Event]:
        """Wait for the end of all queued steps: StreamsSynch, then ReaderUpdate."""
        while self._pending:
            if not self._pending[0].end.done:
                yield self._pending[0].end
            self._retire(self._pending.popleft())
        for lane in self._lanes:
            lane.queued.clear()
            lane.tasks.clear()

    def _settle(self) -> bool:
        """Release the tiles of queued work that has ended; return whether there was any."""
        before = len(self._pending) + len(self.loans)
        if self._run.options.advance == "stream":
            still: deque[Pending] = deque()
            for pending in self._pending:
                if pending.end.done:
                    self._retire(pending)
                else:
                    still.append(pending)
            self._pending = still
        on_loan: list[tuple[Held, Event]] = []
        for entry, end in self.loans:
            if end.done:
                self.cache.release(entry)
            else:
                on_loan.append((entry, end))
        self.loans = on_loan
        return len(self._pending) + len(self.loans) < before

    def _retire(self, pending: Pending) -> None:
        """Release the tiles and buffers that a finished step used."""
        for entry in pending.held:
            self.cache.release(entry)
        for buffer in pending.buffers:
            self.pool.free(buffer)
        for block in pending.written:
            self._run.directory.written(block)
            self._run.finish(block)
            home = self._run.home(block)
            if home is not None and home.memory.device != self.device and block in self.cache:
                owner = home.memory.device  # the owner still has the block when our copy is evicted
                self._run.workers[owner].hold(block, home, pending.end, self._deliveries[owner])
