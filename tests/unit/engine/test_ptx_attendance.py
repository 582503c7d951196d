"""Lanes that skip a barrier or a warp-wide operation, or exit before it."""

import re
from functools import cache

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.engine.schedule.missing_lanes import _numbers
from simwarp.engine.sync.waiting import _is_partition
from simwarp.faults import (
    EarlyExit,
    InactiveSource,
    KernelFault,
    MemberMaskFault,
    NeedsIndependentProgress,
    SkippedBarrier,
    SkippedMember,
)
from simwarp.lanes import mask_word
from support import small_kernels as small

run, fault_of, line_of = small.run, small.fault_of, small.line_of
STORE, NOTHING = small.STORE, small.NOTHING

# Blocks of 64 threads, n = 40: in the second warp lanes 8 to 31 stay behind.
FRAME = """
#define KERNEL(name) __global__ void name(const int* x, int* y, int n)
#define LANE (t & 31)
#define ALL 0xffffffffu
#define SHARED __shared__ int s[64]; const int t = threadIdx.x; int v = 0; y += 160 * blockIdx.x;
extern "C" {
"""
SKIPPED = """
KERNEL(others_loop) { SHARED s[t] = x[t];
    if (t < n) { __syncthreads(); y[t] = s[n - 1 - t]; }
    else { for (int i = 0; i < 100; i++) v += x[(i * t) % 64]; y[t] = v; } }
KERNEL(others_store) { SHARED s[t] = x[t];
    if (t < n) { __syncthreads(); y[t] = s[n - 1 - t]; } else y[t] = 1; }
KERNEL(others_go_around) { SHARED s[t] = x[t];
    if (t < n) { __syncthreads(); v = s[n - 1 - t]; }
    y[t] = v; }
KERNEL(warps_count_differently) { SHARED
    for (int i = 0; i < 2 + (t >= 32); i++) { v += x[i]; __syncthreads(); }
    y[t] = v; }
KERNEL(warps_loop_differently) { SHARED
    for (int i = 0; i < n - (t >= 32); i++) { v += x[(i + t) % 64]; __syncthreads(); }
    y[t] = v; }
KERNEL(one_warp_more_often) { SHARED
    if (t < 32) { __syncthreads(); y[t] = 1; }
    __syncthreads(); y[t + 64] = t; }
KERNEL(half_a_warp_counts_less) { SHARED s[t] = x[t];
    for (int i = 0; i < 3; i++) { if (i == 2 && LANE >= 16) break; v += s[(t + i) & 63]; __syncthreads(); }
    y[t] = v; }
__device__ __noinline__ void meet(int* s, const int* x, int t) { s[t] = x[t]; __syncthreads(); }
KERNEL(within_a_function) { SHARED
    if (t < n) { meet(s, x, t); v = s[n - 1 - t]; }
    y[t] = v; }
__device__ __noinline__ void leave(int* at, int v) { *at = v; }
KERNEL(others_store_in_a_function) { SHARED s[t] = x[t];
    if (t < n) { __syncthreads(); y[t] = s[n - 1 - t]; } else leave(y + t, 1); }
"""
MISSED = """
KERNEL(shuffle) { SHARED if (LANE < 16) v = __shfl_sync(ALL, x[t], t & 15); y[t] = v; }
KERNEL(ballot) { SHARED if (LANE < 16) v = __ballot_sync(ALL, x[t] > 3); y[t] = v; }
KERNEL(any) { SHARED if (LANE < 16) v = __any_sync(ALL, x[t] > 3); y[t] = v; }
KERNEL(match) { SHARED if (LANE < 16) v = __match_any_sync(ALL, x[t]); y[t] = v; }
KERNEL(redux) { SHARED if (LANE < 16) v = __reduce_add_sync(ALL, x[t]); y[t] = v; }
KERNEL(syncwarp) { SHARED if (LANE < 16) { y[t] = 2; __syncwarp(); v = 3; } y[t] = v; }
KERNEL(a_smaller_mask) { SHARED if (LANE < 16) v = __ballot_sync(0x00ffffffu, x[t] > 3); y[t] = v; }
KERNEL(leaves_the_loop) { SHARED
    for (int i = 0; i < 2 + (LANE >= 16); i++) v += __ballot_sync(ALL, x[t] > i);
    y[t] = v; }
KERNEL(masks_differ) { SHARED y[t] = 1; __syncwarp(LANE < 16 ? 0xffff : ALL); y[t] += 1; }
KERNEL(votes_differ) { SHARED v = __ballot_sync(LANE < 16 ? 0xffff : ALL, x[t] & 1); y[t] = v; }
"""
LEFT = """
KERNEL(shrinking_block) { SHARED s[t] = x[t]; __syncthreads();
    for (int h = 32; h > 0; h /= 2) { if (t >= h) return; s[t] += s[t + h]; __syncthreads(); }
    y[0] = s[0]; }
KERNEL(strided) { SHARED
    for (int i = t; i < n + 60; i += 64) {
        s[t] = x[i % 64]; __syncthreads(); y[i % 64] = s[t]; __syncthreads(); } }
KERNEL(strided_by_warps) { SHARED
    for (int i = t / 32; i < 3; i += 2) { s[t] = x[t]; __syncthreads(); y[t] = s[t ^ 33]; __syncthreads(); } }
KERNEL(done_of_its_own) { SHARED
    for (int i = 0; i < 5; i++) { s[t] = x[t]; __syncthreads(); if (t % 8 == i) return; s[t] += i; } }
"""
LOOPS = """
KERNEL(uniform_strides) { SHARED
    for (int i = 0; i < n + 60; i += 64) { if (i + t < n) s[t] = x[i + t]; __syncthreads();
        if (i + t < n) y[t] += s[t]; __syncthreads(); } }
KERNEL(returns_before_the_loop) { SHARED
    if (t >= 32) return;
    for (int i = 0; i < 4; i++) { s[t] = x[i]; __syncthreads(); y[t] = s[31 - t]; __syncthreads(); } }
KERNEL(returns_behind_another_barrier) { SHARED s[t] = x[t]; __syncthreads();
    if (t >= 32) return;
    v = s[63 - t]; __syncthreads(); y[t] = v; }
__device__ __forceinline__ void meet(int* s, int v, int t) { s[t] = v; __syncthreads(); }
KERNEL(two_calls) { SHARED meet(s, x[t], t);
    if (t >= 32) return;
    v = s[63 - t]; meet(s, v, t); y[t] = s[31 - t]; }
KERNEL(done_for_all) { SHARED
    for (int i = 0; i < 5; i++) {
        s[t] = x[t] + i; __syncthreads(); if (s[0] == 2) return; __syncthreads(); } }
KERNEL(named_barriers_of_roles) { SHARED
    if (t < 32) { for (int i = 0; i < 2; i++) { s[t] = i; asm volatile("bar.sync 1, 32;"); } return; }
    for (int i = 0; i < 4; i++) { s[t] = i; asm volatile("bar.sync 2, 32;" ::: "memory"); } y[t] = s[t]; }
"""
EARLY = """
KERNEL(early_return) { SHARED
    if (t >= n) return;
    s[t] = x[t]; __syncthreads(); y[t] = s[n - 1 - t]; }
KERNEL(if_to_the_end) { SHARED
    if (t < n) { s[t] = x[t]; __syncthreads(); y[t] = s[n - 1 - t]; } }
KERNEL(half_a_warp_returns) { SHARED if (LANE >= 16) return; y[t] = __ballot_sync(ALL, x[t] > 5); }
__device__ __noinline__ bool load(const int* x, int* s, int t, int n) {
    if (t >= n) return false;
    s[t] = x[t]; __syncthreads(); return true; }
KERNEL(return_of_a_function) { SHARED if (!load(x, s, t, n)) return; y[t] = s[n - 1 - t]; }
KERNEL(result_of_a_function) { SHARED if (load(x, s, t, n)) y[t] = s[n - 1 - t]; }
__device__ __noinline__ int twice(int a) { return a > 5 ? 2 * a : a + 1; }
KERNEL(helper_before_and_after) { SHARED
    if (twice(t) >= twice(n)) { v = twice(v); return; }
    s[t] = twice(t); __syncthreads(); y[t] = s[n - 1 - t]; }
struct Depth { int* depth; __device__ Depth(int* d) : depth(d) {}
    __device__ __noinline__ ~Depth() { *depth -= 1; } };
KERNEL(a_destructor_on_the_way_out) { SHARED int depth = 1; Depth inner(&depth);
    if (t >= n) return;
    s[t] = x[t]; __syncthreads(); y[t] = s[n - 1 - t]; }
"""
CORRECT = """
KERNEL(tree) { SHARED s[t] = t < n ? x[t] : 0; __syncthreads();
    for (int h = 32; h > 0; h /= 2) { if (t < h) s[t] += s[t + h]; __syncthreads(); }
    if (t == 0) y[0] = s[0]; }
KERNEL(last_warp) { SHARED s[t] = x[t]; __syncthreads();
    if (t >= 32) { y[t] = s[t]; return; }
    y[t] = s[63 - t]; __syncwarp(); y[t] += 1; }
KERNEL(butterfly_of_active_lanes) { SHARED
    if (t >= n) return;
    v = x[t];
    for (int h = 4; h > 0; h /= 2) v += __shfl_xor_sync(__activemask(), v, h);
    y[t] = v; }
KERNEL(mask_by_ballot) { SHARED const unsigned m = __ballot_sync(ALL, t < n);
    if (t < n) { v = __shfl_sync(m, x[t], __ffs(m) - 1); __syncwarp(m); }
    y[t] = v; }
KERNEL(aggregated_atomics) { SHARED
    if (x[t] & 1) { const unsigned m = __activemask(); const int leader = __ffs(m) - 1;
        if (LANE == leader) v = atomicAdd(y, __popc(m));
        y[1 + __shfl_sync(m, v, leader) + __popc(m & ((1u << LANE) - 1))] = t; } }
KERNEL(barrier_on_both_sides) { SHARED
    if (t < 32) { s[t] = 1; __syncthreads(); y[t] = s[t + 32]; }
    else { s[t] = 2; __syncthreads(); y[t] = s[t - 32]; } }
KERNEL(tiles) { SHARED const unsigned m = 0xffu << (LANE & 24); s[t] = x[t]; __syncwarp(m);
    v = s[t ^ 7] + __shfl_xor_sync(m, x[t], 3);
    y[t] = v; }
KERNEL(tiles_that_end_one_by_one) { SHARED const unsigned m = 0xffu << (LANE & 24);
    for (int i = 0; i <= LANE / 8; i++) v += __shfl_xor_sync(m, x[t] + i, 3);
    y[t] = v; }
KERNEL(some_then_all) { SHARED
    if (LANE < 16) { s[t] = x[t]; __syncwarp(0xffff); v = s[t ^ 15]; }
    __syncwarp(); y[t] = v; }
"""
KERNEL = re.compile(r"KERNEL\((\w+)\)")
SCHEDULES = [("lowest pc", 32768), ("lowest pc", 32), ("stack", 32768), ("random", 32768)]
options = pytest.mark.parametrize("option", ["-O3", "-G"])


@cache
def compiled(source, option):
    return compile(FRAME + source + "}", "kernels.cu", options=["-G"] if option == "-G" else []).text


def outcome(source, name, option, schedule="lowest pc", chunk_lanes=32768, checks="raise"):
    """The fault of a kernel, or None."""
    device = simwarp.Device(schedule=schedule, seed=3, checks=checks, chunk_lanes=chunk_lanes)
    x, y = device.upload(np.arange(64, dtype=np.int32), "x"), device.upload(np.zeros(320, np.int32), "y")
    try:
        device.load(compiled(source, option)).kernel(name)((2, 1, 1), (64, 1, 1), x, y, np.int32(40))
    except KernelFault as fault:
        return fault
    return None


def every_kernel(*sources):
    return pytest.mark.parametrize(
        ("source", "name"), [(source, name) for source in sources for name in KERNEL.findall(source)]
    )


# ---- CUDA C++, under all schedules -----------------------------------------------------------------------


@pytest.mark.at_most(23)
@options
@every_kernel(SKIPPED, MISSED)
def test_lanes_that_skip_a_barrier_or_vote_are_named(source, name, option):
    kind = SkippedBarrier if source is SKIPPED else SkippedMember
    for schedule, chunk_lanes in SCHEDULES:
        fault = outcome(source, name, option, schedule, chunk_lanes)
        # A warp with one program counter cannot reach this point.
        assert type(fault) is kind or (schedule == "stack" and type(fault) is NeedsIndependentProgress)


@options
@every_kernel(LEFT)
def test_a_barrier_that_lanes_passed_before_and_left_behind_is_named(source, name, option):
    for schedule, chunk_lanes in SCHEDULES:
        fault = outcome(source, name, option, schedule, chunk_lanes)
        assert type(fault) is SkippedBarrier or (
            schedule == "stack" and type(fault) is NeedsIndependentProgress
        )
    assert "left the loop" in str(outcome(source, name, option))


@pytest.mark.at_most(3)
@options
@every_kernel(EARLY, CORRECT, LOOPS)
def test_early_returns_and_correct_idioms_are_not_reported(source, name, option):
    for schedule, chunk_lanes in SCHEDULES:
        fault = outcome(source, name, option, schedule, chunk_lanes)
        assert fault is None or (schedule == "stack" and type(fault) is NeedsIndependentProgress)


@options
@every_kernel(EARLY, CORRECT)
def test_the_strict_exits_check_names_lanes_that_returned_early(source, name, option):
    for schedule, chunk_lanes in SCHEDULES:
        fault = outcome(source, name, option, schedule, chunk_lanes, {"exits": "raise"})
        expected = EarlyExit if source is EARLY else type(None)
        assert type(fault) in (expected, NeedsIndependentProgress)


@options
def test_a_skipped_barrier_names_its_line_and_the_divergent_branch(option):
    fault = outcome(SKIPPED, "others_loop", option)
    line = 1 + (FRAME + SKIPPED).split("\n").index("    if (t < n) { __syncthreads(); y[t] = s[n - 1 - t]; }")
    assert (fault.place.source_line, fault.place.block, fault.place.text) == (line, (0, 0, 0), "bar.sync 0;")
    assert (fault.left.source_line, fault.left.warp, fault.left.lane) == (line, 1, 8)
    assert fault.lanes == 0xFFFFFF00
    assert fault.values == "warp 1, lanes 8-31 went another way"
    assert [note.place for note in fault.notes] == [fault.left]


def test_lanes_that_synchronised_under_another_mask_are_reported():
    fault = outcome(MISSED, "masks_differ", "-O3")
    assert "they passed it with the mask 0x0000ffff" in fault.values
    assert fault.lanes == 0x0000FFFF


# ---- PTX --------------------------------------------------------------------------------------------------


def outside_of(what):
    return f"setp.lt.u32 %p1, %lane, 20; mov.u32 %r3, 0xFFFFF; mov.u32 %r2, 3;\n{what};\n" + STORE


@pytest.mark.parametrize("what", ["bar.warp.sync 0xFFFFF", "bar.warp.sync %r3"])
def test_a_lane_outside_the_mask_of_its_warp_barrier_is_a_fault(what):
    fault = fault_of(MemberMaskFault, outside_of(what))
    assert (fault.place.lane, fault.count, fault.place.line) == (20, 12, line_of(what, outside_of(what)))
    assert run(outside_of("@%p1 " + what)) == [3] * 32


def test_an_aligned_counted_barrier_needs_whole_warps():
    body = (
        """setp.lt.u32 %p1, %i, 8; mov.u32 %r2, 1; @%p1 bra OUT; {} 1, 64; bra END;
OUT: mov.u32 %r2, 2;
END: """
        + STORE
    )
    left = [2] * 8 + [1] * 56
    assert run(body.format("barrier.sync"), block=64) == left
    fault = fault_of(SkippedBarrier, body.format("bar.sync"), block=64)
    assert (fault.lanes, fault.place.warp) == (0xFF, 0)
    teams = body.replace("%i, 8", "%i, 32").replace("64;", "32;")  # whole warps may be absent
    assert run(teams.format("bar.sync"), block=64) == [2] * 32 + [1] * 32


def test_a_skipped_barrier_in_a_loop_is_reported_once():
    body = (
        """setp.lt.u32 %p1, %r1, 8; mov.u32 %r2, 0; @%p1 bra END;
LOOP: bar.sync 0; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 5; @%p2 bra LOOP;
END: """
        + STORE
    )
    device = simwarp.Device(checks="report")
    assert run(body, block=64, grid=3, device=device) == ([0] * 8 + [5] * 56) * 3
    (fault,) = device.faults
    assert type(fault) is SkippedBarrier


def test_a_barrier_skipped_by_a_predicate_is_reported():
    body = "setp.lt.u32 %p1, %i, 40; mov.u32 %r2, 1;\n@%p1 bar.sync 0;\n"
    fault = fault_of(SkippedBarrier, body + STORE, block=64)
    assert fault.left.line == fault.place.line == line_of("@%p1 bar.sync 0;", body)
    assert run(body + "ret;", block=64) == [NOTHING] * 64


def test_lanes_that_left_by_an_indexed_branch_are_reported():
    body = """shr.u32 %r3, %lane, 4; mov.u32 %r2, 1; WAYS: .branchtargets STAY, GO; brx.idx %r3, WAYS;
STAY: bar.warp.sync 0xFFFFFFFF; exit;
GO: {}
exit;"""
    assert run(body.format("")) == [NOTHING] * 32
    fault = fault_of(SkippedMember, body.format("st.global.u32 [%at], %r2;"))
    assert fault.lanes == 0xFFFF0000
    assert fault.left.text.startswith("shr.u32") or "brx.idx" in fault.left.text


def test_only_lanes_that_store_after_leaving_are_reported():
    """Lanes 16 and up leave; only those that then store count as having skipped the barrier."""
    body = """setp.ge.u32 %p1, %lane, 16; setp.ge.u32 %p2, %lane, 28; mov.u32 %r2, 1; @%p1 bra OUT;
bar.sync 0; exit;
OUT: @!%p2 bra END; st.global.u32 [%at], %r2;
END: ret;"""
    assert fault_of(SkippedBarrier, body).lanes == 0xF0000000
    assert run(body.replace("%lane, 28", "%lane, 32")) == [NOTHING] * 32


def test_lanes_that_leave_in_a_compact_copy_are_reported():
    """One of many warps stays in a loop, in which its upper half skips a vote."""
    body = """shr.u32 %r3, %i, 5; setp.eq.u32 %p1, %r3, 5; selp.u32 %r4, 60, 1, %p1; mov.u32 %r2, 0;
LOOP: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r4; @%p2 bra LOOP;
setp.ne.u32 %p3, %r3, 5; @%p3 bra END; setp.ge.u32 %p4, %lane, 16; @%p4 bra END;
vote.sync.ballot.b32 %r2, %p1, 0xFFFFFFFF;
END: """
    fault = fault_of(SkippedMember, body + STORE, block=1024)
    assert (fault.place.warp, fault.left.warp, fault.left.lane, fault.lanes) == (5, 5, 16, 0xFFFF0000)
    assert fault_of(EarlyExit, body + "ret;", block=1024, device=simwarp.Device(checks={"exits": "raise"}))
    assert run(body + "ret;", block=1024) == [NOTHING] * 1024


def test_returning_from_a_function_does_not_count_as_work_after_leaving():
    """A function is called before and after the barrier; only a store after it counts."""
    function = """.func (.reg .b32 r) f(.reg .b32 a) {
.reg .pred p; setp.gt.u32 p, a, 3; mov.u32 r, 1; @p bra END; mov.u32 r, 2;
END: ret; }"""
    body = """call (%r2), f, (%lane); setp.ge.u32 %p1, %lane, 16; @%p1 bra OUT;
bar.sync 0; exit;
OUT: call (%r2), f, (%lane);
{}
ret;"""
    assert run(body.format(""), before=function) == [NOTHING] * 32
    fault = fault_of(SkippedBarrier, body.format("st.global.u32 [%at], %r2;"), before=function)
    assert (fault.lanes, "bra OUT" in fault.left.text) == (0xFFFF0000, True)


def test_skipped_barriers_are_reported_from_worker_processes():
    body = "setp.ge.u32 %p1, %lane, 16; mov.u32 %r2, 1; @%p1 bra END; bar.sync 0;\nEND: " + STORE
    device = simwarp.Device(workers=2, chunk_lanes=32, checks="report")
    assert run(body, grid=3, device=device) == [1] * 96
    (fault,) = device.faults
    assert (type(fault), fault.count, fault.lanes) == (SkippedBarrier, 3, 0xFFFF0000)
    assert fault.left.lane == 16


def test_a_shuffle_from_a_lane_that_left_is_reported_as_inactive_source():
    body = """setp.ge.u32 %p1, %lane, 16; mov.u32 %r2, 1; @%p1 bra END;
shfl.sync.idx.b32 %r2, %i, 20, 31, 0xFFFFFFFF;
END: """
    fault_of(InactiveSource, body + STORE)


def test_missing_lanes_of_a_partial_warp_are_not_reported():
    body = "vote.sync.ballot.b32 %r2, %p1, 0xFFFFFFFF; bar.warp.sync 0xFFFFFFFF; bar.sync 0;\n"
    strict = simwarp.Device(checks={"exits": "raise"})
    assert run("setp.eq.u32 %p1, %lane, %lane; " + body + STORE, block=20, device=strict) == [0xFFFFF] * 20


def test_finished_blocks_are_not_reported():
    """Block b executes b + 1 iterations."""
    body = """mov.u32 %r3, %ctaid.x; mov.u32 %r2, 0;
LOOP: bar.sync 0; vote.sync.ballot.b32 %r4, %p1, 0xFFFFFFFF; add.u32 %r2, %r2, 1; setp.le.u32 %p2, %r2, %r3;
@%p2 bra LOOP;
"""
    strict = simwarp.Device(checks={"exits": "raise"})
    got = run("setp.eq.u32 %p1, %lane, %lane; " + body + STORE, block=40, grid=5, device=strict)
    assert got == [1 + b for b in range(5) for _ in range(40)]


# ---- member masks that fit one another --------------------------------------------------------------------


def agrees(words, present):
    """Whether each lane's mask contains itself and, of the present lanes, only those with an equal mask."""
    lanes = [i for i in range(32) if present[i]]
    return all(
        words[i] >> i & 1 and all(words[j] == words[i] for j in lanes if words[i] >> j & 1) for i in lanes
    )


def test_mask_agreement_equals_its_definition():
    random, seen = np.random.default_rng(5), []
    for k in range(400):
        present = random.random(32) < (1 if k % 3 else 0.4)
        group = random.integers(0, 1 + k % 5, 32)
        words = np.array([(group == group[i]) @ (1 << np.arange(32)) for i in range(32)], np.uint32)
        for lane in random.integers(0, 32, k % 2 * int(random.integers(0, 3))):
            words[lane] ^= np.uint32(1 << int(random.integers(32)))
        words &= mask_word(present)
        got = _is_partition(words[None], present[None])
        assert got == agrees([int(word) for word in words], present)
        seen.append(got)
    assert 40 < sum(seen) < 360


def test_lanes_are_listed_as_ranges():
    assert _numbers(np.isin(np.arange(32), [1, 4, 5, 6, 31])) == "1, 4-6, 31"
