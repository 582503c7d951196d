"""Loads and stores, in LLVM's text: what is checked and recorded before the lanes of a step access memory.

``prepare`` checks all warps of a step before any of them stores. It returns 1, and has changed nothing, where
anything is not clean: an address out of bounds, misaligned, in several allocations; a byte that is not
written; an access that may race with an earlier one, or with another lane of its step. NumPy executes such
a step. Otherwise the step is recorded as the race detector does, and the lanes' addresses are those of
this process.

Reads are noted, and come into the shadows when a write asks for them, or the notes are full: behind a
barrier nobody asks, and they are dropped (`simwarp.compiled.memory`).

Source: `simwarp.engine.memory.accesses`, `simwarp.races.detector` and `simwarp.races.last_two`, whose meaning
this is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from simwarp.compiled.builder import Function
from simwarp.compiled.tables import (
    LINES,
    MEETS_BLOCK,
    MEETS_WARP,
    MOST_PIECES,
    STORES,
    WORDS_OF_READ,
    Access,
    Context,
    Read,
    Record,
    Row,
)
from simwarp.ptx.spaces import WINDOW

_WIDE, _MASK, _HOSTS = "<32 x i64>", "<32 x i1>", "<32 x ptr>"
_LANES = f"<{', '.join(f'i64 {lane}' for lane in range(32))}>"
_THREAD = (1 << 32) - 1
_FARTHEST = 3


class _Warp(NamedTuple):
    """A warp that executes an access: its number, row, lanes and record."""

    number: str
    row: str
    mask: str
    record: str


class _Text(Function):
    """A function over the tables, with what its parts share."""

    def context(self, word: Context) -> str:
        return self.word("%ctx", int(word))

    def table(self, word: Context) -> str:
        return self.pointer("%ctx", int(word))

    def splat(self, value: str, kind: str = "i64") -> str:
        """A vector with a value in all lanes."""
        first = self.emit(f"insertelement <32 x {kind}> poison, {kind} {value}, i64 0")
        return self.emit(
            f"shufflevector <32 x {kind}> {first}, <32 x {kind}> poison, <32 x i32> zeroinitializer"
        )

    def wide(self, operation: str, a: str, b: str) -> str:
        return self.emit(f"{operation} {_WIDE} {a}, {b}")

    def lanes(self, table: str, index: str) -> str:
        """The 32 words of a warp in a table."""
        return self.load(self.at(table, index, _WIDE), _WIDE, 8)

    def put_lanes(self, value: str, table: str, index: str) -> None:
        self.store(value, self.at(table, index, _WIDE), _WIDE, 8)

    def any(self, bad: str, mask: str) -> str:
        """Whether a lane of a mask is bad."""
        both = self.emit(f"and {_MASK} {bad}, {mask}")
        word = self.emit(f"bitcast {_MASK} {both} to i32")
        return self.emit(f"icmp ne i32 {word}, 0")

    def gather(self, table: str, index: str, mask: str, kind: str = "i64") -> str:
        """The elements of a table that the lanes of a mask name."""
        hosts = self.emit(f"getelementptr {kind}, ptr {table}, {_WIDE} {index}")
        return gather(self, hosts, mask, kind)

    def scatter(self, value: str, table: str, index: str, mask: str, kind: str = "i64") -> None:
        hosts = self.emit(f"getelementptr {kind}, ptr {table}, {_WIDE} {index}")
        scatter(self, value, hosts, mask, kind)

    @contextmanager
    def warps(self) -> Generator[_Warp]:
        """Each warp that executes the access; its record is known once it was checked."""
        masks, rows, reached = map(self.table, (Context.MASKS, Context.ROWS, Context.REACHED))
        with self.loop(self.context(Context.WARPS)) as number:
            lanes = self.load(self.at(masks, number, "i32"), "i32")
            with self.when(self.emit(f"icmp ne i32 {lanes}, 0")):
                mask = self.emit(f"bitcast i32 {lanes} to {_MASK}")
                row = self.at(rows, self.emit(f"mul i64 {number}, {len(Row)}"))
                yield _Warp(number, row, mask, self.pointer(reached, number))

    def threads(self, row: str) -> str:
        """The numbers of a warp's threads."""
        return self.wide("add", self.splat(self.word(row, int(Row.THREAD))), _LANES)

    def entries(self, row: str, time: str) -> str:
        """The shadow's entries of a warp's lanes."""
        high = self.emit(f"shl i64 {time}, 32")
        return self.wide("add", self.splat(high), self.threads(row))

    def suspects(self, entries: str, threads: str, past: str) -> str:
        """Whether entries are of other threads, and not ordered before all."""
        late = self.emit(f"icmp sge {_WIDE} {entries}, {self.splat(past)}")
        of = self.wide("and", entries, f"splat (i64 {_THREAD})")
        others = self.emit(f"icmp ne {_WIDE} {of}, {threads}")
        return self.emit(f"and {_MASK} {late}, {others}")

    def ordered(self, entries: str, row: str) -> str:
        """Whether a barrier orders entries before the next accesses of a warp."""
        times = self.wide("lshr", entries, "splat (i64 32)")
        warps = self.wide("lshr", self.wide("and", entries, f"splat (i64 {_THREAD})"), "splat (i64 5)")
        block = self.wide("sub", warps, self.splat(self.word(row, int(Row.BLOCK))))
        per_block = self.splat(self.context(Context.PER_BLOCK))
        near = self.emit(f"icmp ult {_WIDE} {block}, {per_block}")
        before = self.emit(f"icmp slt {_WIDE} {times}, {self.splat(self.word(row, int(Row.BARRIER)))}")
        own = self.emit(f"lshr i64 {self.word(row, int(Row.THREAD))}, 5")
        here = self.emit(f"icmp eq {_WIDE} {warps}, {self.splat(own)}")
        met = self.emit(f"icmp slt {_WIDE} {times}, {self.splat(self.word(row, int(Row.MET)))}")
        one, other = self.emit(f"and {_MASK} {near}, {before}"), self.emit(f"and {_MASK} {here}, {met}")
        return self.emit(f"or {_MASK} {one}, {other}")

    def unordered(self, entries: str, row: str, past: str) -> str:
        """Whether entries may be unordered with the next accesses of a warp."""
        suspects = self.suspects(entries, self.threads(row), past)
        return self.emit(f"and {_MASK} {suspects}, {self.negated(self.ordered(entries, row))}")

    def negated(self, mask: str) -> str:
        return self.emit(f"xor {_MASK} {mask}, splat (i1 true)")

    @contextmanager
    def pieces(self, count: str) -> Generator[str]:
        """Each of the units that a lane's access covers."""
        with self.loop(count) as piece:
            yield piece

    def slot(self, number: str, piece: str) -> str:
        """The place of a warp's piece in the space for a step."""
        return self.emit(f"add i64 {self.emit(f'mul i64 {number}, {MOST_PIECES}')}, {piece}")

    def unit(self, first: str, piece: str) -> str:
        return self.wide("add", first, self.splat(piece))


class Lines(Protocol):
    """A text that grows by instructions."""

    def emit(self, text: str) -> str:
        """Add an instruction; returns the name of its result."""
        ...

    def do(self, text: str) -> None:
        """Add an instruction without a result."""


def gather(text: Lines, hosts: str, mask: str, kind: str) -> str:
    """The values at the addresses of a mask's lanes; 0 in the others."""
    align = int(kind[1:]) // 8 if kind[0] == "i" else {"float": 4, "double": 8}[kind]
    name = f"@llvm.masked.gather.v32{_short(kind)}.v32p0"
    given = f"{_HOSTS} {hosts}, i32 {align}, {_MASK} {mask}, <32 x {kind}> zeroinitializer"
    return text.emit(f"call <32 x {kind}> {name}({given})")


def scatter(text: Lines, value: str, hosts: str, mask: str, kind: str) -> None:
    """Store the values of a mask's lanes at their addresses; that of the last lane stays."""
    align = int(kind[1:]) // 8 if kind[0] == "i" else {"float": 4, "double": 8}[kind]
    name = f"@llvm.masked.scatter.v32{_short(kind)}.v32p0"
    text.do(f"call void {name}(<32 x {kind}> {value}, {_HOSTS} {hosts}, i32 {align}, {_MASK} {mask})")


def _short(kind: str) -> str:
    return {"float": "f32", "double": "f64"}.get(kind, kind)


INTRINSICS = [
    line
    for kind in ("i8", "i16", "i32", "i64", "float", "double")
    for line in (
        f"declare <32 x {kind}> @llvm.masked.gather.v32{_short(kind)}.v32p0"
        f"({_HOSTS}, i32, {_MASK}, <32 x {kind}>)",
        f"declare void @llvm.masked.scatter.v32{_short(kind)}.v32p0(<32 x {kind}>, {_HOSTS}, i32, {_MASK})",
    )
]
"""Declarations of `gather` and `scatter`."""


# ---- the step ----------------------------------------------------------------------------------------


def _prepare() -> str:
    """Check a step, record it, and turn its addresses into those of this process; 1 if it is NumPy's."""
    f = _Text("prepare", "ptr noalias %ctx, i64 %number", internal=False)
    accesses = f.table(Context.ACCESSES)
    access = f.at(accesses, f.emit(f"mul i64 %number, {LINES * len(Access)}"))
    access = _select(f, access)
    with f.when(_is_set(f, access, Access.FOREIGN)):
        f.give(1)
    kind = f.word(access, int(Access.KIND))
    with f.when(f.emit(f"icmp eq i64 {kind}, {MEETS_BLOCK}")):
        _meet_block(f, access)
    with f.when(f.emit(f"icmp eq i64 {kind}, {MEETS_WARP}")):
        _meet_warps(f)
    width = f.word(access, int(Access.WIDTH))
    stores, watched = f.emit(f"icmp eq i64 {kind}, {STORES}"), _is_set(f, access, Access.WATCHED)
    some = f.variable("i1", "false")
    with f.warps() as warp:
        f.store("true", some, "i1")
        record = _locate(f, warp, access, width, stores)
        with f.when(watched):
            _compare(f, warp._replace(record=record), width, stores)
    with f.when(_is_false(f, some)):
        f.give(0)
    with f.when(watched):
        ticks = f.context(Context.TICKS)
        with f.when(f.emit(f"icmp sge i64 {ticks}, {f.context(Context.MOST_TICKS)}")):
            f.give(1)
        with f.when(stores):
            _write(f, width)
        with f.when(f.emit(f"xor i1 {stores}, true")):
            _note(f, width)
        f.store(f.word(access, int(Access.STEP)), f.at(f.table(Context.TIMES), ticks))
        f.store(f.emit(f"add i64 {ticks}, 1"), f.at("%ctx", int(Context.TICKS)))
        f.store(f.emit(f"add i64 {f.context(Context.TIME)}, 1"), f.at("%ctx", int(Context.TIME)))
    with f.when(stores):
        _mark(f, width)
    f.give(0)
    return f.text


def _select(f: _Text, access: str) -> str:
    """The line of the state space that the first lane's address points to, if it is generic."""
    line, chosen = f.variable("ptr", access), f.variable("i1", "false")
    with f.when(_is_set(f, access, Access.GENERIC)), f.warps() as warp, f.when(_is_false(f, chosen)):
        f.store("true", chosen, "i1")
        first = _first_lane(f, warp, f.lanes(f.table(Context.AT), warp.number))
        window = f.emit(f"lshr i64 {first}, {WINDOW.bit_length() - 1}")
        known = f.emit(f"icmp ult i64 {window}, {LINES}")
        which = f.emit(f"select i1 {known}, i64 {window}, i64 0")
        f.store(f.at(access, f.emit(f"mul i64 {which}, {len(Access)}")), line, "ptr")
    return f.load(line, "ptr")


def _is_false(f: _Text, variable: str) -> str:
    return f.emit(f"xor i1 {f.load(variable, 'i1')}, true")


def _first_lane(f: _Text, warp: _Warp, values: str) -> str:
    """The value of a warp's first executing lane."""
    lanes = f.emit(f"bitcast {_MASK} {warp.mask} to i32")
    lane = f.emit(f"call i32 @llvm.cttz.i32(i32 {lanes}, i1 true)")
    return f.emit(f"extractelement {_WIDE} {values}, i32 {lane}")


def _is_set(f: _Text, table: str, word: Access | Record) -> str:
    return f.emit(f"icmp ne i64 {f.word(table, int(word))}, 0")


def _locate(f: _Text, warp: _Warp, access: str, width: str, stores: str) -> str:
    """Find the record of a warp's accesses, check them, and replace their addresses; returns the record."""
    table = f.table(Context.AT)
    given = f.lanes(table, warp.number)
    low = f.emit(f"icmp ult {_WIDE} {given}, {f.splat(f.word(access, int(Access.FIRST)))}")
    high = f.emit(f"icmp ugt {_WIDE} {given}, {f.splat(f.word(access, int(Access.LIMIT)))}")
    bad = f.emit(f"or {_MASK} {low}, {high}")
    place = f.word(warp.row, f.word(access, int(Access.MOVE)))
    move = f.emit(f"sub i64 {place}, {f.word(access, int(Access.START))}")
    strides = f.wide("mul", _LANES, f.splat(f.word(access, int(Access.STRIDE))))
    moved = f.wide("add", f.wide("add", given, f.splat(move)), strides)
    record = _find(f, warp, access, moved)
    size = f.word(record, int(Record.SIZE))
    with f.when(f.emit(f"icmp ult i64 {size}, {width}")):
        f.give(1)
    offset = f.wide("sub", moved, f.splat(f.word(record, int(Record.BASE))))
    beyond = f.emit(f"icmp ugt {_WIDE} {offset}, {f.splat(f.emit(f'sub i64 {size}, {width}'))}")
    low_bits = f.wide("and", offset, f.splat(f.emit(f"sub i64 {width}, 1")))
    odd = f.emit(f"icmp ne {_WIDE} {low_bits}, zeroinitializer")
    bad = f.emit(f"or {_MASK} {bad}, {f.emit(f'or {_MASK} {beyond}, {odd}')}")
    with f.when(f.any(bad, warp.mask)):
        f.give(1)
    with f.when(f.emit(f"and i1 {stores}, {_is_set(f, record, Record.READ_ONLY)}")):
        f.give(1)
    reads = f.emit(f"xor i1 {stores}, true")
    with f.when(f.emit(f"and i1 {reads}, {_is_set(f, record, Record.MARKS)}")):
        marks = f.pointer(record, int(Record.MARKS))
        for bytes_, kind, index, parts in _widths(f, width, offset):
            with f.when(f.emit(f"icmp eq i64 {width}, {bytes_}")):
                for part in range(parts):
                    found = f.gather(marks, f.wide("add", index(), f"splat (i64 {part})"), warp.mask, kind)
                    missing = f.emit(f"icmp ne <32 x {kind}> {found}, splat ({kind} -1)")
                    with f.when(f.any(missing, warp.mask)):
                        f.give(1)
    f.put_lanes(f.wide("add", offset, f.splat(f.word(record, int(Record.DATA)))), table, warp.number)
    f.store(record, f.at(f.table(Context.REACHED), warp.number), "ptr")
    shift = f.splat(f.word(record, int(Record.SHIFT)))
    f.put_lanes(f.wide("lshr", offset, shift), f.table(Context.UNITS), warp.number)
    return record


def _widths(f: _Text, width: str, offset: str) -> Iterator[tuple[int, str, Callable[[], str], int]]:
    """The widths of accesses: bytes, type of the marks, their index, and how many of them."""
    for bits in (8, 16, 32, 64, 128):
        of = min(bits, 64)
        shift = (of // 8).bit_length() - 1
        yield (
            bits // 8,
            f"i{of}",
            lambda shift=shift: f.wide("lshr", offset, f"splat (i64 {shift})"),
            bits // of,
        )


def _find(f: _Text, warp: _Warp, access: str, moved: str) -> str:
    """The record with the address of a warp's first lane."""
    first = _first_lane(f, warp, moved)
    lists = f.at(f.table(Context.LISTS), f.word(access, int(Access.LIST)))
    found = f.variable("ptr", "null")
    with f.loop(f.word(access, int(Access.COUNT))) as i:
        number = f.word(lists, i)
        record = f.at(f.table(Context.RECORDS), f.emit(f"mul i64 {number}, {len(Record)}"))
        offset = f.emit(f"sub i64 {first}, {f.word(record, int(Record.BASE))}")
        with f.when(f.emit(f"icmp ult i64 {offset}, {f.word(record, int(Record.SIZE))}")):
            f.store(record, found, "ptr")
    record = f.load(found, "ptr")
    with f.when(f.emit(f"icmp eq ptr {record}, null")):
        f.give(1)
    return record


def _compare(f: _Text, warp: _Warp, width: str, stores: str) -> None:
    """Compare a warp's accesses with the shadow's entries; return 1 for what may race."""
    with f.when(_is_set(f, warp.record, Record.UNFIT)):
        f.give(1)
    pieces = f.emit(f"lshr i64 {width}, {f.word(warp.record, int(Record.SHIFT))}")
    few, many = (f.emit(f"icmp {how} i64 {pieces}, {end}") for how, end in (("slt", 1), ("sgt", MOST_PIECES)))
    with f.when(f.emit(f"or i1 {few}, {many}")):
        f.give(1)
    past = f.word(warp.record, int(Record.PAST))
    units = f.lanes(f.table(Context.UNITS), warp.number)

    def late(word: Record) -> str:
        return f.emit(f"icmp sge i64 {f.word(warp.record, int(word))}, {past}")

    def unordered(word: Record) -> None:
        with f.pieces(pieces) as piece:
            entries = f.gather(f.pointer(warp.record, int(word)), f.unit(units, piece), warp.mask)
            suspects = f.suspects(entries, f.threads(warp.row), past)
            with (
                f.when(f.any(suspects, warp.mask)),
                f.when(f.any(f.unordered(entries, warp.row, past), warp.mask)),
            ):
                f.give(1)

    reads = f.emit(f"xor i1 {stores}, true")
    with f.when(f.emit(f"and i1 {reads}, {late(Record.LAST_WRITE)}")):
        unordered(Record.WRITTEN)
    with f.when(stores):
        for word, last in ((Record.WRITTEN, Record.LAST_WRITE), (Record.WRITTEN_ALSO, Record.LAST_ALSO)):
            with f.when(late(last)), f.pieces(pieces) as piece:
                entries = f.gather(f.pointer(warp.record, int(word)), f.unit(units, piece), warp.mask)
                with f.when(f.any(f.suspects(entries, f.threads(warp.row), past), warp.mask)):
                    f.give(1)
        with f.when(late(Record.LAST_READ)):
            with f.when(_is_set(f, warp.record, Record.PENDING)):
                f.do("call void @replay(ptr %ctx)")
            unordered(Record.READ)
            unordered(Record.READ_ALSO)


def _write(f: _Text, width: str) -> None:
    """Record a write in the shadows; undo it, and return 1, where two lanes write a unit."""
    time, old = f.context(Context.TIME), f.table(Context.OLD)
    units = f.table(Context.UNITS)

    def each(warp: _Warp) -> str:
        return f.emit(f"lshr i64 {width}, {f.word(warp.record, int(Record.SHIFT))}")

    for put in (False, True):
        with f.warps() as warp:
            written = f.pointer(warp.record, int(Record.WRITTEN))
            with f.pieces(each(warp)) as piece:
                at = f.unit(f.lanes(units, warp.number), piece)
                if put:
                    f.scatter(f.entries(warp.row, time), written, at, warp.mask)
                else:
                    f.put_lanes(f.gather(written, at, warp.mask), old, f.slot(warp.number, piece))
    shared = f.variable("i1", "false")
    with f.warps() as warp, f.pieces(each(warp)) as piece:
        at = f.unit(f.lanes(units, warp.number), piece)
        there = f.gather(f.pointer(warp.record, int(Record.WRITTEN)), at, warp.mask)
        other = f.emit(f"icmp ne {_WIDE} {there}, {f.entries(warp.row, time)}")
        with f.when(f.any(other, warp.mask)):
            f.store("true", shared, "i1")
    with f.when(f.load(shared, "i1")):
        with f.warps() as warp, f.pieces(each(warp)) as piece:
            at = f.unit(f.lanes(units, warp.number), piece)
            before = f.lanes(old, f.slot(warp.number, piece))
            f.scatter(before, f.pointer(warp.record, int(Record.WRITTEN)), at, warp.mask)
        f.give(1)
    with f.warps() as warp:
        f.store(f.emit(f"shl i64 {time}, 32"), f.at(warp.record, int(Record.LAST_WRITE)))


def _note(f: _Text, width: str) -> None:
    """Note a read, for the shadows."""
    room = f.emit(f"add i64 {f.context(Context.COUNT_OF_READS)}, {f.context(Context.WARPS)}")
    with f.when(f.emit(f"icmp sgt i64 {room}, {f.context(Context.MOST_READS)}")):
        f.do("call void @replay(ptr %ctx)")
    time = f.context(Context.TIME)
    count = f.variable("i64", f.context(Context.COUNT_OF_READS))
    with f.warps() as warp:
        number = f.load(count)
        read = f.at(f.table(Context.READS), f.emit(f"mul i64 {number}, {WORDS_OF_READ}"))
        pieces = f.emit(f"lshr i64 {width}, {f.word(warp.record, int(Record.SHIFT))}")
        lanes = f.emit(f"zext i32 {f.emit(f'bitcast {_MASK} {warp.mask} to i32')} to i64")
        for word, value in (
            (Read.TIME, time),
            (Read.PIECES, pieces),
            (Read.WARP, warp.number),
            (Read.LANES, lanes),
        ):
            f.store(value, f.at(read, int(word)))
        f.store(warp.record, f.at(read, int(Read.RECORD)), "ptr")
        units = f.emit(f"trunc {_WIDE} {f.lanes(f.table(Context.UNITS), warp.number)} to <32 x i32>")
        f.store(units, f.at(read, len(Read)), "<32 x i32>", 8)
        f.store(1, f.at(warp.record, int(Record.PENDING)))
        f.store(f.emit(f"shl i64 {time}, 32"), f.at(warp.record, int(Record.LAST_READ)))
        f.store(f.emit(f"add i64 {number}, 1"), count)
    f.store(f.load(count), f.at("%ctx", int(Context.COUNT_OF_READS)))


def _mark(f: _Text, width: str) -> None:
    """Mark the bytes that a step stores as written."""
    with f.warps() as warp, f.when(_is_set(f, warp.record, Record.MARKS)):
        marks = f.pointer(warp.record, int(Record.MARKS))
        data = f.splat(f.word(warp.record, int(Record.DATA)))
        offset = f.wide("sub", f.lanes(f.table(Context.AT), warp.number), data)
        for bytes_, kind, index, parts in _widths(f, width, offset):
            with f.when(f.emit(f"icmp eq i64 {width}, {bytes_}")):
                for part in range(parts):
                    at = f.wide("add", index(), f"splat (i64 {part})")
                    f.scatter(f"splat ({kind} -1)", marks, at, warp.mask, kind)


# ---- barriers ----------------------------------------------------------------------------------------


def _meet_block(f: _Text, access: str) -> None:
    """Let all threads of all blocks pass a barrier, if all have come."""
    with f.when(f.emit(f"icmp eq i64 {f.context(Context.MEETS_BLOCK)}, 0")):
        f.give(1)
    masks, live = f.table(Context.MASKS), f.table(Context.LIVE)
    with f.loop(f.context(Context.WARPS)) as number:
        here, all_ = (f.load(f.at(table, number, "i32"), "i32") for table in (masks, live))
        with f.when(f.emit(f"icmp ne i32 {here}, {all_}")):
            f.give(1)
    f.store(1, f.at(access, int(Access.CAME)))
    f.store(1, f.at("%ctx", int(Context.PASSED)))
    with f.when(f.emit(f"icmp eq i64 {f.context(Context.DETECTS)}, 0")):
        f.give(0)
    others = f.variable("i1", "false")
    with _records(f) as record:
        shared = f.emit(f"icmp eq i64 {f.word(record, int(Record.PRIVATE))}, 0")
        with f.when(f.emit(f"and i1 {shared}, {_is_set(f, record, Record.PENDING)}")):
            f.store("true", others, "i1")
    with f.when(f.load(others, "i1")):
        f.do("call void @replay(ptr %ctx)")
    f.store(0, f.at("%ctx", int(Context.COUNT_OF_READS)))
    time = f.context(Context.TIME)
    with _records(f) as record:
        f.store(0, f.at(record, int(Record.PENDING)))
        with f.when(_is_set(f, record, Record.PRIVATE)):
            f.store(f.emit(f"shl i64 {time}, 32"), f.at(record, int(Record.PAST)))
    with f.loop(f.context(Context.WARPS)) as number:
        row = f.at(f.table(Context.ROWS), f.emit(f"mul i64 {number}, {len(Row)}"))
        f.store(time, f.at(row, int(Row.BARRIER)))
    f.give(0)


def _meet_warps(f: _Text) -> None:
    """Let all lanes of some warps meet."""
    with f.when(f.emit(f"icmp eq i64 {f.context(Context.DETECTS)}, 0")):
        f.give(0)
    with f.when(f.emit(f"icmp ne i64 {f.context(Context.COUNT_OF_READS)}, 0")):
        f.do("call void @replay(ptr %ctx)")
    f.store(1, f.at("%ctx", int(Context.MET)))
    time, masks = f.context(Context.TIME), f.table(Context.MASKS)
    with f.loop(f.context(Context.WARPS)) as number:
        lanes = f.load(f.at(masks, number, "i32"), "i32")
        with f.when(f.emit(f"icmp ne i32 {lanes}, 0")):
            row = f.at(f.table(Context.ROWS), f.emit(f"mul i64 {number}, {len(Row)}"))
            f.store(time, f.at(row, int(Row.MET)))
    f.give(0)


@contextmanager
def _records(f: _Text) -> Generator[str]:
    """Each record."""
    with f.loop(f.context(Context.COUNT_OF_RECORDS)) as number:
        yield f.at(f.table(Context.RECORDS), f.emit(f"mul i64 {number}, {len(Record)}"))


# ---- reads -------------------------------------------------------------------------------------------


class _Noted(NamedTuple):
    """A noted read by a warp."""

    number: str
    """Among the reads of its step."""
    record: str
    row: str
    mask: str
    pieces: str
    entries: str
    units: str


@contextmanager
def _reads(f: _Text, first: str, end: str) -> Generator[_Noted]:
    """Each of some noted reads."""
    with f.loop(end, first) as i:
        read = f.at(f.table(Context.READS), f.emit(f"mul i64 {i}, {WORDS_OF_READ}"))
        record = f.pointer(read, int(Read.RECORD))
        warp = f.word(read, int(Read.WARP))
        row = f.at(f.table(Context.ROWS), f.emit(f"mul i64 {warp}, {len(Row)}"))
        lanes = f.emit(f"trunc i64 {f.word(read, int(Read.LANES))} to i32")
        units = f.emit(f"zext <32 x i32> {f.load(f.at(read, len(Read)), '<32 x i32>', 8)} to {_WIDE}")
        mask = f.emit(f"bitcast i32 {lanes} to {_MASK}")
        entries = f.entries(row, f.word(read, int(Read.TIME)))
        pieces = f.word(read, int(Read.PIECES))
        yield _Noted(f.emit(f"sub i64 {i}, {first}"), record, row, mask, pieces, entries, units)


def _replay() -> str:
    """Put all noted reads into the shadows, step by step."""
    f = _Text("replay", "ptr noalias %ctx", "void", internal=False)
    count = f.context(Context.COUNT_OF_READS)
    first, end = f.variable("i64", 0), f.variable("i64", 0)
    with f.loop(count) as i:  # the last read of each step
        next_ = f.emit(f"add i64 {i}, 1")
        f.store(next_, end)
        last = f.emit(f"icmp eq i64 {next_}, {count}")
        reads = f.table(Context.READS)
        this, other = (
            f.word(f.at(reads, f.emit(f"mul i64 {n}, {WORDS_OF_READ}")), int(Read.TIME)) for n in (i, next_)
        )
        ends = f.emit(f"or i1 {last}, {f.emit(f'icmp ne i64 {this}, {other}')}")
        with f.when(ends):
            f.do(f"call void @remember(ptr %ctx, i64 {f.load(first)}, i64 {next_})")
            f.store(next_, first)
    with _reads(f, "0", count) as read:
        f.store(0, f.at(read.record, int(Record.PENDING)))
    f.store(0, f.at("%ctx", int(Context.COUNT_OF_READS)))
    f.give(None)
    return f.text


def _remember() -> str:
    """Put the reads of a step into the shadows; see `simwarp.races.last_two`."""
    f = _Text("remember", "ptr noalias %ctx, i64 %first, i64 %end", "void")
    old, worth = f.table(Context.OLD), f.table(Context.WORTH)
    for put in (False, True):
        with _reads(f, "%first", "%end") as read, f.pieces(read.pieces) as piece:
            table, at = f.pointer(read.record, int(Record.READ)), f.unit(read.units, piece)
            if put:
                f.scatter(read.entries, table, at, read.mask)
            else:
                f.put_lanes(f.gather(table, at, read.mask), old, f.slot(read.number, piece))
    several = f.variable("i1", "false")
    with _reads(f, "%first", "%end") as read, f.pieces(read.pieces) as piece:
        slot = f.slot(read.number, piece)
        f.put_lanes("zeroinitializer", worth, slot)
        past = f.word(read.record, int(Record.PAST))
        known = f.emit(f"icmp sge i64 {f.word(read.record, int(Record.LAST_KNOWN))}, {past}")
        at = f.unit(read.units, piece)
        last = f.gather(f.pointer(read.record, int(Record.READ)), at, read.mask)
        other = f.emit(f"icmp ne {_WIDE} {last}, {read.entries}")
        suspects = f.suspects(f.lanes(old, slot), f.threads(read.row), past)
        late = f.emit(f"select i1 {known}, {_MASK} {suspects}, {_MASK} zeroinitializer")
        here = f.emit(f"and {_MASK} {read.mask}, {f.emit(f'or {_MASK} {other}, {late}')}")
        with f.when(f.any(here, read.mask)):
            f.store("true", several, "i1")
            _propose(f, read, here, slot, last, at, known)
    with f.when(f.load(several, "i1")):
        for distance in range(1, _FARTHEST + 1):  # the largest distance is written last, and stays
            with _reads(f, "%first", "%end") as read, f.pieces(read.pieces) as piece:
                slot = f.slot(read.number, piece)
                far = f.emit(f"icmp eq {_WIDE} {f.lanes(worth, slot)}, splat (i64 {distance})")
                best = f.lanes(f.table(Context.BEST), slot)
                chosen = f.emit(f"and {_MASK} {far}, {read.mask}")
                f.scatter(
                    best, f.pointer(read.record, int(Record.READ_ALSO)), f.unit(read.units, piece), chosen
                )
    with _reads(f, "%first", "%end") as read:
        time = f.emit(f"extractelement {_WIDE} {read.entries}, i64 0")
        f.store(f.emit(f"and i64 {time}, {-1 << 32}"), f.at(read.record, int(Record.LAST_KNOWN)))
    f.give(None)
    return f.text


def _propose(f: _Text, read: _Noted, here: str, slot: str, last: str, at: str, known: str) -> None:
    """Find the reader farthest from the last one, in the lanes of a mask."""
    best, worth = f.variable(_WIDE, read.entries), f.variable(_WIDE, _distance(f, read.entries, last))
    with f.when(known):
        also = f.gather(f.pointer(read.record, int(Record.READ_ALSO)), at, read.mask)
        for other in (f.lanes(f.table(Context.OLD), slot), also):
            none = f.emit(f"icmp eq {_WIDE} {other}, zeroinitializer")
            unknown = f.negated(f.emit(f"or {_MASK} {none}, {f.ordered(other, read.row)}"))
            far = f.emit(
                f"select {_MASK} {unknown}, {_WIDE} {_distance(f, other, last)}, {_WIDE} zeroinitializer"
            )
            more = f.emit(f"icmp sgt {_WIDE} {far}, {f.load(worth, _WIDE)}")
            for variable, new in ((best, other), (worth, far)):
                old = f.load(variable, _WIDE)
                f.store(f.emit(f"select {_MASK} {more}, {_WIDE} {new}, {_WIDE} {old}"), variable, _WIDE)
    f.put_lanes(f.load(best, _WIDE), f.table(Context.BEST), slot)
    of_these = f.emit(f"select {_MASK} {here}, {_WIDE} {f.load(worth, _WIDE)}, {_WIDE} zeroinitializer")
    f.put_lanes(of_these, f.table(Context.WORTH), slot)


def _distance(f: _Text, one: str, other: str) -> str:
    """The distance of two threads: 0 same thread, 1 same warp, 2 same block, 3 different blocks."""
    threads = [f.wide("and", x, f"splat (i64 {_THREAD})") for x in (one, other)]
    warps = [f.wide("lshr", x, "splat (i64 5)") for x in threads]
    per_block = f.splat(f.context(Context.PER_BLOCK))
    blocks = [f.wide("udiv", x, per_block) for x in warps]
    total = "zeroinitializer"
    for pair in (threads, warps, blocks):
        differ = f.emit(f"icmp ne {_WIDE} {pair[0]}, {pair[1]}")
        total = f.wide("add", f.emit(f"zext {_MASK} {differ} to {_WIDE}"), total)
    return total


def library() -> str:
    """The text of the functions that all kernels share: ``prepare`` and ``replay``."""
    declared = [*INTRINSICS, "declare i32 @llvm.cttz.i32(i32, i1)"]
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" }'
    return "\n".join([*declared, _remember(), _replay(), _prepare(), attributes, ""])
