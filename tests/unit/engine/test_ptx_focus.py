"""A loop with few remaining warps runs on a compact copy of them, without any other effect."""

import numpy as np
import pytest

import simwarp
from simwarp.engine.chunk import Chunk
from simwarp.engine.schedule.scheduler import Scheduler
from simwarp.faults import Deadlock, OutOfBounds, RunawayKernel, Trap, UninitialisedRegister
from simwarp.observe import Observer, WriteObserver
from support import small_kernels as small

STORE, NOTHING = small.STORE, small.NOTHING
text, run, fault_of, line_of = small.text, small.run, small.fault_of, small.line_of


@pytest.fixture
def parts(monkeypatch):
    """Sizes of the compact copies made from now on."""
    made, original = [], Chunk.part

    def part(self, rows):
        made.append(len(rows))
        return original(self, rows)

    monkeypatch.setattr(Chunk, "part", part)
    return made


def both_ways(monkeypatch, body, **options):
    """Output words of a kernel; assert that they are equal with and without compact copies."""
    devices = [simwarp.Device() for _ in range(2)]
    got = run(body + STORE, device=devices[0], **options)
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "is_sparse", lambda self: False)
        assert run(body + STORE, device=devices[1], **options) == got
    assert devices[0].executed == devices[1].executed
    return got


BLOCK, GRID, N = 64, 12, 64 * 12
TRIPS = """mul.lo.u32 %r3, %i, 2654435761; shr.u32 %r3, %r3, 20; rem.u32 %r3, %r3, 11;
shr.u32 %r4, %i, 5; rem.u32 %r5, %r4, 9; setp.eq.u32 %p8, %r5, 4; @%p8 mad.lo.u32 %r3, %r3, 30, 100;
"""
"""``%r3``: 0 to 10 for most lanes, 100 to 400 for the lanes of warps 4, 13 and 22."""


def trips(i):
    n = (i * 2654435761 % 2**32 >> 20) % 11
    return n * 30 + 100 if i // 32 % 9 == 4 else n


def test_loops_with_very_different_trip_counts_are_right(monkeypatch, parts):
    body = (
        TRIPS
        + """mov.u32 %r2, %i; mov.u32 %r6, 0;
L: setp.ge.u32 %p1, %r6, %r3; @%p1 bra END; mad.lo.u32 %r2, %r2, 5, %r6; add.u32 %r6, %r6, 1; bra L;
END: """
    )

    def expected(i):
        value = i
        for n in range(trips(i)):
            value = (value * 5 + n) % 2**32
        return value

    got = both_ways(monkeypatch, body, block=BLOCK, grid=GRID)
    assert got == [expected(i) for i in range(N)]
    assert parts
    assert max(parts) <= 12


def test_uniform_registers_survive_a_compact_copy(monkeypatch, parts):
    """Registers stored as one number or as a column are copied and restored as such."""
    body = (
        TRIPS
        + """mov.u32 %r7, 3; mov.u32 %r8, %warpid; mov.u32 %r9, %ctaid.x; mov.u32 %r6, 0; mov.u32 %r10, 0;
L: add.u32 %r6, %r6, 1; mad.lo.u32 %r8, %r8, %r7, %r9; add.u32 %r10, %r7, 4; setp.lt.u32 %p1, %r6, %r3;
@%p1 bra L;
mad.lo.u32 %r2, %r8, 31, %r10; add.u32 %r2, %r2, %r7; mad.lo.u32 %r2, %r2, 7, %r6;
"""
    )

    def expected(i):
        n, value = max(trips(i), 1), i % 64 // 32
        for _ in range(n):
            value = (value * 3 + i // 64) % 2**32
        return ((value * 31 + 7 + 3) * 7 + n) % 2**32

    assert both_ways(monkeypatch, body, block=BLOCK, grid=GRID) == [expected(i) for i in range(N)]
    assert parts


def test_partly_written_registers_survive_a_compact_copy(monkeypatch, parts):
    """Some lanes write before, others inside; each is read only where written."""
    body = (
        TRIPS
        + """and.b32 %r4, %i, 1; setp.ne.u32 %p2, %r4, 0; @%p2 mov.u32 %r7, 1000; mov.u32 %r6, 0;
mov.u32 %r2, 0;
L: setp.ge.u32 %p1, %r6, %r3; @%p1 bra END;
@!%p2 mov.u32 %r8, %r6; @%p2 add.u32 %r7, %r7, 1; @%p2 add.u32 %r2, %r2, %r7; add.u32 %r6, %r6, 1; bra L;
END: setp.gt.u32 %p3, %r3, 0; @%p2 add.u32 %r2, %r2, %r7; @%p2 bra OUT; @%p3 add.u32 %r2, %r2, %r8;
OUT: """
    )

    def expected(i):
        n = trips(i)
        if i % 2:
            return sum(1000 + k + 1 for k in range(n)) + 1000 + n
        return n - 1 if n else 0

    assert both_ways(monkeypatch, body, block=BLOCK, grid=GRID) == [expected(i) for i in range(N)]
    assert parts


@pytest.mark.parametrize("where", ["inside", "after"])
def test_an_uninitialised_register_is_reported_in_and_after_a_compact_copy(where, parts):
    body = (
        TRIPS
        + """mov.u32 %r6, 0; setp.ne.u32 %p2, %i, 432; @%p2 mov.u32 %r7, 1; mov.u32 %r9, 0;
L: add.u32 %r6, %r6, 1; setp.gt.u32 %p3, %r6, 80;
INSIDE
setp.lt.u32 %p1, %r6, %r3; @%p1 bra L;
AFTER
mov.u32 %r2, 1;
"""
    )
    read = "@%p3 st.global.u32 [%at], %r7;"
    body = body.replace("INSIDE", read if where == "inside" else "").replace(
        "AFTER", read if where == "after" else ""
    )
    fault = fault_of(UninitialisedRegister, body + STORE, block=BLOCK, grid=GRID)
    assert fault.register == "%r7"
    assert (fault.place.block, fault.place.warp, fault.place.lane) == ((6, 0, 0), 1, 16)
    assert fault.place.line == line_of(read, body)
    assert parts


def test_registers_first_written_in_a_compact_copy_come_back(monkeypatch, parts):
    """Warps outside the loop leave the register uninitialised; the others keep their value."""
    body = (
        TRIPS
        + """mov.u32 %r6, 0; mov.u32 %r2, 5; setp.lt.u32 %p2, %r3, 100; @%p2 bra END;
L: mad.lo.u32 %r8, %r6, 3, %i; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r3; @%p1 bra L;
mov.u32 %r2, %r8;
END: """
    )
    got = both_ways(monkeypatch, body, block=BLOCK, grid=GRID)
    assert got == [(trips(i) - 1) * 3 + i if trips(i) >= 100 else 5 for i in range(N)]
    assert parts
    fault = fault_of(UninitialisedRegister, body + "add.u32 %r2, %r8, 1;" + STORE, block=BLOCK, grid=GRID)
    assert (fault.register, fault.place.block, fault.place.warp, fault.place.lane) == ("%r8", (0, 0, 0), 0, 0)


def test_votes_and_shuffles_work_in_a_compact_copy(monkeypatch, parts):
    """All lanes of a warp have the trip count of its longest lane."""
    body = (
        TRIPS
        + """mov.u32 %r6, 0; mov.u32 %r2, %i; mov.u32 %r8, 0xFFFFFFFF;
L: setp.lt.u32 %p1, %r6, %r3; vote.sync.ballot.b32 %r7, %p1, %r8; shfl.sync.bfly.b32 %r9, %r2, 1, 31, %r8;
@%p1 add.u32 %r2, %r2, %r9; add.u32 %r6, %r6, 1; setp.ne.u32 %p2, %r7, 0; @%p2 bra L;
add.u32 %r2, %r2, %r6;
"""
    )
    values = np.arange(N, dtype=np.uint32)
    counts = np.array([trips(i) for i in range(N)])
    rounds = np.zeros(N, np.uint32)
    warps = counts.reshape(-1, 32).max(axis=1).repeat(32)
    for n in range(int(counts.max()) + 1):
        values = np.where(n < counts, values + values[np.arange(N) ^ 1], values).astype(np.uint32)
        rounds += n <= warps
    assert both_ways(monkeypatch, body, block=BLOCK, grid=GRID) == (values + rounds).tolist()
    assert parts


def test_a_barrier_after_the_loop_waits_for_the_copied_warps(monkeypatch, parts):
    """The long-running warp of a block writes what the other one reads."""
    body = (
        TRIPS
        + """mov.u32 %r6, 0; setp.eq.u32 %p2, %r1, 40;
L: add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r3; @%p1 bra L;
@%p2 st.shared.u32 [cell], %r6; bar.sync 0; ld.shared.u32 %r2, [cell]; mad.lo.u32 %r2, %r2, 1000, %r6;
"""
    )
    got = both_ways(monkeypatch, body, block=BLOCK, grid=GRID, before=".shared .u32 cell;")
    assert got == [max(trips(i // 64 * 64 + 40), 1) * 1000 + max(trips(i), 1) for i in range(N)]
    assert parts


def test_barriers_inside_the_loop_wait_for_all_warps(monkeypatch):
    body = """mov.u32 %r3, %ctaid.x; rem.u32 %r4, %r3, 5; setp.eq.u32 %p1, %r4, 2; selp.u32 %r3, 60, 3, %p1;
mov.u32 %r6, 0;
mov.u32 %r2, 0; setp.eq.u32 %p2, %r1, 63;
L: @%p2 st.shared.u32 [cell], %r6; bar.sync 0; ld.shared.u32 %r7, [cell]; mad.lo.u32 %r2, %r2, 3, %r7;
bar.sync 0;
add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, %r3; @%p3 bra L;
"""

    def expected(block):
        value = 0
        for n in range(60 if block % 5 == 2 else 3):
            value = (value * 3 + n) % 2**32
        return value

    got = both_ways(monkeypatch, body, block=BLOCK, grid=GRID, before=".shared .u32 cell;")
    assert got == [expected(i // 64) for i in range(N)]


def test_warps_wait_at_a_barrier_for_a_warp_in_a_long_loop(monkeypatch, parts):
    body = """shr.u32 %r4, %i, 5; setp.eq.u32 %p1, %r1, 5; setp.lt.u32 %p2, %r1, 32; mov.u32 %r6, 0;
@%p2 bra L;
bar.sync 0; ld.shared.u32 %r2, [cell]; bra END;
L: add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 90; @%p3 bra L;
@%p1 st.shared.u32 [cell], %r6; bar.sync 0; mov.u32 %r2, 1;
END: """
    got = both_ways(monkeypatch, body, block=256, grid=4, before=".shared .u32 cell;")
    assert got == [1 if i % 256 < 32 else 90 for i in range(1024)]
    assert parts


def test_cluster_barriers_after_the_loop_wait_for_the_copied_warps(monkeypatch, parts):
    body = (
        TRIPS
        + """mov.u32 %r6, 0; setp.eq.u32 %p2, %r1, 40;
L: add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r3; @%p1 bra L;
@%p2 st.shared.u32 [cell], %r6; barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1; mov.u32 %r5, cell; mapa.shared::cluster.u32 %r5, %r5, %r4;
ld.shared::cluster.u32 %r2, [%r5]; barrier.cluster.arrive; barrier.cluster.wait;
"""
    )
    options = {"before": ".shared .u32 cell;", "directives": ".reqnctapercluster 2, 1, 1"}
    got = both_ways(monkeypatch, body, block=BLOCK, grid=GRID, **options)
    assert got == [max(trips((i // 64 ^ 1) * 64 + 40), 1) for i in range(N)]
    assert parts


def test_lanes_exit_inside_a_compact_copy(monkeypatch, parts):
    body = (
        TRIPS
        + """mov.u32 %r6, 0; setp.lt.u32 %p2, %lane, 9;
L: add.u32 %r6, %r6, 1; setp.eq.and.u32 %p3, %r6, 50, %p2; @%p3 exit; setp.lt.u32 %p1, %r6, %r3; @%p1 bra L;
bar.red.popc.u32 %r2, 0, %p2;
"""
    )

    def gone(i):
        return trips(i) >= 50 and i % 32 < 9

    got = both_ways(monkeypatch, body, block=BLOCK, grid=GRID)
    counts = [sum(i % 32 < 9 and not gone(i) for i in range(b * 64, b * 64 + 64)) for b in range(GRID)]
    assert got == [NOTHING if gone(i) else counts[i // 64] for i in range(N)]
    assert parts


def test_nested_loops_with_different_trip_counts_are_right(monkeypatch, parts):
    body = (
        TRIPS.replace("30, 100", "2, 20")
        + """mov.u32 %r2, 0; mov.u32 %r6, 0;
OUTER: setp.ge.u32 %p1, %r6, %r3; @%p1 bra END; mov.u32 %r7, 0; and.b32 %r8, %r6, 7;
setp.lt.u32 %p4, %lane, 2;
@%p4 mul.lo.u32 %r8, %r8, 3;
INNER: setp.ge.u32 %p2, %r7, %r8; @%p2 bra NEXT; mad.lo.u32 %r2, %r2, 3, %r7; add.u32 %r7, %r7, 1; bra INNER;
NEXT: add.u32 %r2, %r2, %r6; add.u32 %r6, %r6, 1; bra OUTER;
END: """
    )

    def expected(i):
        value, n = 0, trips(i)
        n = (n - 100) // 30 * 2 + 20 if n >= 100 else n
        for k in range(n):
            for m in range((k & 7) * (3 if i % 32 < 2 else 1)):
                value = (value * 3 + m) % 2**32
            value = (value + k) % 2**32
        return value

    assert both_ways(monkeypatch, body, block=BLOCK, grid=GRID) == [expected(i) for i in range(N)]
    assert parts


def test_a_polling_warp_sees_the_write_of_another_warp(parts):
    """Warp 0 polls until the last warp writes after a long computation."""
    body = """setp.ge.u32 %p1, %i, 32; mov.u32 %r6, 0; @%p1 bra WORK;
POLL: ld.volatile.global.u32 %r2, [%in]; setp.eq.u32 %p2, %r2, 0; @%p2 bra POLL; bra END;
WORK: add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 700; @%p3 bra WORK; setp.eq.u32 %p4, %i, 511; mov.u32 %r2, 6;
@%p4 st.volatile.global.u32 [%in], %r6;
END: """
    assert run(body + STORE, block=512) == [700] * 32 + [6] * 480
    assert parts


POLLING = """setp.eq.u32 %p1, %lane, 31; mov.u32 %r5, 0; and.b32 %r3, %lane, 1; setp.ne.u32 %p3, %r3, 0;
@%p1 bra SET;
LOOP: ld.volatile.global.u32 %r2, [%in]; {0}
setp.eq.u32 %p2, %r2, 0; @%p2 bra LOOP; bra END;
SET: mov.u32 %r2, 9; st.volatile.global.u32 [%in], %r2;
END: """


@pytest.mark.parametrize(
    "inside",
    [
        "@%p3 bra ODD; mul.lo.u32 %r5, %r5, %r5; ODD: add.u32 %r5, %r5, 1;",
        "setp.ne.u32 %p2, %r2, 0; @%p2 bra END; @%p3 bra ODD; add.u32 %r5, %r5, 2; bra LOOP;\n"
        "ODD: add.u32 %r5, %r5, 1;",
        "@%p3 add.u32 %r5, %r5, 1;",
    ],
)
def test_a_divergent_polling_loop_lets_other_lanes_run(inside):
    """The awaited write is below the loop; the scheduler must count iterations across reconvergence."""
    device = simwarp.Device(instruction_budget=20_000)
    assert run(POLLING.format(inside) + STORE, device=device) == [9] * 32


def test_the_instruction_budget_ends_a_loop_of_one_warp(parts):
    body = "setp.lt.u32 %p1, %i, 32; mov.u32 %r2, 1; @!%p1 bra END;\nL: add.u32 %r2, %r2, 1; bra L;\nEND: "
    device = simwarp.Device(instruction_budget=5000)
    fault = fault_of(RunawayKernel, body + STORE, block=512, device=device)
    assert (fault.place.warp, fault.place.line) == (0, line_of("L: add", body))
    assert parts


def test_a_compact_copy_uses_the_same_instruction_budget(monkeypatch):
    class Fetches(Observer):
        def __init__(self):
            self.lanes = self.steps = 0

        def on_step(self, chunk, step, mask):
            self.steps, self.lanes = self.steps + 1, self.lanes + int(chunk.count)

    body = TRIPS + "mov.u32 %r2, 0;\nL: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r3; @%p1 bra L;\n"
    observer = Fetches()
    run(body + STORE, block=BLOCK, grid=GRID, device=simwarp.Device(observers=[observer]))
    run(body + STORE, block=BLOCK, grid=GRID, device=simwarp.Device(instruction_budget=observer.steps))
    with pytest.raises(RunawayKernel):
        run(
            body + STORE, block=BLOCK, grid=GRID, device=simwarp.Device(instruction_budget=observer.steps - 1)
        )
    other = Fetches()
    monkeypatch.setattr(Scheduler, "is_sparse", lambda self: False)
    run(body + STORE, block=BLOCK, grid=GRID, device=simwarp.Device(observers=[other]))
    assert observer.lanes == other.lanes


def test_observers_see_block_and_lane_of_writes_in_a_compact_copy(parts):
    """Two lanes of warp 5 of block 1 write to one word."""
    body = """mov.u32 %r4, %ctaid.x; mov.u32 %r6, 0; mov.u32 %r3, 2; shr.u32 %r5, %r1, 5;
setp.eq.u32 %p1, %r5, 5;
setp.eq.and.u32 %p1, %r4, 1, %p1; @%p1 mov.u32 %r3, 40; and.b32 %r7, %lane, 30;
setp.eq.and.u32 %p2, %r7, 8, %p1;
L: add.u32 %r6, %r6, 1; setp.eq.and.u32 %p3, %r6, 35, %p2; @%p3 st.global.u32 [%out], %lane;
setp.lt.u32 %p4, %r6, %r3; @%p4 bra L; ret;"""
    observer = WriteObserver("out", offset=0, size=4)
    device = simwarp.Device(observers=[observer], checks={"races": "off"})
    run(body, block=256, grid=3, device=device)
    seen = [(w.place.block, w.place.warp, w.place.lane, w.place.thread, w.value) for w in observer.writes]
    assert seen == [((1, 0, 0), 5, 8, (168, 0, 0), 8), ((1, 0, 0), 5, 9, (169, 0, 0), 9)]
    assert parts


@pytest.mark.parametrize(
    ("instruction", "kind"), [("ld.global.u32 %r9, [%rd1];", OutOfBounds), ("trap;", Trap)]
)
def test_faults_in_a_compact_copy_name_block_warp_and_lane(instruction, kind, parts):
    body = (
        TRIPS
        + f"""mov.u32 %r6, 0; setp.eq.u32 %p2, %i, 717; mov.u64 %rd1, 64;
L: add.u32 %r6, %r6, 1; setp.eq.and.u32 %p3, %r6, 70, %p2;
@%p3 {instruction}
setp.lt.u32 %p1, %r6, %r3; @%p1 bra L; ret;"""
    )
    assert trips(717) >= 70
    fault = fault_of(kind, body, block=BLOCK, grid=GRID)
    assert (fault.place.block, fault.place.warp, fault.place.lane) == ((11, 0, 0), 0, 13)
    assert (fault.place.thread, fault.place.line) == ((13, 0, 0), line_of(instruction, body))
    assert parts


def test_a_compact_copy_uses_the_shared_and_local_memory_of_its_lanes(monkeypatch, parts):
    """A copied warp accesses the memory of its own block and lanes."""
    body = (
        TRIPS
        + """.local .b32 mine[4]; .reg .b64 a; mov.u64 a, mine; st.local.u32 [a+8], %i; mov.u32 %r4, cells;
mov.u32 %r6, 0;
shl.b32 %r5, %r1, 2; add.u32 %r4, %r4, %r5; st.shared.u32 [%r4], %i;
L: ld.local.u32 %r7, [a+8]; mad.lo.u32 %r7, %r7, 3, %r6; st.local.u32 [a+8], %r7;
atom.shared.add.u32 %r8, [%r4], %r7;
add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r3; @%p1 bra L;
ld.shared.u32 %r2, [%r4]; ld.local.u32 %r7, [a+8]; xor.b32 %r2, %r2, %r7;
"""
    )

    def expected(i):
        mine = total = i
        for n in range(max(trips(i), 1)):
            mine = (mine * 3 + n) % 2**32
            total = (total + mine) % 2**32
        return mine ^ total

    got = both_ways(monkeypatch, body, block=BLOCK, grid=GRID, before=".shared .b32 cells[64];")
    assert got == [expected(i) for i in range(N)]
    assert parts


def test_a_deadlock_after_a_compact_copy_is_reported(parts):
    """All lanes wait when the copy ends, so the whole chunk is deadlocked."""
    body = """setp.lt.u32 %p1, %i, 32; mov.u32 %r3, 0; mov.u32 %r2, 1; @%p1 bra L;
bar.sync 1, 640; bra END;
L: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 50; @%p2 bra L;
bar.sync 2, 64;
END: """
    fault = fault_of(Deadlock, body + STORE, block=512)
    assert parts
    assert "480 lanes wait" in str(fault)
