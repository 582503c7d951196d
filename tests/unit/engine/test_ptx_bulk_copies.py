"""Bulk copies and reductions of the asynchronous proxy: their moments, waits, and the faults around them."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import (
    BarrierFault,
    CopyInFlight,
    KernelFault,
    Livelock,
    Misaligned,
    MissingProxyFence,
    NotClustered,
    OutOfBounds,
    UninitialisedRead,
)
from support import small_kernels as small

SCHEDULES = ["lowest pc", "stack", "random"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)

BEFORE = """.shared .align 16 .b8 tile[2048];
.shared .align 8 .b64 bar[4];
.shared .align 16 .b8 other[2048];
"""
SETUP = """mov.u64 %rd1, bar; mov.u64 %rd3, tile; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd4, %rd3, %rd2;
mov.u64 %rd6, other; add.u64 %rd7, %rd6, %rd2; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;
"""
"""``%rd4`` is the thread's word of the tile, ``%rd7`` that of the other array; ``%p1`` holds in thread 0."""
INIT = "@%p1 mbarrier.init.shared.b64 [%rd1], 1; bar.sync 0;\n"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd5, [%rd1], {bytes};\n"
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%rd3], [%in], {bytes}, [%rd1];\n"
WAIT = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%rd1], {parity}; @!%p2 bra AGAIN;\n"
READ = "ld.shared.u32 %r2, [%rd4];\n"
FENCE = "fence.proxy.async.shared::cta;\n"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%out], [%rd3], {bytes};\n"
COMMIT = "cp.async.bulk.commit_group;\n"
GIVEN = (np.arange(512, dtype=np.uint32) * 2654435761) ^ 77


def run(body, threads=128, schedule="lowest pc", grid=1, store=small.STORE, given=GIVEN, **options):
    device = simwarp.Device(schedule=schedule, instruction_budget=200_000)
    return small.run(SETUP + body + store, threads, grid, given, device, before=BEFORE, **options)


def fault_of(kind, body, schedule="lowest pc", threads=128, store=small.STORE, **options):
    device = simwarp.Device(schedule=schedule, instruction_budget=200_000)
    return small.fault_of(
        kind, SETUP + body + store, block=threads, given=GIVEN, device=device, before=BEFORE, **options
    )


WAIT_0, LOAD_512 = WAIT.format(parity=0), LOAD.format(bytes=512)


def loaded(expected=512, wait=WAIT_0, load=LOAD_512):
    return INIT + EXPECT.format(bytes=expected) + f"@%p1 {load}" + wait + READ


# ---- loads ------------------------------------------------------------------------------------------


@every_schedule
def test_a_bulk_copy_has_happened_when_its_phase_is_complete(schedule):
    assert run(loaded(), schedule=schedule) == GIVEN[:128].tolist()


@every_schedule
def test_as_many_units_as_the_block_has_threads_are_those_of_the_issuing_thread(schedule):
    """128 units of 16 bytes; what the same thread wrote there before needs no barrier."""
    stored = "@%p1 st.shared.u32 [%rd3+2044], 77; @%p1 fence.proxy.async.shared::cta;\n"
    body = loaded(2048, load=LOAD.format(bytes=2048)).replace(INIT, INIT + stored)
    assert run(body, schedule=schedule) == GIVEN[:128].tolist()


@every_schedule
@pytest.mark.parametrize("wait", ["", "bar.sync 0;\n"])
def test_a_read_without_a_wait_names_the_copy(schedule, wait):
    fault = fault_of(CopyInFlight, loaded(wait=wait), schedule)
    assert "cp.async.bulk" in fault.copy.text
    assert "ld.shared" in fault.place.text
    assert "the warp has not waited" in fault.values


@every_schedule
def test_a_wait_for_the_wrong_parity_passes_a_phase_early(schedule):
    """Parity 1 is that of the phase before the first one, which counts as complete; or it waits for ever."""
    fault = fault_of((CopyInFlight, Livelock), loaded(wait=WAIT.format(parity=1)), schedule)
    assert isinstance(fault, CopyInFlight) or schedule != "lowest pc"
    assert ("found phase -1 complete" if isinstance(fault, CopyInFlight) else "phase 1 is waited for") in str(
        fault
    )


@every_schedule
def test_one_thread_may_wait_for_the_others_before_a_barrier(schedule):
    wait = f"@!%p1 bra BEHIND;\n{WAIT.format(parity=0)}BEHIND: bar.sync 0;\n"
    assert run(loaded(wait=wait), schedule=schedule) == GIVEN[:128].tolist()


@every_schedule
def test_two_phases_of_a_ring_deliver_two_copies(schedule):
    """The second copy overwrites the first one after all have read it."""
    second = LOAD.format(bytes=512).replace("[%in]", "[%in+512]")
    body = loaded() + "mov.u32 %r5, %r2; bar.sync 0;\n" + EXPECT.format(bytes=512) + f"@%p1 {second}"
    body += WAIT.format(parity=1).replace("AGAIN", "LATER") + READ + "xor.b32 %r2, %r2, %r5;\n"
    assert run(body, schedule=schedule) == (GIVEN[:128] ^ GIVEN[128:256]).tolist()


@every_schedule
def test_a_copy_that_overwrites_what_others_may_still_read_is_named(schedule):
    """The second copy is issued without a barrier behind the reads."""
    second = LOAD.format(bytes=512).replace("[%in]", "[%in+512]")
    body = loaded() + "mov.u32 %r5, %r2;\n" + EXPECT.format(bytes=512) + f"@%p1 {second}"
    body += WAIT.format(parity=1).replace("AGAIN", "LATER") + READ
    device = simwarp.Device(schedule=schedule, instruction_budget=200_000, checks="report")
    small.run(SETUP + body + small.STORE, 128, given=GIVEN, device=device, before=BEFORE)
    assert {fault.check for fault in device.faults} & {"races", "copies"}


@every_schedule
def test_fewer_expected_bytes_complete_the_phase_early(schedule):
    load = LOAD.format(bytes=256)
    more = load.replace("[%rd3]", "[%rd3+256]").replace("[%in]", "[%in+256]")
    body = INIT + EXPECT.format(bytes=256) + f"@%p1 {load}@%p1 {more}" + WAIT.format(parity=0) + READ
    kinds = BarrierFault if schedule == "lowest pc" else (BarrierFault, CopyInFlight)
    with pytest.raises(kinds) as caught:
        run(body, schedule=schedule)
    if isinstance(caught.value, BarrierFault):
        assert "256 bytes arrived as expected, 256 bytes in flight" in caught.value.values


@pytest.mark.at_most(1)
@pytest.mark.parametrize("schedule", ["lowest pc", "stack"])
def test_more_expected_bytes_never_complete_the_phase(schedule):
    fault = fault_of(Livelock, loaded(expected=528), schedule)
    assert "16 bytes pending, 512 bytes arrived" in fault.values


@every_schedule
def test_bytes_may_arrive_before_they_are_expected(schedule):
    body = INIT + f"@%p1 {LOAD.format(bytes=512)}" + EXPECT.format(bytes=512) + WAIT.format(parity=0) + READ
    assert run(body, schedule=schedule) == GIVEN[:128].tolist()


@pytest.mark.parametrize("offset", [4, 8])
def test_bulk_copies_are_aligned_to_16_bytes(offset):
    fault_of(Misaligned, loaded(load=LOAD.format(bytes=496).replace("[%in]", f"[%in+{offset}]")))
    fault_of(Misaligned, loaded(load=LOAD.format(bytes=496).replace("[%rd3]", f"[%rd3+{offset}]")))


def test_the_size_of_a_bulk_copy_is_a_multiple_of_16_bytes():
    assert fault_of(Misaligned, loaded(load=LOAD.format(bytes=500))).width == 16


def test_a_copy_that_leaves_its_shared_variable_is_out_of_bounds():
    fault = fault_of(OutOfBounds, loaded(load=LOAD.format(bytes=2064), expected=2064))
    assert fault.allocation == "tile"


def test_a_copy_from_beyond_an_array_is_out_of_bounds():
    fault = fault_of(OutOfBounds, loaded(load=LOAD.format(bytes=512).replace("[%in]", "[%in+1600]")))
    assert fault.allocation == "in"


def test_a_copy_needs_an_mbarrier():
    body = f"@%p1 {LOAD.format(bytes=512)}"
    assert "without an mbarrier" in fault_of(BarrierFault, body).what


@every_schedule
def test_an_exit_before_the_copy_has_ended_is_named(schedule):
    body = INIT + EXPECT.format(bytes=512) + f"@%p1 {LOAD.format(bytes=512)}"
    assert "blocks exit" in fault_of(CopyInFlight, body, schedule).what


def test_lanes_of_a_warp_may_each_issue_a_copy():
    """32 lanes copy 16 bytes each, from the last to the first."""
    body = (
        INIT
        + EXPECT.format(bytes=512)
        + """setp.lt.u32 %p3, %r1, 32; shl.b32 %r3, %r1, 4; cvt.u64.u32 %rd5, %r3; add.u64 %rd8, %rd3, %rd5;
sub.u32 %r3, 496, %r3; cvt.u64.u32 %rd5, %r3; add.u64 %rd5, %in, %rd5;
@%p3 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%rd8], [%rd5], 16, [%rd1];
"""
        + WAIT.format(parity=0)
        + READ
    )
    assert run(body) == GIVEN[:128].reshape(32, 4)[::-1].reshape(-1).tolist()


# ---- stores -----------------------------------------------------------------------------------------

FILL = "mad.lo.u32 %r3, %r1, 3, 7; st.shared.u32 [%rd4], %r3;\n"
STORED = FILL + FENCE + "bar.sync 0;\n"
GROUP = f"@%p1 {STORE.format(bytes=512)}@%p1 {COMMIT}"
DONE = "@%p1 cp.async.bulk.wait_group.read 0;\n"
EXPECTED = [3 * t + 7 for t in range(128)]


@every_schedule
@pytest.mark.parametrize("wait", [DONE, DONE.replace(".read", "")])
def test_a_bulk_store_writes_global_memory(schedule, wait):
    assert run(STORED + GROUP + wait, schedule=schedule, store="ret;") == EXPECTED


@every_schedule
def test_lanes_that_store_the_same_bits_to_one_place_do_not_race(schedule):
    every = f"{STORE.format(bytes=512)}{COMMIT}cp.async.bulk.wait_group.read 0;\n"
    assert run(STORED + every, schedule=schedule, store="ret;") == EXPECTED
    apart = STORE.format(bytes=256).replace("[%rd3]", "[%rd8]")
    by_lane = "shl.b32 %r3, %r1, 4; and.b32 %r3, %r3, 16; cvt.u64.u32 %rd5, %r3; add.u64 %rd8, %rd3, %rd5;\n"
    fault = fault_of(CopyInFlight, STORED + by_lane + apart + COMMIT + DONE[4:], schedule, store="ret;")
    assert (fault.place.lane, fault.copy.lane) == (1, 0)


@every_schedule
def test_a_store_of_what_was_written_needs_a_proxy_fence(schedule):
    fault = fault_of(MissingProxyFence, FILL + "bar.sync 0;\n" + GROUP + DONE, schedule, store="ret;")
    assert "st.shared" in fault.other.text
    assert "cp.async.bulk" in fault.place.text


def test_the_issuing_thread_may_execute_the_proxy_fence():
    body = FILL + "bar.sync 0;\n" + f"@%p1 {FENCE}" + GROUP + DONE
    assert run(body, store="ret;") == EXPECTED


COPIED = (
    INIT.replace(", 1;", ", 128;")
    + "add.u64 %rd5, %in, %rd2; cp.async.ca.shared.global [%rd4], [%rd5], 4;\n"
    + "cp.async.mbarrier.arrive.noinc.shared.b64 [%rd1];\n"
    + WAIT_0
)
"""Each thread copies its word by cp.async, and all wait for all."""


@every_schedule
def test_a_store_of_what_cp_async_copied_needs_a_proxy_fence(schedule):
    assert (
        run(COPIED + f"@%p1 {FENCE}" + GROUP + DONE, schedule=schedule, store="ret;") == GIVEN[:128].tolist()
    )
    fault = fault_of(MissingProxyFence, COPIED + GROUP + DONE, schedule, store="ret;")
    assert "cp.async.bulk" in fault.place.text


def test_a_fence_before_the_write_is_not_enough():
    fault_of(MissingProxyFence, FENCE + FILL + "bar.sync 0;\n" + GROUP + DONE, store="ret;")


@every_schedule
@pytest.mark.parametrize("wait", ["", "bar.sync 0;\n"])
def test_overwriting_what_a_store_still_reads_is_named(schedule, wait):
    body = STORED + GROUP + wait + "st.shared.u32 [%rd4], %r1;\n" + DONE
    fault = fault_of(CopyInFlight, body, schedule, store="ret;")
    assert "may read" in fault.what


@every_schedule
def test_the_source_may_be_overwritten_after_the_wait_and_a_barrier(schedule):
    body = STORED + GROUP + DONE + "bar.sync 0; st.shared.u32 [%rd4], %r1;\n"
    assert run(body, schedule=schedule, store="ret;") == EXPECTED


@every_schedule
def test_the_target_may_not_be_read_after_a_wait_for_the_reads(schedule):
    read = "@%p1 ld.global.u32 %r2, [%out];\n"
    fault_of(CopyInFlight, STORED + GROUP + DONE + read, schedule, store="ret;")
    assert run(STORED + GROUP + DONE.replace(".read", "") + read, schedule=schedule, store="ret;") == EXPECTED


@every_schedule
def test_an_exit_before_the_store_has_read_is_named(schedule):
    fault_of(CopyInFlight, STORED + GROUP, schedule, store="ret;")


@every_schedule
def test_a_wait_leaves_the_latest_groups_pending(schedule):
    """Two groups store two halves; after a wait for all but one, only the first half may be overwritten."""
    half = STORE.format(bytes=256)
    second = half.replace("[%out]", "[%out+256]").replace("[%rd3]", "[%rd3+256]")
    groups = f"@%p1 {half}@%p1 {COMMIT}@%p1 {second}@%p1 {COMMIT}@%p1 cp.async.bulk.wait_group.read 1;\n"
    overwrite = "bar.sync 0; setp.{}.u32 %p3, %r1, 64; @%p3 st.shared.u32 [%rd4], %r1;\n"
    assert run(STORED + groups + overwrite.format("lt") + DONE, schedule=schedule, store="ret;") == EXPECTED
    fault_of(CopyInFlight, STORED + groups + overwrite.format("ge") + DONE, schedule, store="ret;")


# ---- reductions -------------------------------------------------------------------------------------

REDUCTIONS = {
    "add.u32": lambda old, new: old + new,
    "add.s32": lambda old, new: old + new,
    "min.u32": np.minimum,
    "max.s32": lambda old, new: np.maximum(old.view(np.int32), new.view(np.int32)).view(np.uint32),
    "inc.u32": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec.u32": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    "and.b32": np.bitwise_and,
    "or.b32": np.bitwise_or,
    "xor.b32": np.bitwise_xor,
    "add.u64": lambda old, new: (old.view(np.uint64) + new.view(np.uint64)).view(np.uint32),
    "max.s64": lambda old, new: np.maximum(old.view(np.int64), new.view(np.int64)).view(np.uint32),
    "xor.b64": np.bitwise_xor,
}


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_a_bulk_reduction_combines_with_global_memory(operation):
    old = (np.arange(128, dtype=np.uint32) * 40503) ^ 0x9E3779B9
    fill = "ld.global.u32 %r3, [%at]; st.shared.u32 [%rd4], %r3;\n".replace("%at", "%rd8")
    body = "add.u64 %rd8, %in, %rd2;" + fill + FENCE + "bar.sync 0;\n"
    store = f"@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%out], [%rd3], 512;\n"
    before = (
        f"ld.global.u32 %r3, [%rd8+512]; st.global.u32 [%at], %r3; {FENCE.replace('shared::cta', 'global')}"
    )
    text = "add.u64 %rd8, %in, %rd2;" + before + body + store + f"@%p1 {COMMIT}" + DONE
    given = np.concatenate([GIVEN[:128], old])
    with np.errstate(over="ignore"):
        expected = REDUCTIONS[operation](old, GIVEN[:128])
    assert run(text, store="ret;", given=given) == expected.tolist()


def test_reductions_of_several_blocks_do_not_race():
    """Eight blocks add their tiles to the same array of the device."""
    body = (
        STORED
        + "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%in], [%rd3], 512;\n"
        + f"@%p1 {COMMIT}"
        + DONE
    )
    device = simwarp.Device()
    out, total = device.upload(np.zeros(1024, np.uint32)), device.upload(np.zeros(128, np.uint32))
    kernel = device.load(small.text(SETUP + body + "ret;", BEFORE)).kernel("k")
    kernel((8, 1, 1), (128, 1, 1), out, total)
    assert total.download().tolist() == [8 * value for value in EXPECTED]


# ---- clusters ---------------------------------------------------------------------------------------

CLUSTER = {"grid": 2, "directives": ".reqnctapercluster 2, 1, 1"}
ALONE = ".reqnctapercluster 1, 1, 1"
MEET = "barrier.cluster.arrive; barrier.cluster.wait;\n"
REMOTE = """mov.u32 %r4, %cluster_ctarank; xor.b32 %r5, %r4, 1;
mapa.shared::cluster.u64 %rd8, %rd6, %r5; mapa.shared::cluster.u64 %rd5, %rd1, %r5;
"""


@every_schedule
def test_blocks_of_a_cluster_exchange_tiles(schedule):
    body = (
        "@%p1 mbarrier.init.shared.b64 [%rd1], 1;\n"
        + REMOTE
        + "shl.b32 %r6, %r4, 10; add.u32 %r6, %r6, %r1; st.shared.u32 [%rd4], %r6;\n"
        + FENCE
        + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%rd1], 512;\n"
        + MEET
        + "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
        + " [%rd8], [%rd3], 512, [%rd5];\n"
        + WAIT.format(parity=0).replace("try_wait.parity", "try_wait.parity.acquire.cluster")
        + "ld.shared.u32 %r2, [%rd7];\n"
        + MEET
    )
    assert run(body, schedule=schedule, **CLUSTER) == [*range(1024, 1152), *range(128)]


@every_schedule
def test_a_multicast_reaches_every_block_of_the_mask(schedule):
    load = LOAD.format(bytes=512).replace("::bytes ", "::bytes.multicast::cluster ")
    load = load.replace("[%rd1];", "[%rd1], %rs1;")
    body = (
        "mov.u16 %rs1, 3; @%p1 mbarrier.init.shared.b64 [%rd1], 1;\n"
        + "@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd5, [%rd1], 512;\n"
        + MEET
        + "mov.u32 %r4, %cluster_ctarank; setp.eq.and.u32 %p3, %r4, 0, %p1;\n"
        + f"@%p3 {load}"
        + WAIT.format(parity=0)
        + READ
        + MEET
    )
    assert run(body, schedule=schedule, **CLUSTER) == GIVEN[:128].tolist() * 2


def test_a_multicast_to_a_missing_block_is_named():
    load = LOAD.format(bytes=512).replace("::bytes ", "::bytes.multicast::cluster ")
    body = INIT + "mov.u16 %rs1, 4;" + f"@%p1 {load.replace('[%rd1];', '[%rd1], %rs1;')}"
    fault_of(OutOfBounds, body, threads=32)


@every_schedule
@pytest.mark.parametrize(("operation", "expected"), [("red.async.relaxed.cluster", 30), ("st.async", 29)])
def test_values_for_another_block_are_counted_by_its_barrier(schedule, operation, expected):
    name = ".add.u32" if operation.startswith("red") else ".u32"
    body = (
        "@%p1 mbarrier.init.shared.b64 [%rd1], 1; mov.u32 %r3, 1; st.shared.u32 [%rd7], %r3;\n"
        + REMOTE
        + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%rd1], 512;\n"
        + MEET
        + "add.u64 %rd8, %rd8, %rd2; mov.u32 %r6, 29;\n"
        + f"{operation}.shared::cluster.mbarrier::complete_tx::bytes{name} [%rd8], %r6, [%rd5];\n"
        + WAIT.format(parity=0).replace("try_wait.parity", "try_wait.parity.acquire.cluster")
        + "ld.shared.u32 %r2, [%rd7];\n"
        + MEET
    )
    assert run(body, threads=128, schedule=schedule, **CLUSTER) == [expected] * 256


RED = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [{at}], %r6, [{bar}];\n"
PAIR = (
    "setp.lt.u32 %p3, %r1, 2; shl.b32 %r3, %r1, 3; cvt.u64.u32 %rd5, %r3; add.u64 %rd5, %rd1, %rd5;\n"
    "@%p3 mbarrier.init.shared.b64 [%rd5], 1;\n"
    "@%p3 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%rd5], 256;\n"
)
"""Two barriers, each of which expects the values of 64 threads."""


@every_schedule
def test_values_of_a_warp_at_one_address_all_count(schedule):
    """Thread t adds t + 1 to word t % 8; both barriers count half of the threads."""
    body = (
        PAIR
        + "mov.u32 %r2, 0; st.shared.u32 [%rd4], %r2; bar.sync 0;\n"
        + "and.b32 %r3, %r1, 1; shl.b32 %r3, %r3, 3; cvt.u64.u32 %rd5, %r3; add.u64 %rd5, %rd1, %rd5;\n"
        + "and.b32 %r3, %r1, 7; mul.wide.u32 %rd8, %r3, 4; add.u64 %rd8, %rd3, %rd8; add.u32 %r6, %r1, 1;\n"
        + RED.format(at="%rd8", bar="%rd5")
        + WAIT.format(parity=0)
        + WAIT.format(parity=0).replace("AGAIN", "LATER").replace("[%rd1]", "[%rd1+8]")
        + READ
    )
    sums = [sum(t + 1 for t in range(128) if t % 8 == word) for word in range(8)]
    assert run(body, schedule=schedule, directives=ALONE) == [*sums, *[0] * 120]


@every_schedule
def test_a_read_before_the_wait_names_the_thread_that_sent_the_value(schedule):
    """Thread t adds to word 127 - t, whose reader has not waited."""
    body = (
        PAIR
        + "st.shared.u32 [%rd4], %r2; bar.sync 0; sub.u32 %r3, 127, %r1; mul.wide.u32 %rd8, %r3, 4;\n"
        + "add.u64 %rd8, %rd3, %rd8; mov.u32 %r6, 5;\n"
        + RED.format(at="%rd8", bar="%rd1")
        + "bar.sync 0; setp.eq.u32 %p3, %r1, 40; @%p3 ld.shared.u32 %r2, [%rd4];\n"
    )
    fault = fault_of(CopyInFlight, body, schedule, directives=ALONE)
    assert (fault.place.warp, fault.place.lane) == (1, 8)
    assert (fault.copy.warp, fault.copy.lane) == (2, 87 - 64)


@every_schedule
def test_a_reduction_of_unwritten_memory_is_named(schedule):
    body = INIT + EXPECT.format(bytes=512) + "mov.u32 %r6, 5;\n" + RED.format(at="%rd4", bar="%rd1")
    fault = fault_of(UninitialisedRead, body + WAIT.format(parity=0) + READ, schedule, directives=ALONE)
    assert "red.async" in fault.place.text
    device = simwarp.Device(schedule=schedule)
    reduce = STORE.replace("cp.async", "cp.reduce.async").replace("bulk_group", "bulk_group.add.u32")
    text = small.text(
        SETUP + STORED + f"@%p1 {reduce.format(bytes=512)}@%p1 {COMMIT}" + DONE + "ret;", BEFORE
    )
    out, unused = (device.allocate(128, np.uint32, name) for name in ("out", "unused"))
    with pytest.raises(UninitialisedRead) as caught:
        device.load(text).kernel("k")(1, 128, out, unused)
    assert (caught.value.allocation, caught.value.space) == ("out", "global")


def test_a_copy_into_a_block_that_has_exited_is_named():
    """Block 0 exits behind the barrier; block 1 copies to it."""
    body = (
        "@%p1 mbarrier.init.shared.b64 [%rd1], 1;\n"
        + REMOTE
        + MEET
        + "setp.eq.u32 %p3, %r4, 0; @%p3 bra GONE;\n"
        + FILL
        + FENCE
        + "bar.sync 0;\n"
        + "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
        + " [%rd8], [%rd3], 512, [%rd5];\n"
        + "GONE: \n"
    )
    fault = fault_of(CopyInFlight, body, **CLUSTER)
    assert "exit" in fault.what


# ---- arrivals of cp.async ---------------------------------------------------------------------------

COPY = """mul.wide.u32 %rd8, %r1, 16; add.u64 %rd5, %in, %rd8; add.u64 %rd8, %rd3, %rd8;
cp.async.cg.shared.global [%rd8], [%rd5], 16;
"""
OTHER = (
    "xor.b32 %r3, %r1, 33; mul.wide.u32 %rd8, %r3, 16; add.u64 %rd8, %rd3, %rd8; ld.shared.u32 %r2, [%rd8];\n"
)


@every_schedule
@pytest.mark.parametrize(("count", "arrive"), [(128, ".noinc"), (1, "")])
def test_a_phase_waits_for_the_copies_of_its_threads(schedule, count, arrive):
    """With .noinc the copies are arrivals; without it the phase waits for them besides its arrivals."""
    body = f"@%p1 mbarrier.init.shared.b64 [%rd1], {count}; bar.sync 0;\n" + COPY
    body += f"cp.async.mbarrier.arrive{arrive}.shared.b64 [%rd1];\n"
    if not arrive:
        body += "bar.sync 0; @%p1 mbarrier.arrive.shared.b64 %rd5, [%rd1];\n"
    body += WAIT.format(parity=0) + OTHER
    assert run(body, schedule=schedule) == GIVEN[::4][np.arange(128) ^ 33].tolist()


@every_schedule
def test_copies_that_an_mbarrier_counts_are_in_flight_until_its_wait(schedule):
    body = "@%p1 mbarrier.init.shared.b64 [%rd1], 128; bar.sync 0;\n" + COPY
    fault_of(CopyInFlight, body + "cp.async.mbarrier.arrive.noinc.shared.b64 [%rd1];\n" + OTHER, schedule)


PRODUCED = (
    "@%p1 mbarrier.init.shared.b64 [%rd1], 64; bar.sync 0; setp.lt.u32 %p3, %r1, 64; @!%p3 bra CONSUMER;\n"
    + COPY
    + "cp.async.mbarrier.arrive.noinc.shared.b64 [%rd1]; ret;\nCONSUMER: "
)
"""Threads 0 to 63 copy, arrive and exit; the others go on."""


@every_schedule
def test_a_thread_may_exit_before_copies_that_an_mbarrier_counts(schedule):
    body = PRODUCED + WAIT.format(parity=0)
    body += "sub.u32 %r3, %r1, 64; mul.wide.u32 %rd8, %r3, 16; add.u64 %rd8, %rd3, %rd8;\n"
    body += "ld.shared.u32 %r2, [%rd8];\n"
    assert run(body, schedule=schedule)[64:] == GIVEN[:256:4].tolist()


@pytest.mark.parametrize("schedule", ["lowest pc", "random"])
def test_copies_that_an_mbarrier_counts_and_nobody_waits_for_are_named(schedule):
    fault = fault_of(CopyInFlight, PRODUCED + "mov.u32 %r2, 0;\n", schedule)
    assert "exit" in fault.what
    assert "cp.async.cg" in fault.copy.text
    assert fault.count == (64 if schedule == "lowest pc" else 32)


# ---- CUDA -------------------------------------------------------------------------------------------

CUDA = r"""
#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void twice(int *data, int n) {
    __shared__ alignas(16) int tile[256];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    const int first = blockIdx.x * 256;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::memcpy_async(tile, data + first, cuda::aligned_size_t<16>(sizeof(tile)), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, BYTES);
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i] *= 2;
    FENCE;
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, data + first, tile, sizeof(tile));
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}
"""


def cuda_text(bytes_="0", fence="ptx::fence_proxy_async(ptx::space_shared)"):
    """``memcpy_async`` itself expects its bytes; ``bytes_`` are more."""
    return compile(CUDA.replace("BYTES", bytes_).replace("FENCE", fence), "twice.cu")


@pytest.mark.at_most(1)
@pytest.mark.slow
@every_schedule
def test_the_bulk_copies_of_libcudacxx_run(schedule):
    device = simwarp.Device(schedule=schedule)
    data = device.upload(np.arange(1024, dtype=np.int32))
    device.load(cuda_text()).kernel("twice")((4, 1, 1), (64, 1, 1), data, np.int32(1024))
    assert data.download().tolist() == (2 * np.arange(1024)).tolist()


@pytest.mark.gate
def test_the_proxy_fence_of_libcudacxx_is_missed():
    device = simwarp.Device()
    data = device.upload(np.arange(1024, dtype=np.int32))
    with pytest.raises(MissingProxyFence):
        device.load(cuda_text(fence="")).kernel("twice")((4, 1, 1), (64, 1, 1), data, np.int32(1024))


@pytest.mark.parametrize(
    "instruction",
    [
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%rd3], %r1, [%rd1];",
        "st.async.shared::cta.mbarrier::complete_tx::bytes.u32 [%rd3], %r1, [%rd1];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%rd3], %r1, [%rd1];",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%rd3], [%rd6], 16, [%rd1];",
    ],
)
def test_what_blocks_of_a_cluster_exchange_needs_a_launch_in_clusters(instruction):
    """An H200 stops such a launch with an illegal instruction; a cluster of one block is enough."""
    body = INIT + f"@%p1 {instruction}"
    assert "without clusters" in fault_of(NotClustered, body).what
    assert fault_of(KernelFault, body, directives=ALONE).check
