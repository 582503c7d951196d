"""Barriers in shared memory: phases, transaction bytes, order between threads, and faults."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import BarrierFault, Livelock, Misaligned, NeedsIndependentProgress, Race
from support import small_kernels as small

SCHEDULES = ["lowest pc", "stack", "random"]
BEFORE = ".shared .align 8 .b64 bar[4];\n.shared .align 4 .u32 cells[128];"
SETUP = """mov.u64 %rd1, bar; mov.u64 %rd3, cells; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd3, %rd2;
xor.b32 %r4, %r1, 33; mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd3, %rd4; setp.eq.u32 %p1, %r1, 0;
"""
"""``%rd2`` is the thread's cell, ``%rd4`` that of a thread of another warp; ``%p1`` holds in thread 0."""
ARRIVE = "mbarrier.arrive.shared.b64 %rd5, [%rd1];\n"
TEST = "mbarrier.test_wait.shared.b64 %p2, [%rd1], %rd5;\n"
WAIT = "AGAIN: " + TEST + "@!%p2 bra AGAIN;\n"
STORED = "st.shared.u32 [%rd2], %r1;\n"
LOADED = "ld.shared.u32 %r2, [%rd4];\n"

every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def made(count):
    return f"@%p1 mbarrier.init.shared.b64 [%rd1], {count};\nbar.sync 0;\n"


def run(body, threads=128, schedule="lowest pc", grid=1, **options):
    device = simwarp.Device(schedule=schedule, instruction_budget=500_000)
    return small.run(SETUP + body + small.STORE, threads, grid, device=device, before=BEFORE, **options)


def fault_of(kind, body, threads=128, schedule="lowest pc"):
    device = simwarp.Device(schedule=schedule, instruction_budget=500_000)
    return small.fault_of(kind, SETUP + body + small.STORE, block=threads, device=device, before=BEFORE)


def of_one_thread(body):
    """The result of thread 0, the only one that uses the barrier."""
    return run("@!%p1 mov.u32 %r2, 0; @!%p1 bra END;\n" + body + "END:\n", threads=32)[0]


@every_schedule
def test_a_wait_orders_what_was_written_before_the_arrivals(schedule):
    body = made(128) + STORED + ARRIVE + WAIT + LOADED
    assert run(body, schedule=schedule) == [t ^ 33 for t in range(128)]


@every_schedule
@pytest.mark.parametrize("relaxed", ["arrive", "test_wait"])
def test_a_relaxed_arrival_or_wait_orders_nothing(schedule, relaxed):
    body = made(128) + STORED + ARRIVE + WAIT + LOADED
    fault_of(Race, body.replace(f".{relaxed}.", f".{relaxed}.relaxed.cta."), schedule=schedule)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("schedule", ["lowest pc", "stack", pytest.param("random", marks=pytest.mark.slow)])
def test_one_lane_that_waits_in_vain_says_what_its_barrier_lacks(schedule):
    """The other lanes of its warp are behind the loop, and could be the ones to arrive."""
    body = made(2) + "@!%p1 bra BEHIND;\n" + ARRIVE + WAIT + "BEHIND: bar.sync 0;\n"
    kind = NeedsIndependentProgress if schedule == "stack" else Livelock
    assert "1 of 2 arrivals" in fault_of(kind, body, 32, schedule).values


@every_schedule
def test_arriving_without_waiting_orders_nothing(schedule):
    fault_of(Race, made(128) + STORED + ARRIVE + LOADED, schedule=schedule)


@every_schedule
def test_a_ring_of_phases_alternates_by_parity(schedule):
    """In each of six phases every thread stores, waits, and adds the cell of another warp."""
    body = (
        made(128)
        + """mov.u32 %r2, 0; mov.u32 %r5, 0;
LOOP: add.u32 %r6, %r1, %r5; st.shared.u32 [%rd2], %r6;
mbarrier.arrive.shared.b64 %rd5, [%rd1]; and.b32 %r7, %r5, 1;
FULL: mbarrier.try_wait.parity.shared.b64 %p2, [%rd1], %r7; @!%p2 bra FULL;
ld.shared.u32 %r8, [%rd4]; add.u32 %r2, %r2, %r8; bar.sync 0;
add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 6; @%p3 bra LOOP;
"""
    )
    assert run(body, schedule=schedule) == [6 * (t ^ 33) + 15 for t in range(128)]


def test_a_phase_waits_for_its_bytes():
    """Two of three conditions are met at each test; the last one completes the phase."""
    test = """mbarrier.test_wait.parity.shared.b64 %p2, [%rd1], 0;
selp.u32 %r3, 1, 0, %p2; add.u32 %r2, %r2, %r3;
"""
    body = f"""mbarrier.init.shared.b64 [%rd1], 2; mov.u32 %r2, 0;
mbarrier.arrive.expect_tx.shared.b64 %rd5, [%rd1], 96;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%rd1], 64;
{test}{ARRIVE}{test}mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%rd1], 32;
{test}"""
    assert of_one_thread(body) == 1


def test_bytes_may_arrive_before_they_are_expected():
    body = """mbarrier.init.shared.b64 [%rd1], 1;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%rd1], 64;
mbarrier.arrive.expect_tx.shared.b64 %rd5, [%rd1], 64;
mbarrier.test_wait.shared.b64 %p2, [%rd1], %rd5; selp.u32 %r2, 1, 0, %p2;
"""
    assert of_one_thread(body) == 1


def test_arrivals_beyond_one_phase_count_for_the_next():
    """48 lanes arrive at a barrier of 32 with one instruction: the second phase lacks 16."""
    body = (
        made(32)
        + """setp.lt.u32 %p3, %r1, 48; @%p3 mbarrier.arrive.shared.b64 %rd5, [%rd1]; bar.sync 0;
mbarrier.arrive.shared.b64 %rd5, [%rd1]; mbarrier.pending_count.b64 %r2, %rd5;
"""
    )
    got = run(body, threads=64)
    assert got[:16] == [16] * 16  # a warp's lanes get the state before the first of them


def test_dropped_arrivals_are_expected_no_more():
    body = f"""mbarrier.init.shared.b64 [%rd1], 5;
mbarrier.arrive_drop.shared.b64 %rd5, [%rd1]; mbarrier.arrive_drop.shared.b64 %rd5, [%rd1], 2;
mbarrier.arrive.shared.b64 %rd5, [%rd1], 2; {ARRIVE} mbarrier.pending_count.b64 %r2, %rd5;
"""
    assert of_one_thread(body) == 2


@every_schedule
def test_blocks_of_a_cluster_arrive_remotely(schedule):
    """Both blocks arrive at the barrier of block 0, which reads block 1's cell behind it."""
    body = """@%p1 mbarrier.init.shared.b64 [%rd1], 2;
mov.u32 %r3, %cluster_ctarank; add.u32 %r5, %r3, 70; @%p1 st.shared.u32 [%rd3], %r5;
barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %r6, 0; mapa.shared::cluster.u64 %rd6, %rd1, %r6; mov.u32 %r6, 1;
 mapa.shared::cluster.u64 %rd7, %rd3, %r6;
@%p1 st.shared.u32 [%rd3], %r5;
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%rd6];
mov.u32 %r2, 0; setp.eq.u32 %p3, %r3, 0; and.pred %p3, %p3, %p1; @!%p3 bra DONE;
AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%rd1], 0; @!%p2 bra AGAIN;
ld.shared::cluster.u32 %r2, [%rd7];
DONE: barrier.cluster.arrive; barrier.cluster.wait;
"""
    assert (
        run(body, threads=32, grid=2, schedule=schedule, directives=".reqnctapercluster 2, 1, 1")
        == [71] + [0] * 63
    )


def test_a_wait_that_never_ends_says_what_its_barrier_lacks():
    fault = fault_of(Livelock, made(129) + ARRIVE + WAIT)
    assert "mbarrier at byte 0 of bar in shared memory: phase 0, 1 of 129 arrivals" in fault.values
    assert "mbarrier.test_wait" in fault.place.text


def test_a_barrier_used_without_a_barrier_behind_its_initialisation_is_a_race():
    fault_of(Race, made(128).replace("bar.sync 0;", "") + ARRIVE)


FAULTS = {
    "memory without a barrier": (BarrierFault, "mbarrier.arrive.shared.b64 %rd5, [%rd1+8];"),
    "after inval": (BarrierFault, "bar.sync 0; @%p1 mbarrier.inval.shared.b64 [%rd1];\nbar.sync 0;" + ARRIVE),
    "overwritten": (BarrierFault, "bar.sync 0; @%p1 st.shared.u32 [%rd1], %r1;\nbar.sync 0;" + ARRIVE),
    "made twice": (BarrierFault, "@%p1 mbarrier.init.shared.b64 [%rd1], 3;"),
    "no arrivals": (BarrierFault, "@%p1 mbarrier.init.shared.b64 [%rd1+8], 0;"),
    "too many arrivals": (BarrierFault, "@%p1 mbarrier.arrive.shared.b64 %rd5, [%rd1], 130;"),
    "too many bytes": (BarrierFault, "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%rd1], 1048576;"),
    "noComplete": (BarrierFault, "@%p1 mbarrier.arrive.noComplete.shared.b64 %rd5, [%rd1], 128;"),
    "parity 2": (BarrierFault, "mbarrier.test_wait.parity.shared.b64 %p2, [%rd1], 2;"),
    "global memory": (BarrierFault, "mbarrier.arrive.b64 %rd5, [%out];"),
    "misaligned": (Misaligned, "@%p1 mbarrier.init.shared.b64 [%rd1+12], 1;"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_misuse_of_a_barrier_is_a_fault(name):
    kind, line = FAULTS[name]
    fault = fault_of(kind, made(128) + line + "\nmov.u32 %r2, 1;\n")
    assert fault.check in ("barriers", "alignment")
    assert "mbarrier" in fault.place.text


LIBRARY = """
#include <cuda/barrier>
extern "C" __global__ void sums(const int* x, int* y, int n)
{
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    __shared__ int tile[64];
    if (threadIdx.x == 0) init(&full, 64);
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < n; i++) {
        tile[threadIdx.x] = x[i * 64 + threadIdx.x];
#ifdef FIXED
        full.arrive_and_wait();
#else
        (void)full.arrive();
#endif
        sum += tile[(threadIdx.x + 33) % 64];
        full.arrive_and_wait();
    }
    y[threadIdx.x] = sum;
}
"""


@pytest.mark.gate
@pytest.mark.at_most(1)
@pytest.mark.parametrize("arch", [(8, 0), (9, 0)])
def test_barriers_of_cuda_c_order_what_they_should(arch):
    x = np.arange(5 * 64, dtype=np.int32)
    for schedule in SCHEDULES:
        device = simwarp.Device(schedule=schedule)
        given, y = device.upload(x), device.allocate(64, np.int32)
        wrong, right = (compile(LIBRARY, "sums.cu", fixed, arch).text for fixed in ({}, {"FIXED": ""}))
        device.load(right).kernel("sums")(1, 64, given, y, 5)
        assert (y.download() == np.roll(x.reshape(5, 64).sum(axis=0), -33)).all()
        with pytest.raises(Race):
            device.load(wrong).kernel("sums")(1, 64, given, y, 5)
