"""Accesses to the shared memory of another block of the cluster, too early or too late."""

import pytest

import simwarp
from simwarp.faults import BlockLifetime
from support import small_kernels as small

SCHEDULES = ["lowest pc", "stack", "random"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)

BEFORE = ".shared .align 16 .b32 tile[64];\n.shared .align 8 .b64 bar;\n"
SETUP = """mov.u32 %r3, tile; shl.b32 %r5, %r1, 2; add.u32 %r3, %r3, %r5; add.u32 %r6, %i, 100;
mov.u32 %r4, %cluster_ctarank; xor.b32 %r5, %r4, 1; mapa.shared::cluster.u32 %r7, %r3, %r5;
mov.u32 %r8, bar; mapa.shared::cluster.u32 %r9, %r8, %r5; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;
"""
"""``%r3`` is the thread's word of its own tile, ``%r7`` that of the other block's; ``%r9`` its mbarrier."""
OWN = "st.shared.u32 [%r3], %r6;\n"
MEET = "barrier.cluster.arrive; barrier.cluster.wait;\n"
INIT = "@%p1 mbarrier.init.shared.b64 [%r8], 64; bar.sync 0;\n"
ARRIVE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];\n"
WAIT = "AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r8], 0; @!%p2 bra AGAIN;\n"
OTHERS = [100 + (i ^ 64) for i in range(128)]
VISITS = {
    "ld": "ld.shared::cluster.u32 %r2, [%r7];\n",
    "st": "st.shared::cluster.u32 [%r7], %r6;\n",
    "atom": "atom.relaxed.cluster.shared::cluster.add.u32 %r2, [%r7], %r6;\n",
}
every_visit = pytest.mark.parametrize("visit", VISITS.values(), ids=VISITS)


def run(body, schedule="lowest pc", checks="raise"):
    """The word of each thread of two blocks of 64 threads, and the faults."""
    device = simwarp.Device(schedule=schedule, checks=checks, instruction_budget=100_000)
    directives = ".reqnctapercluster 2, 1, 1"
    words = small.run(SETUP + body + small.STORE, 64, 2, device=device, before=BEFORE, directives=directives)
    return words, device.faults


def fault_of(body, schedule):
    with pytest.raises(BlockLifetime) as caught:
        run(body, schedule)
    return caught.value


@every_schedule
def test_blocks_that_meet_before_and_after_may_visit_each_other(schedule):
    for visit in VISITS.values():
        run(OWN + MEET + visit + MEET, schedule)
    assert run(OWN + MEET + VISITS["ld"] + MEET, schedule) == (OTHERS, [])


@every_schedule
@every_visit
def test_a_visit_before_the_blocks_meet_may_be_too_early(visit, schedule):
    fault = fault_of("bar.sync 0;\n" + visit + MEET, schedule)
    assert "may not have started" in fault.what
    assert "shared::cluster" in fault.place.text
    assert (fault.space, fault.width) == ("shared", 4)


@every_schedule
@every_visit
def test_a_visit_after_the_blocks_met_may_be_too_late(visit, schedule):
    fault = fault_of(OWN + MEET + visit, schedule)
    assert "may have exited" in fault.what
    assert "shared::cluster" in fault.place.text


@every_schedule
def test_a_visit_between_arrival_and_wait_is_before_nothing(schedule):
    body = OWN + MEET + "barrier.cluster.arrive;\n" + VISITS["ld"] + "barrier.cluster.wait;\n"
    assert "may have exited" in fault_of(body, schedule).what


@every_schedule
def test_a_visit_to_a_block_that_has_exited_is_named(schedule):
    body = OWN + MEET + "setp.eq.u32 %p2, %r4, 1; @%p2 bra GONE;\nbar.sync 0;\n" + VISITS["ld"] + "GONE: \n"
    assert "rank 1" in fault_of(body, schedule).values


@every_schedule
def test_an_arrival_that_its_owner_waits_for_comes_in_time(schedule):
    assert run(INIT + MEET + ARRIVE + WAIT, schedule)[1] == []


@every_schedule
def test_an_arrival_that_nobody_waits_for_may_be_too_late(schedule):
    assert "mbarrier.arrive" in fault_of(INIT + MEET + ARRIVE, schedule).place.text


@every_schedule
def test_one_warp_may_meet_the_other_block_for_all(schedule):
    """The other warp exits behind a barrier of the block."""
    body = OWN + MEET + VISITS["ld"] + "bar.sync 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra STORED;\n" + MEET
    assert run(body + "STORED: \n", schedule) == (OTHERS, [])


def test_lifetimes_belong_to_the_check_of_freed_memory():
    late = OWN + MEET + VISITS["ld"]
    assert run(late, checks={"freed": "off"}) == (OTHERS, [])
    words, faults = run(late, checks="report")
    assert (words, {type(fault) for fault in faults}) == (OTHERS, {BlockLifetime})
