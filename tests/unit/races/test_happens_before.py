"""Order by happens-before, not by time: barriers of clusters, scopes, waits, proxy fences."""

import pytest

import simwarp
from simwarp.faults import KernelFault
from support import small_kernels as small

SCHEDULES = [("lowest pc", 0), ("stack", 0), ("random", 1), ("random", 2), ("random", 3)]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: f"{one[0]}-{one[1]}")


def found(body, schedule, threads=64, grid=1, before="", given=(0,), **launch):
    """The names of the faults of a kernel, in the order found."""
    how, seed = schedule
    device = simwarp.Device(schedule=how, seed=seed, checks="report", instruction_budget=200_000)
    small.run(body + small.STORE, threads, grid, given, device, before=before, **launch)
    return [type(fault).__name__ for fault in device.faults]


# ---- barriers of a cluster, and scopes ---------------------------------------------------------------

TILES = ".shared .align 16 .b32 tile[64];\n.shared .align 8 .b64 bar;\n"
CLUSTER = """mov.u32 %r3, tile; shl.b32 %r5, %r1, 2; add.u32 %r3, %r3, %r5; add.u32 %r6, %i, 100;
mov.u32 %r4, %cluster_ctarank; xor.b32 %r5, %r4, 1; mapa.shared::cluster.u32 %r7, %r3, %r5;
mov.u32 %r8, bar; mapa.shared::cluster.u32 %r9, %r8, %r5; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;
"""
"""``%r3`` is the thread's word of its own tile, ``%r7`` that of the other block's; ``%r9`` its mbarrier."""
STORED, READ = "st.shared.u32 [%r3], %r6;\n", "ld.shared::cluster.u32 %r2, [%r7];\n"
RELAXED = "barrier.cluster.arrive.relaxed.aligned;\n"
WAIT = "barrier.cluster.wait.acquire.aligned;\n"
MEET = "barrier.cluster.arrive; barrier.cluster.wait;\n"
INIT = "@%p1 mbarrier.init.shared.b64 [%r8], 64;\n"
INIT_FENCE = "fence.mbarrier_init.release.cluster;\n"
REMOTE = "mbarrier.arrive{}.shared::cluster.b64 _, [%r9];\n"
TRY = "AGAIN: mbarrier.try_wait.parity{}.shared.b64 %p2, [%r8], 0; @!%p2 bra AGAIN;\n"


def in_clusters(body, schedule):
    return found(CLUSTER + body, schedule, grid=2, before=TILES, directives=".reqnctapercluster 2, 1, 1")


@every_schedule
@pytest.mark.parametrize("fence", ["", "fence.acq_rel.cta;\n", INIT_FENCE])
def test_a_relaxed_arrival_at_a_clusters_barrier_releases_nothing(fence, schedule):
    assert "Race" in in_clusters(STORED + fence + RELAXED + WAIT + READ + MEET, schedule)


@every_schedule
@pytest.mark.parametrize(
    "arrive", ["barrier.cluster.arrive;\n", "fence.acq_rel.cluster;\n" + RELAXED], ids=["release", "fence"]
)
def test_an_arrival_that_releases_and_a_fence_before_a_relaxed_one_order(arrive, schedule):
    assert in_clusters(STORED + arrive + WAIT + READ + MEET, schedule) == []


USED = REMOTE.format("") + TRY.format("")


@pytest.mark.at_most(2)
@every_schedule
def test_a_relaxed_arrival_publishes_the_barriers_that_a_fence_initialised(schedule):
    """Blocks that arrive relaxed have started, too: arrivals from the other block are not too early."""
    assert in_clusters(INIT + INIT_FENCE + RELAXED + WAIT + USED, schedule) == []
    assert "Race" in in_clusters(INIT + RELAXED + WAIT + USED, schedule)


@every_schedule
def test_a_write_before_a_relaxed_arrival_may_come_after_the_exit(schedule):
    assert "BlockLifetime" in in_clusters(
        MEET + "st.shared::cluster.u32 [%r7], %r6;\n" + RELAXED + WAIT, schedule
    )
    assert in_clusters(STORED + MEET + READ + RELAXED + WAIT, schedule) == []


HANDED = MEET + "st.shared::cluster.u32 [%r7], %r6;\n" + REMOTE + TRY + "ld.shared.u32 %r2, [%r3];\n" + MEET


@pytest.mark.at_most(3)
@every_schedule
@pytest.mark.parametrize(("arrive", "wait"), [("", ""), (".release.cluster", ".acquire.cluster")])
def test_remote_arrivals_order_between_blocks(arrive, wait, schedule):
    assert in_clusters(INIT + HANDED.replace("{}", arrive, 1).replace("{}", wait), schedule) == []


@pytest.mark.at_most(3)
@every_schedule
@pytest.mark.parametrize(
    ("arrive", "wait"),
    [
        (".release.cta", ".acquire.cluster"),
        (".release.cluster", ".acquire.cta"),
        (".release.cluster", ".relaxed.cluster"),
        (".relaxed.cluster", ".acquire.cluster"),
        (".expect_tx.release.cta", ""),
    ],
)
def test_arrivals_and_waits_of_a_block_order_nothing_between_blocks(arrive, wait, schedule):
    body = HANDED.replace("{}", arrive, 1).replace("{}", wait)
    if "expect" in arrive:
        body = body.replace("_, [%r9]", "_, [%r9], 0")
    assert "Race" in in_clusters(INIT + body, schedule)


@pytest.mark.at_most(2)
@every_schedule
def test_fences_of_the_cluster_order_around_relaxed_arrivals_and_waits(schedule):
    fence = "fence.acq_rel.cluster;\n"
    body = INIT + HANDED.replace(REMOTE, fence + REMOTE.format(".relaxed.cluster"))
    assert in_clusters(body.replace(TRY, TRY.format(".relaxed.cluster") + fence), schedule) == []


# ---- waits whose answer is not heeded ------------------------------------------------------------------

SHARED = ".shared .align 16 .b8 tile[512];\n.shared .align 8 .b64 bar;\n"
SETUP = """mov.u64 %rd1, bar; mov.u64 %rd3, tile; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd4, %rd3, %rd2;
setp.eq.u32 %p1, %r1, 0; xor.b32 %r4, %r1, 33; mul.wide.u32 %rd5, %r4, 4;
add.u64 %rd5, %rd3, %rd5; mov.u32 %r2, 0;
"""
"""``%rd4`` is the thread's word of the tile, ``%rd5`` that of a thread of the other warp."""
COPY = """@%p1 mbarrier.init.shared.b64 [%rd1], 1; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd6, [%rd1], 256;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%rd3], [%in], 256, [%rd1];
bar.sync 0;
"""
ARRIVALS = """@%p1 mbarrier.init.shared.b64 [%rd1], 64; bar.sync 0;
st.shared.u32 [%rd4], %r1; mbarrier.arrive.shared.b64 %rd6, [%rd1];
"""
TEST = "mbarrier.{}.parity.shared.b64 %p2, [%rd1], 0;\n"
ONCE, LOOP = TEST.format("try_wait"), "AGAIN: " + TEST.format("try_wait") + "@!%p2 bra AGAIN;\n"
DROPPED = "{.reg .pred q; " + ONCE.replace("%p2", "q") + "selp.b32 %r5, 1, 0, q;}\n"
LOADED = "ld.shared.u32 %r2, [%rd5];\n"
THRICE = """mov.u32 %r6, 0;
NEXT: mbarrier.test_wait.parity.shared.b64 %p2, [%rd1], 0; selp.b32 %r5, 1, 0, %p2;
setp.ne.b32 %p3, %r5, 0; @%p3 bra READY; add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 3; @%p4 bra NEXT; READY:
"""
UNROLLED = "".join(TEST.format("test_wait") + "@%p2 bra READY;\n" for _ in range(3)) + "READY:\n"
OTHER_WORK = """mov.u32 %r6, 0;
NEXT: mbarrier.test_wait.parity.shared.b64 %p2, [%rd1], 0;
@%p2 bra READY; add.u32 %r6, %r6, 1; st.global.u32 [%at], %r6; bra NEXT; READY:
"""
VOTED = "NEXT: " + TEST.format("try_wait") + "vote.sync.all.pred %p3, %p2, 0xffffffff; @!%p3 bra NEXT;\n"


def awaited(body, schedule):
    return found(SETUP + body + LOADED, schedule, before=SHARED, given=range(64))


@every_schedule
@pytest.mark.parametrize("wait", [ONCE, DROPPED], ids=["predicate", "word"])
def test_a_wait_whose_answer_is_not_used_orders_nothing(wait, schedule):
    assert "CopyInFlight" in awaited(COPY + wait, schedule)
    assert "Race" in awaited(ARRIVALS + wait, schedule)


@pytest.mark.parametrize("schedule", SCHEDULES[:2])
@pytest.mark.parametrize("wait", [THRICE, UNROLLED], ids=["loop", "unrolled"])
def test_a_fixed_number_of_waits_may_all_answer_no(wait, schedule):
    assert "CopyInFlight" in awaited(COPY + wait, schedule)
    assert "Race" in awaited(ARRIVALS + wait, schedule)


@every_schedule
@pytest.mark.parametrize("wait", [LOOP, DROPPED + LOOP, THRICE + LOOP, OTHER_WORK, VOTED])
def test_a_loop_that_ends_by_the_answer_orders(wait, schedule):
    assert awaited(COPY + wait, schedule) == []
    assert awaited(ARRIVALS + wait, schedule) == []


@every_schedule
def test_a_wait_whose_phase_is_known_to_be_complete_answers_yes(schedule):
    """All arrivals are before the barrier of the block: who passes it may count on the answer."""
    body = "bar.sync 0; mov.u32 %r6, 7;" + UNROLLED + "@!%p2 trap;\n"
    assert awaited(ARRIVALS + body, schedule) == []


def test_the_wait_that_orders_nothing_is_named():
    device = simwarp.Device()
    body = SETUP + COPY + ONCE + LOADED + small.STORE
    fault = small.fault_of(KernelFault, body, block=64, given=range(64), device=device, before=SHARED)
    assert "whose answer is not used" in str(fault)
    assert "ask in a loop" in fault.advice


# ---- proxy fences --------------------------------------------------------------------------------------

FILL = "st.shared.u32 [%rd4], %r1;\n"
FENCE, BAR = "fence.proxy.async.shared::cta;\n", "bar.sync 0;\n"
OF_WARP_0 = "setp.lt.u32 %p3, %r1, 32; @%p3 fence.proxy.async.shared::cta;\n"
OF_WARP_1 = OF_WARP_0.replace("@%p3", "@!%p3")
OF_LANES = "setp.lt.u32 %p3, %lane, 16; @%p3 fence.proxy.async.shared::cta;\n"
OF_LANE_0 = "setp.eq.u32 %p3, %lane, 0; @%p3 fence.proxy.async.shared::cta;\n"
BULK = """@!%p1 bra DONE; cp.async.bulk.global.shared::cta.bulk_group [%out], [%rd3], 256;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; DONE: ret;
"""


def stored(body, schedule):
    how, seed = schedule
    device = simwarp.Device(schedule=how, seed=seed, checks="report", instruction_budget=200_000)
    small.run(SETUP + body + BULK, 64, 1, device=device, before=SHARED)
    return {type(fault).__name__ for fault in device.faults}


@every_schedule
@pytest.mark.parametrize(
    "body",
    [
        FILL + OF_WARP_0 + BAR,
        FENCE + FILL + BAR,
        FILL + OF_LANES + BAR,
        FILL + BAR + OF_WARP_1,
        FILL + OF_WARP_1 + BAR,
    ],
    ids=["one warp", "too early", "half of each warp", "not behind", "the other warp"],
)
def test_a_proxy_fence_lies_between_write_and_copy_in_happens_before(body, schedule):
    assert stored(body, schedule) == {"MissingProxyFence"}


@every_schedule
@pytest.mark.parametrize(
    "body",
    [
        FILL + FENCE + BAR,
        FILL + BAR + "@%p1 fence.proxy.async.shared::cta;\n",
        FILL + BAR + OF_WARP_1 + BAR,
        FILL + "bar.warp.sync -1;\n" + OF_LANE_0 + BAR,
        FILL + FENCE + "bar.sync 1, 64;\n" + FENCE,
    ],
    ids=["writers", "issuer", "a third thread", "one lane for its warp", "counted barrier"],
)
def test_a_proxy_fence_by_any_thread_between_the_two_is_enough(body, schedule):
    assert stored(body, schedule) == set()


# ---- thread counts of barriers -------------------------------------------------------------------------

ROLES = "setp.lt.u32 %p3, %r1, 32; mov.u32 %r2, 1; @%p3 bra FIRST;\n{}bra END;\nFIRST: {}END: "
COUNTS = {
    "two waits": ROLES.format("bar.sync 2, 64;\n", "bar.sync 2, 96;\n"),
    "arrivals and waits": ROLES.format("bar.arrive 1, 64;\n", "bar.sync 1, 32;\n"),
    "waits and arrivals": ROLES.format("bar.sync 1, 32;\n", "bar.arrive 1, 64;\n"),
    "a reduction": ROLES.format("bar.red.popc.u32 %r2, 1, 32, %p3;\n", "bar.sync 1, 64;\n"),
    "all and some": ROLES.format("bar.sync 1;\n", "bar.sync 1, 32;\n"),
    "in a register": ROLES.format("mov.u32 %r3, 1; bar.sync %r3, 32;\n", "bar.sync 1, 64;\n"),
    "one instruction": "mov.u32 %r2, 1; and.b32 %r3, %r1, 32; add.u32 %r3, %r3, 32; bar.sync 1, %r3;\n",
}
SAME_COUNTS = {
    "pair": ROLES.format("bar.arrive 1, 64;\n", "bar.sync 1, 64;\n"),
    "reused": ROLES.format("bar.sync 1, 32;\n", "") + "bar.sync 0; bar.sync 1, 64; bar.sync 0;\n"
    + ROLES.format("bar.sync 1, 32;\n", "").replace("FIRST", "THEN").replace("END", "LAST"),
    "all": ROLES.format("bar.sync 1;\n", "bar.sync 1, 64;\n"),
    "two barriers": ROLES.format("bar.sync 1, 32;\n", "bar.sync 2, 32;\n"),
}  # fmt: skip


@every_schedule
def test_counts_of_a_barrier_that_differ_are_named_whoever_comes_first(schedule):
    for name, body in COUNTS.items():
        assert "BarrierFault" in found(body, schedule), name


@every_schedule
def test_a_barrier_may_be_used_again_with_another_count_behind_a_meeting(schedule):
    for name, body in SAME_COUNTS.items():
        assert found(body, schedule) == [], name
