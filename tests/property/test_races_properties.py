"""Races that simwarp reports in random kernels equal those found by definition in the same run.

The kernels are small: a few warps of one or two blocks, whose lanes read and write a handful of words of
shared and global memory, in several widths, between barriers of all kinds that every expected thread reaches.
A `Recorder` forwards the operations to the twin (``vector_clocks.py``) in execution order. Then

- no race is reported that the twin does not find, between these threads at these lines;
- where barriers of warps and of whole blocks are all that orders threads, a race is reported for every word
  where the twin finds one. For other barriers, strong accesses and fences simwarp keeps one clock per warp:
  it may treat unordered lanes as ordered, unless the lanes of each warp reach a barrier together.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import simwarp
from oracles.vector_clocks import VectorClocks
from simwarp.faults import Race
from simwarp.ptx.kinds import BARRIER, FENCE, WARP_BARRIER

SIZE = 64
"""Bytes of the two arrays, ``cells`` in shared and ``out`` in global memory."""
WORD = 8
"""Bytes of what a race is looked for in."""
ONES, SAME = 0x0101010101010101, 0x7777777777777777

HEAD = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {{
.shared .align 16 .b8 cells[{size}];
.reg .pred %p<4>; .reg .b16 %own2, %same2, %x2; .reg .b32 %lane, %warp, %index, %block, %thread, %r<9>;
.reg .b32 %own4, %same4, %x4, %cells; .reg .b64 %own8, %same8, %x8, %y8, %a, %b, %out, %shared;
ld.param.u64 %out, [out]; mov.u32 %cells, cells; mov.u64 %shared, cells; cvta.shared.u64 %shared, %shared;
mov.u32 %index, %tid.x; mov.u32 %block, %ctaid.x;
and.b32 %lane, %index, 31; shr.u32 %warp, %index, 5;
mad.lo.u32 %thread, %block, {threads}, %index; add.u32 %r1, %thread, 1; cvt.u64.u32 %own8, %r1;
mul.lo.u64 %own8, %own8, {ones}; cvt.u32.u64 %own4, %own8; cvt.u16.u64 %own2, %own8;
mov.u64 %same8, {same}; cvt.u32.u64 %same4, %same8; cvt.u16.u64 %same2, %same8;
"""
"""``%thread`` numbers the launch's threads. Each has bytes of its ``own``, and the ``same`` as all others."""


# ------------------------------------------------------------------------------------------- statements


@dataclass(frozen=True)
class Access:
    """A load, store or atomic operation.

    Attributes
    ----------
    kind : str
        "ld", "st", "atom" or "red".
    order, scope : str
        As the twin takes them.
    value : str
        "own" or "same".
    """

    kind: str
    order: str
    scope: str
    width: int
    value: str


@dataclass(frozen=True)
class Fence:
    scope: str


@dataclass(frozen=True)
class Barrier:
    """A block barrier; ``numbers`` holds the barrier of each warp, or None."""

    numbers: tuple


@dataclass(frozen=True)
class Arrival:
    """Some warps arrive at a barrier without waiting."""

    number: int


@dataclass(frozen=True)
class WarpBarrier:
    """Lanes below ``border`` synchronise; the others synchronise too, or do not wait."""

    border: int


@dataclass
class Kernel:
    grid: int
    warps: int
    threads: int
    lanes: int
    lines: list = field(default_factory=list)
    """Text and what it does, for each line of the body."""

    @property
    def text(self):
        head = HEAD.format(size=SIZE, threads=32 * self.warps, ones=ONES, same=SAME)
        some = f"setp.ge.u32 %p1, %lane, {self.lanes}; @%p1 exit;" if self.lanes < 32 else ""
        return head + "\n".join([some, *(text for text, _ in self.lines), "ret; }"])

    @property
    def actions(self):
        """The action of each PTX line."""
        first = HEAD.count("\n") + 2
        return {first + i: action for i, (_, action) in enumerate(self.lines)}

    @property
    def grain(self):
        """Width of the narrowest access; wider accesses cover several locations."""
        return min((a.width for _, a in self.lines if isinstance(a, Access)), default=4)


# -------------------------------------------------------------------------------------------- generator

COMPARISONS = st.tuples(
    st.sampled_from(["lane", "lane", "warp", "block", "thread"]),
    st.sampled_from(["eq", "ne", "lt", "ge"]),
    st.integers(0, 3),
)
GUARDS = st.lists(COMPARISONS, max_size=2)
"""Which threads execute something: all for which these hold."""


def guard(comparisons):
    """PTX that sets ``%p1`` to the conjunction of comparisons, and the guard."""
    text = ""
    for i, (register, comparison, number) in enumerate(comparisons):
        if i == 0:
            text += f"setp.{comparison}.u32 %p1, %{register}, {number}; "
        else:
            text += f"setp.{comparison}.and.u32 %p1, %{register}, {number}, %p1; "
    return text, "@%p1 " if comparisons else ""


WIDTHS = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "v2.u64"}
STRONG = {
    "ld": [".volatile", ".relaxed.cta", ".relaxed.gpu", ".acquire.cta", ".acquire.gpu", ".mmio.relaxed.sys"],
    "st": [".volatile", ".relaxed.cta", ".relaxed.gpu", ".release.cta", ".release.gpu", ".mmio.relaxed.sys"],
    "atom": ["", ".relaxed.cta", ".acquire.gpu", ".release.gpu", ".acq_rel.gpu", ".acq_rel.cta"],
    "red": ["", ".relaxed.cta", ".release.gpu"],
}
FENCES = [
    ("membar.gl", "gpu"),
    ("membar.cta", "cta"),
    ("fence.acq_rel.gpu", "gpu"),
    ("fence.acq_rel.cta", "cta"),
    ("fence.sc.sys", "sys"),
]
SPACES = st.sampled_from(["shared", "shared", "global", "generic"])


def order_and_scope(modifiers, kind):
    """Draw a memory order and a scope."""
    if kind in ("ld", "st") and not modifiers:
        return "weak", "sys"
    words = modifiers.split(".")
    order = next((w for w in words if w in ("acquire", "release", "acq_rel")), "relaxed")
    usual = "gpu" if kind in ("atom", "red") else "sys"
    return order, next((w for w in words if w in ("cta", "gpu", "sys")), usual)


PLACES = st.tuples(
    st.sampled_from(["lane", "thread", "warp", "block", "index"]),
    st.sampled_from([0, 0, 1, 3, 15]),
    st.integers(0, 3),
)
"""Which aligned place in an array each thread accesses: a register, bits to take of it, and a start."""


def address(space, place, width):
    """PTX that computes an address, and its register; generic ones of lane 0 are in shared memory."""
    register, bits, start = place
    text = f"and.b32 %r1, %{register}, {bits}; add.u32 %r1, %r1, {start}; "
    text += f"and.b32 %r1, %r1, {SIZE // width - 1}; mul.lo.u32 %r1, %r1, {width}; "
    if space == "shared":
        return text + "add.u32 %r1, %r1, %cells; ", "%r1"
    text += "cvt.u64.u32 %a, %r1; "
    if space == "generic":
        text += "setp.eq.u32 %p2, %lane, 0; selp.b64 %b, %shared, %out, %p2; "
    return text + f"add.u64 %a, %a, {'%out' if space == 'global' else '%b'}; ", "%a"


def access(kind, modifiers, space, place, comparisons, width=4, value="own"):
    """Draw a PTX line with one access."""
    at, register = address(space, place, width)
    conditions, prefix = guard(comparisons)
    operand = f"%{value}{min(max(width, 2), 8)}" if width < 16 else f"{{%{value}8, %{value}8}}"
    loaded = f"%x{min(max(width, 2), 8)}" if width < 16 else "{%x8, %y8}"
    spaced = f"{modifiers}.{space}" if space != "generic" else modifiers
    text = {
        "ld": f"ld{spaced}.{WIDTHS[width]} {loaded}, [{register}];",
        "st": f"st{spaced}.{WIDTHS[width]} [{register}], {operand};",
        "atom": f"atom{spaced}.exch.b32 %x4, [{register}], {operand};",
        "red": f"red{spaced}.add.u32 [{register}], {operand};",
    }[kind]
    return f"{at}{conditions}{prefix}{text}", Access(kind, *order_and_scope(modifiers, kind), width, value)


@st.composite
def weak_accesses(draw):
    kind, space = draw(st.sampled_from(["ld", "st"])), draw(SPACES)
    width, value = (
        draw(st.sampled_from([4, 4, 4, 1, 2, 8, 16])),
        draw(st.sampled_from(["own", "own", "same"])),
    )
    return access(kind, "", space, draw(PLACES), draw(GUARDS), width, value)


@st.composite
def strong_accesses(draw, kinds, guards, spaces=SPACES, places=PLACES):
    """Draw strong accesses; each thread stores its own value, which identifies the last store."""
    kind = draw(st.sampled_from(kinds))
    modifiers = draw(st.sampled_from(STRONG[kind]))
    space = "global" if "mmio" in modifiers else draw(spaces)
    return access(kind, modifiers, space, draw(places), draw(guards))


@st.composite
def fences(draw, guards):
    text, scope = draw(st.sampled_from(FENCES))
    conditions, prefix = guard(draw(guards))
    return f"{conditions}{prefix}{text};", Fence(scope)


@st.composite
def bodies(draw, kernel, counted, strong, alone):
    """Draw the lines of a kernel; each barrier of some warps has its own number.

    Strong accesses may be of one thread ``alone``: the order of the lanes in an instruction is not recorded.
    """
    numbers, data = iter(range(1, 16)), weak_accesses()
    kinds = [one_access, one_access, one_access, whole_block, warp_barrier, branch]
    kinds += [some_warps, two_teams, handover] if counted else []
    kinds += [message, message] if strong else []
    if strong:
        guards = only(kernel) if alone else GUARDS
        data = st.one_of(data, strong_accesses(["ld", "st", "atom", "red"], guards), fences(GUARDS))
    lines = []
    for i in range(draw(st.integers(2, 9))):
        kind = draw(st.sampled_from(kinds))
        lines += kind(draw, kernel, data, numbers, i)
    return [*lines, ("bar.sync 0;", Barrier((0,) * kernel.warps))]


def only(kernel):
    """Draw guards that select one thread."""
    lanes = range(min(kernel.lanes, 3))
    threads = [
        b * 32 * kernel.warps + w * 32 + i
        for b in range(kernel.grid)
        for w in range(kernel.warps)
        for i in lanes
    ]
    return st.sampled_from([[("thread", "eq", thread)] for thread in threads])


def message(draw, kernel, data, numbers, i):
    """One thread accesses memory and raises a flag; another reads the flag and accesses memory."""
    space, flag_space, one = draw(SPACES), draw(SPACES), only(kernel)
    place, flag = ("lane", 0, draw(st.integers(0, 2))), ("lane", 0, draw(st.integers(2, 3)))
    sender, relay, receiver = (st.just(draw(one)) for _ in range(3))

    def strong(kinds, who):
        return draw(strong_accesses(kinds, who, st.just(flag_space), st.just(flag)))

    def weak(at, who):
        return access(draw(st.sampled_from(["ld", "st"])), "", *at, draw(who))

    def perhaps_fence(who):
        return [draw(fences(who))] if draw(st.booleans()) else []

    lines = [weak((space, place), sender), *perhaps_fence(sender), strong(["st", "atom", "red"], sender)]
    if draw(st.booleans()):
        lines += [strong(["ld", "st", "atom"], relay), *perhaps_fence(relay), strong(["st", "atom"], relay)]
    lines += [strong(["ld", "atom"], receiver), *perhaps_fence(receiver)]
    return [
        *lines,
        weak(draw(st.sampled_from([(space, place), (space, place), (flag_space, flag)])), receiver),
    ]


def one_access(draw, kernel, data, numbers, i):
    return [draw(data)]


def whole_block(draw, kernel, data, numbers, i):
    """A barrier of all threads, at one instruction or at two."""
    barrier = Barrier((0,) * kernel.warps)
    text = draw(st.sampled_from(["bar.sync 0;", "bar.red.popc.u32 %r2, 0, %p3;", "barrier.sync 0;", "split"]))
    if "%p3" in text:
        text = f"setp.eq.u32 %p3, %lane, 0; {text}"
    if text == "split":
        conditions, prefix = guard([draw(COMPARISONS)])
        text = f"{conditions}{prefix}bra L{i}; barrier.sync 0; bra.uni M{i}; L{i}: barrier.sync 0; M{i}:"
    return [(text, barrier)]


def warp_barrier(draw, kernel, data, numbers, i):
    """A barrier of the whole warp, of the lanes on each side of a border, or of one side."""
    border = draw(st.sampled_from([32, 32, 1, 2, 3, 16]))
    low = (1 << border) - 1
    text = f"setp.lt.u32 %p1, %lane, {border}; selp.b32 %r1, {low:#x}, {low ^ 0xFFFFFFFF:#x}, %p1; "
    text += "@%p1 bar.warp.sync %r1;" if draw(st.booleans()) else "bar.warp.sync %r1;"
    return [(text, WarpBarrier(border))]


def branch(draw, kernel, data, numbers, i):
    """A divergent branch: some threads run one side, the others the other side."""
    conditions, prefix = guard([draw(COMPARISONS)])
    one, other = (draw(st.lists(data, min_size=1, max_size=2)) for _ in range(2))
    start, between, end = f"{conditions}{prefix}bra L{i};", f"bra.uni M{i}; L{i}:", f"M{i}:"
    return [(start, None), *one, (between, None), *other, (end, None)]


def in_warps(warps):
    """PTX that sets ``%p1`` if the warp is among the given ones."""
    bits = sum(1 << warp for warp in warps)
    return f"shr.u32 %r1, {bits}, %warp; and.b32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; "


def some_warps(draw, kernel, data, numbers, i):
    """A counted barrier for some of the warps."""
    warps = draw(st.sets(st.integers(0, kernel.warps - 1), min_size=1))
    number = next(numbers)
    text = f"{in_warps(warps)}@%p1 bar.sync {number}, {32 * len(warps)};"
    return [(text, Barrier(tuple(number if w in warps else None for w in range(kernel.warps))))]


def two_teams(draw, kernel, data, numbers, i):
    """One instruction at which even warps wait at one barrier and odd warps at another."""
    if kernel.warps < 2:
        return [draw(data)]
    even, odd = next(numbers), next(numbers)
    odds = kernel.warps // 2
    text = f"{in_warps(range(1, kernel.warps, 2))}selp.b32 %r1, {odd}, {even}, %p1; "
    text += f"selp.b32 %r2, {32 * odds}, {32 * (kernel.warps - odds)}, %p1; barrier.sync %r1, %r2;"
    return [(text, Barrier(tuple((even, odd)[w % 2] for w in range(kernel.warps))))]


def handover(draw, kernel, data, numbers, i):
    """Some warps arrive at a barrier, others wait for them."""
    if kernel.warps < 2:
        return [draw(data)]
    consumers = draw(st.sets(st.integers(0, kernel.warps - 1), min_size=1, max_size=kernel.warps - 1))
    producers = set(range(kernel.warps)) - consumers
    number = next(numbers)
    arrive = f"{in_warps(producers)}@%p1 bar.arrive {number}, {32 * kernel.warps};"
    wait = f"{in_warps(consumers)}@%p1 bar.sync {number}, {32 * kernel.warps};"
    barrier = Barrier(tuple(number if w in consumers else None for w in range(kernel.warps)))
    between = draw(st.lists(data, max_size=2))
    return [(arrive, Arrival(number)), *between, (wait, barrier)]


SHAPES = [
    (1, 1, 32, 4),
    (1, 2, 64, 3),
    (2, 1, 32, 3),
    (2, 2, 64, 2),
    (1, 3, 96, 2),
    (1, 2, 50, 4),
    (1, 1, 32, 32),
]
"""Blocks, warps, threads of a block, and how many lanes of each warp stay."""


@st.composite
def kernels(draw, counted=False, strong=False, alone=False):
    kernel = Kernel(*draw(st.sampled_from(SHAPES)))
    kernel.lines = draw(bodies(kernel, counted, strong, alone))
    return kernel


# --------------------------------------------------------------------------------------------- recorder


class Recorder(simwarp.observe.Observer):
    """Forwards every access and synchronisation to the twin.

    Attributes
    ----------
    clocks : VectorClocks
    found : list of Race
        What simwarp reports.
    """

    def __init__(self, kernel):
        self.kernel, self.actions = kernel, kernel.actions
        self.found = []
        per_block = 32 * kernel.warps
        blocks = {b * per_block + t: b for b in range(kernel.grid) for t in range(kernel.threads)}
        self.clocks = VectorClocks(blocks)
        self.waits = {thread: self.barriers_of(thread % per_block // 32) for thread in blocks}
        self.arrivals = defaultdict(list)

    def barriers_of(self, warp):
        """The barriers at which a warp waits, in order."""
        barriers = [action for _, action in self.kernel.lines if isinstance(action, Barrier)]
        return iter([b.numbers[warp] for b in barriers if b.numbers[warp] is not None])

    def threads(self, chunk, lanes):
        for lane in lanes.tolist():
            row = lane // 32
            warp = chunk.block[row, 0] * self.kernel.warps + chunk.warp_in_block[row, 0]
            yield int(warp) * 32 + lane % 32

    def on_access(self, event):
        access, line = self.actions[event.step.instruction.line], event.step.instruction.line
        threads = list(self.threads(event.chunk, event.lanes))
        places = [
            self.locations(thread, event.space, address, event.width)
            for thread, address in zip(threads, event.addresses.tolist(), strict=True)
        ]
        arguments = access.order, access.scope
        if access.kind == "ld":
            for thread, locations in zip(threads, places, strict=True):
                self.clocks.read(thread, line, locations, *arguments)
            return
        left = dict(self.values_now(event, places))
        if access.kind == "st":
            values = {t: self.written(access, t, at) for t, at in zip(threads, places, strict=True)}
            by_turn = sorted(values, key=lambda t: all(left[at] == v for at, v in values[t].items()))
            self.clocks.write_together(line, {t: values[t] for t in by_turn}, *arguments)
        else:
            for thread, locations in zip(threads, places, strict=True):
                self.clocks.atomic(thread, line, {at: left[at] for at in locations}, *arguments)
        self.clocks.values |= left

    def locations(self, thread, space, address, width):
        """The bytes that an access touches, each as (block, or None for global memory, offset)."""
        assert space in ("shared", "global")
        block = thread // (32 * self.kernel.warps) if space == "shared" else None
        offset, grain = address - (self.base if block is None else 0), self.kernel.grain
        return [(block, at // grain) for at in range(offset, offset + width, grain)]

    def written(self, access, thread, locations):
        word = (thread + 1) * ONES % 2**64 if access.value == "own" else SAME
        data = word.to_bytes(8, "little") * 2
        grain = self.kernel.grain
        return {at: data[i * grain : (i + 1) * grain] for i, at in enumerate(locations)}

    def values_now(self, event, places):
        """The values at the locations after the access; of several lanes, the last one's value."""
        grain = self.kernel.grain
        for lane, locations in zip(event.lanes.tolist(), places, strict=True):
            for block, number in locations:
                memory, start = event.chunk.launch.memory, self.base
                if block is not None:
                    memory, start = event.chunk.shared, int(event.chunk.shared_start[lane // 32, 0])
                at = start + number * grain
                allocation = memory.find(at)
                offset = at - allocation.base
                yield (block, number), allocation.bytes[offset : offset + grain].tobytes()

    def on_launch(self, launch):
        (self.base,) = (a.base for a in launch.memory.allocations if a.name == "out")

    def on_step(self, chunk, step, mask):
        action, threads = self.actions.get(step.instruction.line), self.threads(chunk, np.flatnonzero(mask))
        if isinstance(action, Fence) and step.kind is FENCE:
            for thread in threads:
                self.clocks.fence(thread, action.scope)
        elif isinstance(action, Arrival) and step.kind is BARRIER:
            for thread in threads:
                self.arrivals[self.clocks.blocks[thread], action.number].append(self.clocks.arrive(thread))
        elif isinstance(action, WarpBarrier) and step.kind is WARP_BARRIER:
            together = defaultdict(list)
            for thread in threads:
                together[thread // 32, thread % 32 < action.border].append(thread)
            for those in together.values():
                self.clocks.barrier(those)

    def on_barrier(self, chunk, mask):
        together = defaultdict(list)
        for thread in self.threads(chunk, np.flatnonzero(mask)):
            together[self.clocks.blocks[thread], next(self.waits[thread])].append(thread)
        for place, those in together.items():
            self.clocks.barrier(those, self.arrivals.pop(place, ()))

    def on_fault(self, fault):
        if isinstance(fault, Race):
            self.found.append(fault)


def record(kernel, **device):
    note(kernel.text)
    note(f"grid {kernel.grid}, block {kernel.threads}")
    recorder = Recorder(kernel)
    checks = {"races": "report", "uninitialised": "off"}
    device = simwarp.Device(checks=checks, observers=[recorder], **device)
    out = device.upload(np.zeros(SIZE, np.uint8), "out")
    device.load(kernel.text).kernel("k")((kernel.grid, 1, 1), (kernel.threads, 1, 1), out)
    return recorder


# ------------------------------------------------------------------------------------------- properties

DEVICES = st.fixed_dictionaries(
    {"schedule": st.sampled_from(["lowest pc", "random"]), "chunk_lanes": st.sampled_from([32768, 32])}
)


def thread_of(place, kernel):
    return (place.block[0] * kernel.warps + place.warp) * 32 + place.lane


def check_reported_races_are_real(recorder):
    """Assert that each race reported by simwarp is one of the twin's."""
    known = {(race.lines, race.threads) for race in recorder.clocks.races}
    for fault in recorder.found:
        lines = fault.other.line, fault.place.line
        threads = thread_of(fault.other, recorder.kernel), thread_of(fault.place, recorder.kernel)
        together = lines[0] == lines[1]  # lanes have no order within an instruction
        assert (lines, threads) in known or (together and (lines, threads[::-1]) in known), str(fault)
        for line, what in zip(lines, (fault.earlier, fault.later), strict=True):
            kind = recorder.actions[line].kind
            assert what == {"ld": "read", "st": "write"}.get(kind, "atomic")


def check_real_races_are_reported(recorder):
    """Assert that simwarp reports a race for each word on which the twin finds one."""
    grain, reported = recorder.kernel.grain, {(f.other.line, f.place.line) for f in recorder.found}
    racing = defaultdict(set)
    for race in recorder.clocks.races:
        block, number = race.location
        racing[block, number * grain // WORD].add(race.lines)
    for word, lines in racing.items():
        assert lines & reported, f"race missed in {word}: lines {lines}"


@pytest.mark.gate
@given(kernels(), DEVICES)
@settings(max_examples=150)
def test_programs_with_block_barriers_have_exactly_the_reported_races(kernel, device):
    recorder = record(kernel, **device)
    check_reported_races_are_real(recorder)
    check_real_races_are_reported(recorder)


@pytest.mark.gate
@given(kernels(counted=True))
@settings(max_examples=150)
def test_programs_with_any_barrier_and_full_warps_have_exactly_the_reported_races(kernel):
    recorder = record(kernel, schedule="lowest pc")
    check_reported_races_are_real(recorder)
    check_real_races_are_reported(recorder)


@pytest.mark.gate
@given(kernels(counted=True, strong=True))
@settings(max_examples=150)
def test_strong_accesses_and_fences_give_no_false_race(kernel):
    check_reported_races_are_real(record(kernel, schedule="lowest pc"))


@pytest.mark.slow
@given(kernels(counted=True, strong=True, alone=True), DEVICES)
@settings(max_examples=150)
def test_strong_accesses_and_fences_give_no_false_race_in_any_order(kernel, device):
    check_reported_races_are_real(record(kernel, **device))
