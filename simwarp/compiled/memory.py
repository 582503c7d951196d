"""The memory of a chunk as compiled code sees it: allocations, shadows, warps, and room for a step's lanes.

Made once for a chunk, and brought up to date at each entry. `Reads` are the reads that the race detector's
shadows do not have yet: a shadow asks for them (`Shadow.pending`), unless a barrier came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.compiled.accesses import library
from simwarp.compiled.groups import words
from simwarp.compiled.registers import address
from simwarp.compiled.segments import Access as Traced
from simwarp.compiled.segments import Segment
from simwarp.compiled.tables import (
    LINES,
    LOADS,
    MEETS_BLOCK,
    MEETS_WARP,
    MOST_PIECES,
    STORES,
    WORDS_OF_READ,
    Access,
    Context,
    Record,
    Row,
)
from simwarp.lanes import WARP_SIZE
from simwarp.llvm import MachineCode, code_of
from simwarp.ptx.kinds import BARRIER, STORE
from simwarp.ptx.spaces import WINDOWS

if TYPE_CHECKING:
    from simwarp.compiled.state import Allocation, Chunk, Mask, Scheduler, Shadow, Table

_ALL_ONES = (1 << 64) - 1
_MOST_ALLOCATIONS = 64
"""An access that may reach more of them is NumPy's."""
_MOST_TICKS = 1 << 16
_READS_PER_WARP, _FEWEST_READS, _MOST_READS = 64, 1 << 12, 1 << 16
_GENERIC = ("global", "shared", "local")
"""The state spaces of the lines of a generic address."""
_MOVES = {"global": Row.NOTHING, "const": Row.NOTHING, "shared": Row.SHARED, "local": Row.LOCAL}


@cache
def shared_code() -> MachineCode:
    """The functions that all kernels share; RuntimeError if LLVM refuses them."""
    return code_of(library())


class Reads:
    """Reads of some allocations that are noted, and not in their shadows yet."""

    def __init__(self, context: Table, keep: list[Table], shadows: list[tuple[Shadow, bool]]) -> None:
        self._context, self._keep, self.shadows = context, keep, shadows
        for shadow, _ in shadows:
            shadow.pending = self.settle

    def settle(self) -> None:
        """Put them into the shadows."""
        self.forget()
        shared_code().function("replay", None, c_void_p)(address(self._context))

    def forget(self) -> None:
        """Drop them: later accesses are ordered behind all of them, or the shadows have them."""
        for shadow, _ in self.shadows:
            shadow.pending = None


class Memory:
    """The tables of a chunk, or of a part of one."""

    def __init__(self, chunk: Chunk, prepared: Sequence[Segment]) -> None:
        self.chunk, self._prepared = chunk, prepared
        warps, lanes = len(chunk.live), (len(chunk.live), WARP_SIZE)
        pieces = (warps, MOST_PIECES, WARP_SIZE)
        count = min(max(_READS_PER_WARP * warps, _FEWEST_READS), max(_MOST_READS, warps))
        self._room: dict[Context, Table] = {
            Context.AT: np.empty(lanes, np.uint64),
            Context.MASKS: np.empty(warps, np.uint32),
            Context.LIVE: np.empty(warps, np.uint32),
            Context.UNITS: np.empty(lanes, np.int64),
            Context.REACHED: np.empty(warps, np.uint64),
            Context.OLD: np.empty(pieces, np.int64),
            Context.BEST: np.empty(pieces, np.int64),
            Context.WORTH: np.empty(pieces, np.int64),
            Context.TIMES: np.empty(_MOST_TICKS, np.int64),
            Context.READS: np.empty((count + 1, WORDS_OF_READ), np.int64),
        }
        self._most_reads = count
        self._rows = self._make_rows()
        self._records: dict[Allocation, int] = {}
        self._lists: list[int] = []
        self._table = np.zeros((max(LINES * len(prepared), 1), len(Access)), np.uint64)
        self._reaches: dict[Any, tuple[int, int] | None] = {}
        for number, segment in enumerate(prepared):
            self._describe(number, segment)
        self._foreign = self._table[:, Access.FOREIGN] != 0
        self._marked = np.zeros((len(self._records), len(Record)), np.uint64)
        self._watch: tuple[bool, int] | None = None
        self._live: Mask | None = None
        tables = {
            **self._room,
            Context.ACCESSES: self._table,
            Context.LISTS: np.array(self._lists or [0], np.int64),
            Context.RECORDS: self._marked,
            Context.ROWS: self._rows,
        }
        self._kept = [*tables.values()]
        self._places, self._addresses = [*tables], [address(table) for table in self._kept]

    def _make_rows(self) -> Table:
        """What is known of each warp, without the barriers it has passed."""
        chunk = self.chunk
        rows = np.zeros((len(chunk.live), len(Row)), np.uint64)
        first = chunk.thread[:, 0]
        rows[:, Row.SHARED] = chunk.shared_start[:, 0]
        rows[:, Row.LOCAL] = chunk.warp[:, 0] * WARP_SIZE * chunk.local_stride
        rows[:, Row.THREAD] = first
        rows[:, Row.BLOCK] = first // WARP_SIZE // chunk.warps_per_block * chunk.warps_per_block
        return rows

    # ---- accesses --------------------------------------------------------------------------------------

    def _describe(self, number: int, segment: Segment) -> None:
        """Fill the line of a step, without what may change while the chunk runs."""
        access, line = segment.access, self._table[LINES * number]
        if access is None:
            is_barrier = segment.prepared is not None and segment.prepared.kind is BARRIER
            line[Access.KIND] = MEETS_BLOCK if is_barrier else MEETS_WARP
            return
        space = access.step.space
        for i, one in enumerate(_GENERIC if space == "generic" else (space,)):
            self._describe_access(self._table[LINES * number + i], access, one)
        line[Access.GENERIC] = space == "generic"

    def _describe_access(self, line: Any, access: Traced, space: str) -> None:
        """Fill the line of an access to a state space."""
        chunk, step = self.chunk, access.step
        first, limit = self._window(access, space)
        reach = self._reach(space, step.number)
        stores, start = step.kind is STORE, 0
        bad = reach is None or limit < first or (stores and step.number in chunk.launch.lent.steps)
        if step.space == "generic":
            start = WINDOWS.get(space, 0)
            bad |= space != "local" and step.number in chunk.attendance.ways
        line[Access.FOREIGN] = bad
        line[Access.KIND] = STORES if stores else LOADS
        line[Access.WIDTH], line[Access.STEP] = access.width, step.number
        line[Access.FIRST], line[Access.LIMIT] = start + first, min(start + max(limit, 0), _ALL_ONES)
        line[Access.MOVE], line[Access.START] = _MOVES[space], start
        line[Access.STRIDE] = chunk.local_stride if space == "local" else 0
        if reach is not None:
            line[Access.LIST], line[Access.COUNT] = reach

    def _window(self, access: Traced, space: str) -> tuple[int, int]:
        """The first and last address of an access in its window; the last is below 0 if there is none."""
        launch, number = self.chunk.launch, access.step.number
        if space in ("global", "const"):
            return 0, _ALL_ONES
        first, end, _ = launch.windows[number] if space == "shared" else launch.frames[number]
        return int(first), int(end) - access.width

    def _reach(self, space: str, number: int) -> tuple[int, int] | None:
        """Where the records that an access may reach are listed; None if only NumPy knows them."""
        chunk = self.chunk
        launch = chunk.launch
        if space == "global":
            memory = launch.reach[number]
            if chunk.program.calls_heap:
                return None
        elif space == "const":
            memory = launch.constants
        else:
            memory = chunk.shared if space == "shared" else chunk.local
            if space == "shared" and (launch.blocks_per_cluster > 1 or chunk.program.reserves_shared):
                return None
        if memory not in self._reaches:
            allocations = [one for one in memory.allocations if one.size]
            place = len(self._lists), len(allocations)
            few = len(allocations) <= _MOST_ALLOCATIONS
            self._reaches[memory] = place if few else None
            if few:
                self._lists += [self._records.setdefault(one, len(self._records)) for one in allocations]
        return self._reaches[memory]

    def _is_foreign(self) -> bool:
        """Whether NumPy executes all accesses for now."""
        chunk = self.chunk
        launch, copies = chunk.launch, chunk.copies
        watched = launch.journal is not None or launch.on_access or launch.on_write
        races = launch.races is not None and not launch.races.is_plain
        followed = launch.lent.cells or launch.lent.followed
        return bool(watched or races or followed or chunk.tiles is not None) or (
            copies is not None and copies.in_flight
        )

    # ---- entries ---------------------------------------------------------------------------------------

    def enter(self, context: Table, scheduler: Scheduler) -> None:
        """Bring the tables up to date, and note their addresses."""
        chunk = self.chunk
        launch, races = chunk.launch, chunk.launch.races
        foreign = self._is_foreign() or any(one.freed for one in self._records)
        watch = foreign, len(launch.watched_loads)
        if watch != self._watch:
            self._watch = watch
            self._watch_accesses(foreign)
        self._enter_meetings(context, scheduler)
        if races is not None and races.is_plain:
            if races.noted is not None:
                _settle(races)
            rows = self._rows
            rows[:, Row.BARRIER], rows[:, Row.MET] = races.barriers(chunk.warp[:, 0])
            context[Context.TIME] = races.time
        self._shadows: dict[int, tuple[Shadow, bool]] = {}
        if not foreign:
            self._fill_records()
        context[self._places] = self._addresses
        context[Context.PREPARE] = shared_code().address("prepare")
        context[Context.TICKS] = context[Context.COUNT_OF_READS] = 0
        context[Context.MOST_TICKS], context[Context.MOST_READS] = _MOST_TICKS, self._most_reads
        context[Context.PER_BLOCK] = chunk.warps_per_block
        context[Context.COUNT_OF_RECORDS] = len(self._records)
        context[Context.DETECTS] = races is not None

    def _enter_meetings(self, context: Table, scheduler: Scheduler) -> None:
        """Note whether barriers and operations of warps have nothing to look at but who comes."""
        chunk = self.chunk
        launch, attendance = chunk.launch, chunk.attendance
        simple = launch.races is None or (launch.races.is_plain and launch.races.is_simple)
        whole = simple and not chunk.is_part and not scheduler.barriers.arrived and not launch.on_barrier
        context[Context.MEETS_BLOCK] = whole and attendance.block.settled is chunk.live
        context[Context.MEETS_WARP] = simple and attendance.warp.settled is chunk.live
        if chunk.live is not self._live:
            self._live = chunk.live
            self._room[Context.LIVE][:] = words(chunk.live)

    def _watch_accesses(self, foreign: bool) -> None:
        """Note which accesses the race detector records, and which ones NumPy executes."""
        launch, table = self.chunk.launch, self._table
        table[:, Access.FOREIGN], table[:, Access.WATCHED] = self._foreign | foreign, 0
        for number, segment in enumerate(self._prepared):
            lines = range(LINES * number, LINES * (number + 1))
            if segment.access is None:
                table[lines, Access.FOREIGN] = 0
                continue
            step = segment.access.step
            watched = step.kind is STORE or step.number in launch.watched_loads
            for line in lines if watched and launch.races is not None else ():
                if table[line, Access.MOVE] != Row.LOCAL and step.space != "const":
                    table[line, Access.WATCHED] = 1
                    table[line, Access.FOREIGN] |= step.form.has("nc")

    def _fill_records(self) -> None:
        """Fill the records: addresses change when an array is moved, or its marks are dropped."""
        races, table = self.chunk.launch.races, self._marked
        shared = self.chunk.shared.allocations
        for allocation, number in self._records.items():
            marks = 0 if allocation.complete else address(allocation.written_bits)
            line = [allocation.base, allocation.size, address(allocation.bytes), marks, allocation.read_only]
            shadow, private = None, allocation in shared
            if races is not None:
                shadow = races.shadow_of(allocation, private)
            if races is not None and shadow is not None and shadow.is_plain:
                self._shadows[number] = shadow, private
                line += [0, *self._of_shadow(shadow, races.past(private)), 0, private]
            else:
                line += [1] + [0] * (len(Record) - len(line) - 1)
            table[number] = line

    @staticmethod
    def _of_shadow(shadow: Shadow, past: int) -> list[int]:
        """The part of a record that a shadow has, in the order of `Record`."""
        read, also = shadow.readers()
        second = 0 if shadow.written_also is None else address(shadow.written_also)
        tables = [address(shadow.written), second, address(read), address(also)]
        times = past, shadow.last_write, shadow.last_also, shadow.last_read, shadow.last_read
        return [shadow.unit.bit_length() - 1, *tables, *(time << 32 for time in times)]

    def leave(self, context: Table) -> None:
        """Give the race detector, and who counts barriers, what compiled code has recorded."""
        races, steps = self.chunk.launch.races, self.chunk.program.steps
        if context[Context.PASSED]:
            self._passed()
        if races is None:
            return
        count = int(context[Context.TICKS])
        if context[Context.PASSED]:
            races.passed(self.chunk, int(self._rows[0, Row.BARRIER]))
        if context[Context.MET]:
            races.met(self.chunk.warp[:, 0], self._rows[:, Row.MET].astype(np.int64))
        if count:
            races.record([steps[n] for n in self._room[Context.TIMES][:count].tolist()])
        pending: list[tuple[Shadow, bool]] = []
        for number, (shadow, private) in self._shadows.items():
            line = self._marked[number]
            shadow.last_write, shadow.last_read = (
                int(line[Record.LAST_WRITE]) >> 32,
                int(line[Record.LAST_READ]) >> 32,
            )
            if line[Record.PENDING]:
                pending.append((shadow, private))
        if pending:
            races.noted = Reads(context.copy(), self._kept, pending)

    def _passed(self) -> None:
        """Note which barriers the threads have passed."""
        chunk = self.chunk
        chunk.shared.settle()
        for number in np.flatnonzero(self._table[:, Access.CAME]).tolist():
            chunk.attendance.meet(self._prepared[number // LINES].prepared, chunk.live)
        self._table[:, Access.CAME] = 0


def _settle(races: Any) -> None:
    """Drop the noted reads behind which all accesses are ordered; else put them into the shadows."""
    noted: Reads = races.noted
    races.noted = None
    if any(shadow.pending is not None for shadow, _ in noted.shadows):
        if all(shadow.last_read < races.past(private) for shadow, private in noted.shadows):
            noted.forget()
        else:
            noted.settle()
