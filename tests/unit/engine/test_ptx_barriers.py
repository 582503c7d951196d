"""Barriers of a block and of a cluster, and synchronisation of a warp's lanes."""

import numpy as np
import pytest

import simwarp
from simwarp.faults import BarrierFault, Deadlock, LaunchError, OutOfBounds
from support import small_kernels as small

STORE, NOTHING = small.STORE, small.NOTHING
text, run, fault_of, line_of = small.text, small.run, small.fault_of, small.line_of


CELLS = ".shared .align 4 .u32 cells[64];"

# ------------------------------------------------------------------------------------- named barriers


@pytest.mark.parametrize("number", [0, 1, 7, 15])
@pytest.mark.parametrize("bar", ["bar.sync", "barrier.sync", "barrier.cta.sync.aligned"])
def test_each_of_the_16_barriers_synchronises(number, bar):
    body = f"""setp.eq.u32 %p1, %i, 40; @%p1 st.shared.u32 [cells], %i; {bar} {number};
ld.shared.u32 %r2, [cells];
"""
    assert run(body + STORE, block=96, before=CELLS) == [40] * 96


def test_two_teams_synchronise_at_separate_barriers():
    """Each pair of warps passes a value at barrier 1 or 2; a third pair uses none."""
    body = """shr.u32 %r3, %i, 6; setp.eq.u32 %p1, %r3, 2; mov.u32 %r2, 5; @%p1 bra END;
add.u32 %r4, %r3, 1; and.b32 %r5, %i, 63; setp.eq.u32 %p2, %r5, 63; shl.b32 %r6, %r3, 2;
mov.u32 %r7, cells; add.u32 %r6, %r6, %r7; @%p2 st.shared.u32 [%r6], %i;
barrier.sync %r4, 64; ld.shared.u32 %r2, [%r6];
END: """
    assert run(body + STORE, block=192, before=CELLS) == [63] * 64 + [127] * 64 + [5] * 64


def test_a_counted_barrier_does_not_wait_for_other_warps():
    """The second pair reaches barrier 1 only after the first pair has passed barrier 2."""
    body = """setp.lt.u32 %p1, %i, 64; setp.eq.u32 %p2, %i, 0; @%p1 bra FIRST;
bar.sync 2, 128; bar.sync 1, 64; ld.shared.u32 %r2, [cells]; bra END;
FIRST: bar.sync 1, 64; @%p2 st.shared.u32 [cells], 8; bar.sync 2, 128; mov.u32 %r2, 1;
END: """.replace("st.shared.u32 [cells], 8", "st.shared.u32 [cells], %r0")
    assert run(body + STORE, block=128, before=CELLS) == [1] * 64 + [128] * 64


PIPE = """setp.lt.u32 %p1, %r1, 32; mov.u32 %r4, 0; mov.u32 %r2, 0; @!%p1 bra CONSUMER;
PRODUCER: bar.sync 1, 64;
mul.lo.u32 %r5, %r4, 100; add.u32 %r5, %r5, %lane; shl.b32 %r6, %lane, 2; mov.u32 %r7, cells;
add.u32 %r6, %r6, %r7;
st.shared.u32 [%r6], %r5; bar.arrive 2, 64;
add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 5; @%p2 bra PRODUCER; bra END;
CONSUMER: bar.arrive 1, 64;
bar.sync 2, 64; xor.b32 %r5, %lane, 31; shl.b32 %r6, %r5, 2; mov.u32 %r7, cells; add.u32 %r6, %r6, %r7;
ld.shared.u32 %r5, [%r6]; mad.lo.u32 %r2, %r2, 7, %r5;
add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 5; @%p2 bra CONSUMER;
END: """


@pytest.mark.parametrize("chunk", [64, 32768])
def test_producer_and_consumer_alternate_by_bar_arrive_and_bar_sync(chunk):
    """`bar.arrive` signals an empty or full buffer, `bar.sync` waits for it, five times."""

    def consumed(lane):
        total = 0
        for n in range(5):
            total = (total * 7 + n * 100 + (lane ^ 31)) % 2**32
        return total

    expected = ([0] * 32 + [consumed(lane) for lane in range(32)]) * 3
    got = run(PIPE + STORE, block=64, grid=3, before=CELLS, device=simwarp.Device(chunk_lanes=chunk))
    assert got == expected


def test_bar_sync_without_a_count_counts_arrivals():
    body = """setp.lt.u32 %p1, %i, 32; @%p1 bra WAIT; bar.arrive 1, 64; mov.u32 %r2, 1; bar.sync 2; bra END;
WAIT: bar.sync 1; mov.u32 %r2, 2; bar.sync 2;
END: """
    assert run(body + STORE, block=64) == [2] * 32 + [1] * 32


def test_arrivals_without_a_wait_complete_a_barrier():
    """After two completed phases of arrivals, a wait in the third phase waits for the other warp."""
    body = """bar.arrive 1, 64; setp.lt.u32 %p1, %i, 32; @%p1 bra WAIT;
mul.lo.u32 %r3, %i, 3; setp.eq.u32 %p2, %i, 63; @%p2 st.shared.u32 [cells], %r3; bar.arrive 1, 64;
mov.u32 %r2, 4;
bra END;
WAIT: bar.sync 1, 64; ld.shared.u32 %r2, [cells];
END: """
    assert run(body + STORE, block=64, before=CELLS) == [189] * 32 + [4] * 32
    waiting_first = body.replace("@%p1 bra WAIT", "@!%p1 bra WAIT").replace("%i, 63", "%i, 31")
    assert run(waiting_first + STORE, block=64, before=CELLS) == [4] * 32 + [93] * 32


@pytest.mark.parametrize("block", [52, 64])
def test_a_warp_that_arrives_in_two_parts_counts_once(block):
    body = """setp.lt.u32 %p1, %i, 32; @%p1 bra WAIT; setp.lt.u32 %p2, %i, 40; @%p2 bra LOW;
barrier.arrive 1, 64; mov.u32 %r2, 1; bra END;
LOW: barrier.arrive 1, 64; mov.u32 %r2, 3; bra END;
WAIT: barrier.sync 1, 64; mov.u32 %r2, 2;
END: """
    assert run(body + STORE, block=block) == [2] * 32 + [3] * 8 + [1] * (block - 40)


# --------------------------------------------------------------------------------------------- bar.red


@pytest.mark.parametrize("bar", ["bar.red", "barrier.cta.red", "barrier.red.aligned"])
@pytest.mark.parametrize(("block", "some"), [(64, 40), (70, 0), (70, 70), (33, 33), (96, 95)])
def test_barrier_reductions_count_and_combine(bar, block, some):
    body = f"""setp.lt.u32 %p1, %i, {some};
{bar}.popc.u32 %r3, 0, %p1; {bar}.and.pred %p2, 1, %p1; {bar}.or.pred %p3, 2, !%p1;
selp.u32 %r4, 1000, 0, %p2; selp.u32 %r5, 2000, 0, %p3; add.u32 %r2, %r3, %r4; add.u32 %r2, %r2, %r5;
"""
    value = some + (1000 if some == block else 0) + (2000 if some < block else 0)
    assert run(body + STORE, block=block) == [value] * block


def test_counted_reductions_at_different_barriers_are_separate():
    """Two teams that arrive at the same time combine only their own predicates."""
    body = """shr.u32 %r3, %i, 6; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %i, 70;
barrier.red.popc.u32 %r2, %r3, 64, %p1;
barrier.red.and.pred %p2, %r3, 64, %p1; @%p2 add.u32 %r2, %r2, 100;
"""
    assert run(body + STORE, block=128) == [164] * 64 + [6] * 64


def test_each_block_reduces_separately():
    body = "mov.u32 %r4, %ctaid.x; setp.lt.u32 %p1, %r1, %r4; bar.red.popc.u32 %r2, 0, %p1;\n"
    for chunk in (64, 32768):
        got = run(body + STORE, block=50, grid=4, device=simwarp.Device(chunk_lanes=chunk))
        assert got == [b for b in range(4) for _ in range(50)]


def test_different_reductions_may_complete_together():
    """In each block the second warp completes the reduction while the first waits."""
    body = """mov.u32 %r3, %ctaid.x; setp.ge.u32 %p1, %r1, 32; setp.eq.u32 %p2, %r1, 0;
setp.eq.u32 %p4, %r3, 0;
@%p4 bra FIRST; @%p1 bra GONE; bar.red.and.pred %p3, 0, %p2; bra END;
FIRST: @%p1 bra GONE; bar.red.or.pred %p3, 0, %p2; bra END;
GONE: add.u32 %r3, %r3, 1; exit;
END: selp.u32 %r2, 1, 0, %p3;
"""
    got = run(body + STORE, block=64, grid=2)
    assert got == [1] * 32 + [NOTHING] * 32 + [0] * 32 + [NOTHING] * 32


def test_a_guarded_reduction_skips_other_warps():
    body = """setp.lt.u32 %p1, %i, 32; setp.lt.u32 %p2, %i, 5; mov.u32 %r2, 77;
@%p1 bar.red.popc.u32 %r2, 3, 32, %p2;
"""
    assert run(body + STORE, block=64) == [5] * 32 + [77] * 32


# ----------------------------------------------------------------------- where and when threads come


def test_a_barrier_may_be_reached_at_two_instructions():
    body = """shr.u32 %r3, %i, 5; and.b32 %r3, %r3, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra ODD;
setp.eq.u32 %p2, %i, 64; @%p2 st.shared.u32 [cells], %i; bar.sync 0; mov.u32 %r2, 1; bra END;
ODD: bar.sync 0; ld.shared.u32 %r2, [cells];
END: """
    assert run(body + STORE, block=128, before=CELLS) == ([1] * 32 + [64] * 32) * 2


def test_a_reduction_may_be_reached_at_two_instructions():
    body = """setp.lt.u32 %p1, %i, 32; and.b32 %r3, %i, 1; setp.eq.u32 %p2, %r3, 0; setp.lt.u32 %p3, %i, 35;
@%p1 bra LOW; barrier.red.popc.u32 %r2, 0, %p3; bra END;
LOW: barrier.red.popc.u32 %r4, 0, %p2; add.u32 %r2, %r4, 100;
END: """
    assert run(body + STORE, block=64) == [119] * 32 + [19] * 32


def test_a_barrier_does_not_wait_for_exited_threads():
    body = """setp.ge.u32 %p1, %i, 50; @!%p1 bra STAY; add.u32 %r3, %i, 1; exit;
STAY: setp.eq.u32 %p2, %i, 49; @%p2 st.shared.u32 [cells], %i; bar.sync 0; ld.shared.u32 %r2, [cells];
"""
    assert run(body + STORE, block=100, before=CELLS) == [49] * 50 + [NOTHING] * 50


def test_threads_that_exit_while_others_wait_complete_the_barrier():
    body = """setp.ge.u32 %p1, %i, 32; @%p1 bra LATER; bar.sync 0; mov.u32 %r2, 1; bra END;
LATER: mov.u32 %r3, 0; LOOP: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 20; @%p2 bra LOOP;
st.global.u32 [%at], %r3; exit;
END: """
    tolerant = simwarp.Device(checks={"barriers": "off"})
    assert run(body + STORE, block=70, device=tolerant) == [1] * 32 + [20] * 38


def test_an_unaligned_barrier_may_be_reached_lane_by_lane():
    body = """mov.u32 %r3, 0;
LOOP: setp.ge.u32 %p1, %r3, %lane; @%p1 bra MEET; add.u32 %r3, %r3, 1; bra LOOP;
MEET: setp.eq.u32 %p2, %i, 37; @%p2 st.shared.u32 [cells], %i; barrier.sync 0; ld.shared.u32 %r2, [cells];
"""
    assert run(body + STORE, block=64, before=CELLS) == [37] * 64


def test_lanes_at_two_barrier_instructions_need_unaligned_barriers():
    body = """setp.lt.u32 %p1, %lane, 16; @%p1 bra LOW; barrier.sync 0; mov.u32 %r2, 1; bra END;
LOW: barrier.sync 0; mov.u32 %r2, 2;
END: """
    assert run(body + STORE) == [2] * 16 + [1] * 16
    for aligned in ("bar.sync", "barrier.sync.aligned"):
        fault = fault_of(BarrierFault, body.replace("barrier.sync", aligned) + STORE)
        assert (fault.place.warp, fault.place.lane is not None) == (0, True)
        assert "aligned" in str(fault)


def test_blocks_leave_a_loop_with_barriers_at_different_times():
    body = """mov.u32 %r3, %ctaid.x; mov.u32 %r2, 0;
LOOP: setp.ge.u32 %p1, %r2, %r3; @%p1 bra END; setp.eq.u32 %p2, %r1, 33; add.u32 %r4, %r2, 1;
@%p2 st.shared.u32 [cells], %r4; bar.sync 0; ld.shared.u32 %r2, [cells]; bar.sync 1; bra LOOP;
END: """
    got = run(body + STORE, block=64, grid=6, before=CELLS)
    assert got == [b for b in range(6) for _ in range(64)]


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("block", [32, 64])
def test_a_barrier_number_above_15_is_a_fault(block):
    body = "add.u32 %r3, %lane, 16; sub.u32 %r3, %r3, %lane;\nbarrier.sync %r3;\nmov.u32 %r2, 1;" + STORE
    fault = fault_of(BarrierFault, body, block=block)
    assert (fault.place.lane, fault.place.line) == (0, line_of("barrier.sync %r3", body))
    assert "barrier 16" in fault.values


@pytest.mark.parametrize("instruction", ["barrier.sync 1, %r3;", "barrier.arrive 1, %r3;"])
def test_a_thread_count_of_partial_warps_is_a_fault(instruction):
    body = "setp.eq.u32 %p1, %i, 40; selp.u32 %r3, 33, 64, %p1;\n" + instruction
    fault = fault_of(BarrierFault, body, block=64)
    assert (fault.place.warp, fault.place.lane, fault.place.line) == (1, 8, line_of(instruction, body))
    assert "33 threads" in fault.values


def test_different_thread_counts_are_a_fault():
    body = """setp.lt.u32 %p1, %i, 32; @%p1 bra WAIT;
bar.arrive 1, 96; bra END;
WAIT: bar.sync 1, 64;
END: ret;"""
    waiting_first = body.replace("@%p1", "@!%p1")
    assert {str(fault_of((BarrierFault, Deadlock), b, block=64)) for b in (body, waiting_first)}


def test_warps_at_different_block_wide_barriers_are_a_deadlock():
    """Each warp waits for all threads at another barrier."""
    body = "shr.u32 %r3, %i, 5;\nbarrier.sync %r3;\nmov.u32 %r2, 1;" + STORE
    fault = fault_of(Deadlock, body, block=64)
    assert fault.place.line == line_of("barrier.sync %r3", body)


def test_a_deadlock_names_all_waiting_warps():
    body = """setp.lt.u32 %p1, %r1, 32; @%p1 bra LOW;
bar.sync 1, 64; bra END;
LOW: bar.sync 2, 64;
END: ret;"""
    fault = fault_of(Deadlock, body, block=64, grid=2)
    assert fault.place.block == (0, 0, 0)
    assert fault.place.line == line_of("bar.sync 1", body)
    assert [(note.label, note.place.block, note.place.warp, note.place.lane) for note in fault.notes] == [
        ("64 lanes wait here, the first is", (0, 0, 0), warp, 0) for warp in (1, 0)
    ]
    assert "64 lanes wait here, the first is thread (0, 0, 0), warp 0, lane 0" in str(fault)


def test_a_barrier_for_more_threads_than_the_block_is_a_deadlock():
    assert fault_of(Deadlock, "bar.sync 0, 96; ret;", block=64).place.warp == 0


def test_a_deadlock_after_a_loop_of_one_warp_is_reported():
    body = """setp.lt.u32 %p1, %i, 32; mov.u32 %r3, 0; @%p1 bra LOOP;
bar.sync 1, 640; bra END;
LOOP: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 50; @%p2 bra LOOP;
bar.sync 2, 64;
END: ret;"""
    fault = fault_of(Deadlock, body, block=512)
    assert fault.place.line == line_of("bar.sync 1", body)


def test_a_vote_that_one_lane_never_reaches_is_a_deadlock():
    body = """setp.eq.u32 %p1, %lane, 5; @%p1 bra OTHER;
vote.sync.any.pred %p2, %p1, 0xFFFFFFFF; bra END;
OTHER: bar.sync 0;
END: ret;"""
    fault = fault_of(Deadlock, body, block=64)
    assert fault.place.line == line_of("vote.sync", body)


# --------------------------------------------------------------------- warp operations that meet

THREE = """rem.u32 %r3, %lane, 3; setp.eq.u32 %p1, %r3, 1; setp.eq.u32 %p2, %r3, 2; mov.u32 %r4, 0xFFFFFFFF;
@%p1 bra ONE; @%p2 bra TWO;
add.u32 %r5, %lane, 1; {0} bra END;
ONE: add.u32 %r5, %lane, 200; mov.u32 %r6, %r5; {1} bra END;
TWO: mul.lo.u32 %r5, %lane, 50; {2}
END: """


def value(lane):
    return [lane + 1, lane + 200, lane * 50][lane % 3]


@pytest.mark.parametrize("block", [32, 64])
def test_a_reduction_synchronises_at_three_instructions(block):
    redux = "redux.sync.add.u32 %r2, %r5, %r4;"
    body = THREE.format(redux, redux.replace("%r5", "%r6"), redux) + STORE
    assert run(body, block=block) == [sum(map(value, range(32)))] * block


def test_a_shuffle_synchronises_at_three_instructions():
    shuffle = "shfl.sync.bfly.b32 %r2, %r5, 1, 31, %r4;"
    body = THREE.format(shuffle, shuffle.replace("%r2", "%r7") + " add.u32 %r2, %r7, 7;", shuffle) + STORE
    assert run(body) == [value(i ^ 1) + (7 if i % 3 == 1 else 0) for i in range(32)]


def test_votes_under_partial_masks_synchronise_separately():
    """Lanes 0 mod 3 and 1 mod 3 vote together, lanes 2 mod 3 among themselves."""
    together = sum(1 << i for i in range(32) if i % 3 != 2)
    apart = sum(1 << i for i in range(32) if i % 3 == 2)
    vote = f"setp.gt.u32 %p3, %lane, 9; vote.sync.ballot.b32 %r2, %p3, {together};"
    body = THREE.format(vote, vote, vote.replace(str(together), str(apart))) + STORE
    high = 0xFFFFFFFF << 10 & 0xFFFFFFFF
    assert run(body) == [(apart if i % 3 == 2 else together) & high for i in range(32)]


def test_lanes_that_exit_while_others_wait_complete_the_vote():
    body = """setp.lt.u32 %p1, %lane, 6; setp.ge.u32 %p2, %lane, 0; @%p1 bra LATER;
vote.sync.ballot.b32 %r2, %p2, 0xFFFFFFFF; bra END;
LATER: add.u32 %r3, %lane, 1; setp.lt.u32 %p3, %lane, 3; @%p3 exit;
vote.sync.ballot.b32 %r2, %p2, 0xFFFFFFFF;
END: """
    assert run(body + STORE) == [NOTHING] * 3 + [0xFFFFFFF8] * 29


def test_each_warp_synchronises_at_its_own_instructions():
    """Warp 0 synchronises at one instruction, warp 1 at two."""
    body = """setp.lt.u32 %p1, %i, 40; @%p1 bra LOW; redux.sync.add.u32 %r2, %i, 0xFFFFFFFF; bra END;
LOW: redux.sync.add.u32 %r3, 1, 0xFFFFFFFF; add.u32 %r2, %r3, 5;
END: """.replace("redux.sync.add.u32 %r3, 1,", "mov.u32 %r4, 1; redux.sync.add.u32 %r3, %r4,")
    second = 8 + sum(range(40, 64))
    assert run(body + STORE, block=64) == [37] * 32 + [second + 5] * 8 + [second] * 24


def test_halves_of_a_warp_synchronise_separately():
    body = """setp.lt.u32 %p1, %lane, 16; selp.b32 %r3, 0xFFFF, 0xFFFF0000, %p1; shl.b32 %r4, %lane, 2;
mov.u32 %r5, cells; add.u32 %r4, %r4, %r5; st.shared.u32 [%r4], %i; bar.warp.sync %r3;
xor.b32 %r6, %lane, 15; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r5; ld.shared.u32 %r2, [%r6];
"""
    assert run(body + STORE, before=CELLS) == [i ^ 15 for i in range(32)]


# --------------------------------------------------------------------------------------- clusters


def in_clusters(x, y=1, z=1):
    return {"directives": f".reqnctapercluster {x}, {y}, {z}", "before": CELLS}


ARRIVE_AND_WAIT = "barrier.cluster.arrive; barrier.cluster.wait;\n"
NEIGHBOUR = """mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctarank; add.u32 %r5, %r3, 1;
rem.u32 %r5, %r5, %r4;
mov.u32 %r6, cells; mapa.shared::cluster.u32 %r7, %r6, %r5;
"""


@pytest.mark.parametrize("chunk", [32, 32768])
@pytest.mark.parametrize("generic", [False, True])
def test_a_block_reads_its_neighbours_shared_memory(chunk, generic):
    load = "ld.shared::cluster.u32 %r2, [%r7];"
    if generic:
        load = "cvt.u64.u32 %rd1, %r7; cvta.shared::cluster.u64 %rd1, %rd1; ld.u32 %r2, [%rd1];"
    body = "setp.eq.u32 %p1, %r1, 0; mov.u32 %r8, %ctaid.x; @%p1 st.shared.u32 [cells], %r8;\n"
    body += ARRIVE_AND_WAIT + NEIGHBOUR + load + ARRIVE_AND_WAIT
    device = simwarp.Device(chunk_lanes=chunk)
    got = run(body + STORE, block=40, grid=12, device=device, **in_clusters(4))
    assert got == [b // 4 * 4 + (b + 1) % 4 for b in range(12) for _ in range(40)]


def test_mapa_accepts_a_generic_address():
    body = """setp.eq.u32 %p1, %r1, 0; mov.u32 %r8, %ctaid.x; @%p1 st.shared.u32 [cells+4], %r8;
mov.u64 %rd1, cells; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd2, %rd1, 1;
"""
    body += ARRIVE_AND_WAIT + "ld.u32 %r2, [%rd2+4];" + ARRIVE_AND_WAIT
    assert run(body + STORE, grid=6, **in_clusters(2)) == [b | 1 for b in range(6) for _ in range(32)]


def test_writes_and_atomics_reach_shared_memory_of_another_block():
    body = """setp.ne.u32 %p1, %r1, 0; mov.u32 %r9, 0; @!%p1 st.shared.u32 [cells], %r9;
@!%p1 st.shared.u32 [cells+4], %r9;
"""
    body += ARRIVE_AND_WAIT + NEIGHBOUR + "mov.u32 %r8, %ctaid.x;\n"
    body += "atom.shared::cluster.add.u32 %r9, [%r7], %r1; @!%p1 st.shared::cluster.u32 [%r7+4], %r8;\n"
    body += (
        ARRIVE_AND_WAIT
        + "ld.shared.u32 %r2, [cells]; ld.shared.u32 %r9, [cells+4]; mad.lo.u32 %r2, %r9, 1000, %r2;\n"
    )
    got = run(body + STORE, block=20, grid=6, **in_clusters(3))
    assert got == [(b // 3 * 3 + (b + 2) % 3) * 1000 + 190 for b in range(6) for _ in range(20)]


def test_getctarank_gives_the_rank_of_an_address():
    body = NEIGHBOUR + "getctarank.shared::cluster.u32 %r2, %r7;\n" + STORE
    assert run(body, block=2, grid=6, **in_clusters(3)) == [(b + 1) % 3 for b in range(6) for _ in range(2)]


def test_getctarank_of_own_shared_memory_is_the_own_rank():
    body = "mov.u32 %r6, cells; getctarank.shared::cluster.u32 %r2, %r6;\n" + STORE
    assert run(body, block=2, grid=6, **in_clusters(3)) == [b % 3 for b in range(6) for _ in range(2)]


def test_mapa_without_clusters_maps_to_the_own_block():
    body = """st.shared.u32 [cells+8], %i; bar.sync 0; mov.u32 %r3, cells;
mapa.shared::cluster.u32 %r4, %r3, 0;
ld.shared::cluster.u32 %r2, [%r4+8];
"""
    assert run(body + STORE, block=1, grid=3, before=CELLS) == [0, 1, 2]


def test_mapa_to_a_rank_outside_the_cluster_is_a_fault():
    body = "mov.u32 %r3, cells; mapa.shared::cluster.u32 %r4, %r3, 2;\nst.shared::cluster.u32 [%r4], %i; ret;"
    fault = fault_of(OutOfBounds, body, grid=4, **in_clusters(2))
    assert (fault.place.block, fault.place.lane) == ((0, 0, 0), 0)
    assert fault.place.line == line_of("st.shared::cluster", body, **in_clusters(2))


def test_shared_memory_of_another_block_has_the_same_bounds():
    body = NEIGHBOUR + "ld.shared::cluster.u32 %r2, [%r7+256]; ret;"
    fault = fault_of(OutOfBounds, body, grid=2, **in_clusters(2))
    assert (fault.space, fault.place.block) == ("shared", (0, 0, 0))


CLUSTER_REGISTERS = [
    f"{name}.{axis}"
    for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    for axis in "xyz"
]
CLUSTER_REGISTERS += ["cluster_ctarank", "cluster_nctarank"]


@pytest.mark.parametrize(
    ("cluster", "grid"),
    [((2, 2, 2), (4, 2, 6)), ((1, 3, 2), (2, 6, 2)), ((4, 1, 1), (8, 3, 1)), ((1, 1, 3), (2, 2, 3))],
)
@pytest.mark.parametrize("chunk", [32, 32768])
def test_cluster_registers_are_right_in_three_dimensions(cluster, grid, chunk):
    """Rank r of `mapa` is the block whose cluster_ctarank is r."""
    names = CLUSTER_REGISTERS
    body = """mov.u32 %r3, %ctaid.z; mov.u32 %r4, %nctaid.y; mov.u32 %r5, %ctaid.y;
mad.lo.u32 %r3, %r3, %r4, %r5;
mov.u32 %r4, %nctaid.x; mov.u32 %r5, %ctaid.x; mad.lo.u32 %r3, %r3, %r4, %r5; st.shared.u32 [cells], %r3;
"""
    body += f"mul.lo.u32 %r4, %r3, {4 * len(names) + 4}; cvt.u64.u32 %rd1, %r4; add.u64 %rd1, %rd1, %out;\n"
    body += "".join(f"mov.u32 %r5, %{n}; st.global.u32 [%rd1+{4 * i}], %r5;\n" for i, n in enumerate(names))
    body += (
        ARRIVE_AND_WAIT
        + NEIGHBOUR
        + f"ld.shared::cluster.u32 %r2, [%r7]; st.global.u32 [%rd1+{4 * len(names)}], %r2;"
    )
    body += ARRIVE_AND_WAIT + "ret;"
    device = simwarp.Device(chunk_lanes=chunk)
    blocks = int(np.prod(grid))
    out = device.upload(np.zeros((blocks, len(names) + 1), np.uint32))
    device.load(text(body, **in_clusters(*cluster))).kernel("k")(grid, (1, 1, 1), out, out)
    (cx, cy, cz), (gx, gy, gz) = cluster, grid
    for block, found in enumerate(out.download().tolist()):
        x, y, z = block % gx, block // gx % gy, block // (gx * gy)
        i, j, k = x % cx, y % cy, z % cz
        rank = i + cx * (j + cy * k)
        expected = [
            x // cx,
            y // cy,
            z // cz,
            gx // cx,
            gy // cy,
            gz // cz,
            i,
            j,
            k,
            cx,
            cy,
            cz,
            rank,
            cx * cy * cz,
        ]
        n = (rank + 1) % (cx * cy * cz)
        u, v, w = x - i + n % cx, y - j + n // cx % cy, z - k + n // (cx * cy)
        assert found == [*expected, u + gx * (v + gy * w)]


def test_grids_that_are_not_a_multiple_of_the_cluster_are_refused():
    for grid in ((3, 2, 1), (2, 3, 1), (2, 2, 3)):
        with pytest.raises(LaunchError, match="multiple"):
            run("ret;", grid=grid, **in_clusters(2, 2, 2))
    with pytest.raises(LaunchError, match="16"):
        run("ret;", grid=(32, 1, 1), **in_clusters(32))


def test_writes_before_arrive_are_visible_after_wait():
    """The second block writes before its arrive; the first reads after its wait."""
    body = """mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r3, 0; mov.u32 %r4, 0; @!%p1 bra SECOND;
barrier.cluster.arrive.release; mov.u32 %r2, 5; barrier.cluster.wait.acquire;
mov.u32 %r6, cells; mapa.shared::cluster.u32 %r7, %r6, 1; ld.shared::cluster.u32 %r2, [%r7]; bra END;
SECOND: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 30; @%p2 bra SECOND;
st.shared.u32 [cells], %r4; barrier.cluster.arrive.release; barrier.cluster.wait.acquire; mov.u32 %r2, 6;
END: barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
"""
    assert run(body + STORE, grid=4, **in_clusters(2)) == ([30] * 32 + [6] * 32) * 2


def test_a_cluster_barrier_does_not_wait_for_ended_blocks():
    body = """mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r3, 1; @%p1 bra GONE;
barrier.cluster.arrive; bra WAIT;
GONE: add.u32 %r3, %r3, 1; st.global.u32 [%at], %r3; exit;
WAIT: barrier.cluster.wait; mov.u32 %r2, 7;
"""
    assert run(body + STORE, grid=2, **in_clusters(2)) == [7] * 32 + [2] * 32


def test_arriving_twice_at_a_cluster_barrier_is_a_fault():
    body = """mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r3, 1; @%p1 bra LATE;
barrier.cluster.arrive;
barrier.cluster.arrive.relaxed;
LATE: barrier.cluster.arrive; barrier.cluster.wait; ret;"""
    fault = fault_of(BarrierFault, body, grid=2, **in_clusters(2))
    assert fault.place.line == line_of("arrive.relaxed", body, **in_clusters(2))


def test_a_cluster_barrier_that_one_block_never_reaches_is_a_deadlock():
    body = """mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r3, 1; @%p1 bra OTHER;
barrier.cluster.arrive; barrier.cluster.wait; ret;
OTHER: barrier.cluster.wait; bar.sync 1, 64; ret;""".replace("barrier.cluster.wait; bar.sync", "bar.sync")
    fault = fault_of(Deadlock, body, grid=2, **in_clusters(2))
    assert "cluster" in fault.place.text
