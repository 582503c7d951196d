"""Each kind of fault is raised by default, or reported, or ignored, and the launch continues."""

import numpy as np
import pytest

import simwarp
from reference import SchemeError
from simwarp import faults
from simwarp.checks import KINDS, STRICT, Checks
from simwarp.engine.schedule import scheduler
from support import small_kernels as small

run, fault_of, line_of, STORE = small.run, small.fault_of, small.line_of, small.STORE

POISON = 0xA5A5A5A5
CELLS = ".shared .align 16 .b32 cells[32];"

# For each kind: exception class, declarations, body, faulting instruction, number of faulting lanes,
# and output of the launch if the fault is not raised.
CASES = {
    "bounds": (
        faults.OutOfBounds, "",
        "setp.gt.u32 %p1, %lane, 29; selp.b64 %rd1, 4096, 0, %p1; add.u64 %rd1, %rd1, %in;"
        "ld.global.u32 %r2, [%rd1];",
        "ld.global.u32 %r2", 2, [7] * 30 + [POISON] * 2,
    ),
    "alignment": (
        faults.Misaligned, "",
        "setp.eq.u32 %p1, %lane, 3; selp.b64 %rd1, 2, 0, %p1; add.u64 %rd1, %rd1, %in;"
        "ld.global.u32 %r2, [%rd1];",
        "ld.global.u32 %r2", 1, [7] * 3 + [POISON] + [7] * 28,
    ),
    "registers": (
        faults.UninitialisedRegister, "",
        "setp.lt.u32 %p1, %lane, 4; @!%p1 mov.u32 %r9, 1;\nadd.u32 %r2, %r9, 4;\n",
        "add.u32 %r2", 4, [5] * 32,
    ),
    "uninitialised": (
        faults.UninitialisedRead, CELLS,
        "mov.u32 %r3, cells; mad.lo.u32 %r3, %lane, 4, %r3; setp.lt.u32 %p1, %lane, 20;"
        "@%p1 st.shared.u32 [%r3], 3; ld.shared.u32 %r2, [%r3];",
        "ld.shared.u32 %r2", 12, [3] * 20 + [POISON] * 12,
    ),
    "division": (
        faults.DivisionByZero, "",
        "sub.u32 %r3, %lane, 4; mov.u32 %r4, 60;\ndiv.u32 %r2, %r4, %r3;\nshr.u32 %r2, %r2, 29;\n",
        "div.u32 %r2", 1, [0] * 4 + [7] + [0] * 27,
    ),
    "barriers": (
        faults.BarrierFault, "",
        "setp.lt.u32 %p1, %lane, 8; @%p1 bra LOW; bar.sync 0; mov.u32 %r2, 1; bra END;"
        "LOW: bar.sync 0; mov.u32 %r2, 2; END:",
        "LOW: bar.sync 0", 1, [2] * 8 + [1] * 24,
    ),
    "members": (
        faults.MemberMaskFault, "",
        "setp.eq.u32 %p1, %lane, %lane; vote.sync.ballot.b32 %r2, %p1, 0xFFFF; mov.u32 %r2, 6;",
        "vote.sync.ballot", 16, [6] * 32,
    ),
    "sources": (
        faults.InactiveSource, "",
        "mov.u32 %r2, 4; setp.gt.u32 %p1, %lane, 15; @%p1 bra END;"
        "shfl.sync.idx.b32 %r3, %r2, 20, 31, 0xFFFF; END:",
        "shfl.sync.idx", 16, [4] * 32,
    ),
    "races": (
        faults.Race, CELLS,
        "mov.u32 %r3, cells; mad.lo.u32 %r4, %lane, 4, %r3; st.shared.u32 [%r4], %lane;"
        "xor.b32 %r5, %lane, 1; mad.lo.u32 %r4, %r5, 4, %r3; ld.shared.u32 %r2, [%r4];",
        "ld.shared.u32 %r2", None, [lane ^ 1 for lane in range(32)],
    ),
    "copies": (
        faults.CopyInFlight, CELLS,
        "mov.u32 %r3, cells; mad.lo.u32 %r3, %lane, 4, %r3; cp.async.ca.shared.global [%r3], [%in], 4;"
        "mov.u32 %r2, 6;",
        "ret", 32, [6] * 32,
    ),
    "proxies": (
        faults.MissingProxyFence, CELLS,
        "mov.u64 %rd1, cells; mul.wide.u32 %rd2, %lane, 4; add.u64 %rd2, %rd1, %rd2;"
        "st.shared.u32 [%rd2], %lane;"
        "bar.warp.sync 0xFFFFFFFF; mov.u32 %r2, 6; setp.eq.u32 %p1, %lane, 0;\n"
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%in], [%rd1], 128;\n"
        "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;",
        "@%p1 cp.async.bulk.global", 32, [6] * 32,
    ),
    "products": (
        faults.ProductInFlight, ".shared .align 128 .b8 tile[2048];",
        "mov.u32 %r3, 0; mul.wide.u32 %rd1, %r1, 16; mov.u64 %rd2, tile; add.u64 %rd1, %rd1, %rd2;"
        "st.shared.v4.b32 [%rd1], {%r3, %r3, %r3, %r3}; fence.proxy.async; bar.sync 0;"
        "mov.u64 %rd3, 0x1000080000; setp.ne.u32 %p1, 0, 0; wgmma.fence.sync.aligned;"
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r4, %r5, %r6, %r7}, %rd3, %rd3, %p1;\n"
        "add.u32 %r2, %r5, 7;\nwgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        "add.u32 %r2, %r5", 128, [7] * 128,
    ),
    "deadlock": (
        faults.Deadlock, "",
        "setp.lt.u32 %p1, %lane, 8; @%p1 bra LOW; bar.warp.sync 0xFFFFFFFF; bra END;"
        "LOW: barrier.sync 0; END:",
        "bar.warp.sync", 1, [small.NOTHING] * 32,
    ),
    "runaway": (
        faults.Livelock, "",
        "mov.u32 %r2, 3; AGAIN: setp.eq.u32 %p1, %r2, 3; @%p1 bra AGAIN;",
        "AGAIN;", 1, [small.NOTHING] * 32,
    ),
    "exits": (
        faults.EarlyExit, "",
        "setp.lt.u32 %p1, %lane, 8; @%p1 exit; bar.sync 0; mov.u32 %r2, 1;",
        "bar.sync 0", 1, [small.NOTHING] * 8 + [1] * 24,
    ),
}  # fmt: skip

THREADS = {kind: len(case[-1]) for kind, case in CASES.items()}

every_kind = pytest.mark.parametrize("kind", CASES)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    """Loops yield 64 times as often, so that a livelock is found as much sooner."""
    monkeypatch.setattr(scheduler, "_TURN", 1024)


def device(**options):
    return simwarp.Device(**options)


@every_kind
def test_a_fault_is_raised_by_default(kind):
    fault_class, before, body, at, lanes, _ = CASES[kind]
    there = device(checks={kind: "raise"}) if kind in STRICT else device()
    fault = fault_of(
        fault_class, body + STORE, before=before, given=[7] * 32, device=there, block=THREADS[kind]
    )
    assert fault.check == kind
    assert fault.place.kernel == "k"
    assert at.rstrip(";") in fault.place.text
    assert fault.what in str(fault).splitlines()[0]
    if lanes:
        assert fault.count == lanes


@every_kind
def test_a_reported_fault_lets_the_launch_continue(kind):
    fault_class, before, body, _, lanes, left = CASES[kind]
    there = device(checks={kind: "report"})
    assert run(body + STORE, before=before, given=[7] * 32, device=there, block=THREADS[kind]) == left
    (fault,) = there.faults
    assert type(fault) is fault_class
    if lanes:
        assert fault.count == lanes
    run(body + STORE, before=before, given=[7] * 32, device=there, block=THREADS[kind])
    assert len(there.faults) == 1
    if lanes:
        assert fault.count == 2 * lanes
    there.checks.clear()
    assert there.faults == []


@every_kind
def test_a_check_that_is_off_finds_nothing(kind):
    _, before, body, _, _, left = CASES[kind]
    there = device(checks={kind: "off"})
    assert run(body + STORE, before=before, given=[7] * 32, device=there, block=THREADS[kind]) == left
    assert there.faults == []


@every_kind
def test_other_checks_stay_on(kind):
    fault_class, before, body, *_ = CASES[kind]
    others = {other: "off" for other in KINDS if other != kind} | {kind: "raise"}
    fault_of(
        fault_class,
        body + STORE,
        before=before,
        given=[7] * 32,
        device=device(checks=others),
        block=THREADS[kind],
    )


@pytest.mark.parametrize("kind", STRICT)
@pytest.mark.parametrize("checks", ["raise", "report", {"races": "report"}])
def test_a_strict_check_is_enabled_only_by_its_name(kind, checks):
    _, before, body, _, _, left = CASES[kind]
    there = device(checks=checks)
    assert run(body + STORE, before=before, given=[7] * 32, device=there, block=THREADS[kind]) == left
    assert there.faults == []


def test_every_kind_of_fault_has_a_test_case():
    assert {*CASES, "dependents", "freed", "textures", "unreachable"} == set(KINDS)


@pytest.mark.parametrize("action", ["report", "off"])
def test_use_after_free_is_reported(action):
    there = device(checks={"freed": action})
    data = there.upload(np.zeros(4, np.uint32), "data")
    kernel = there.load(small.text("ld.global.u32 %r2, [%in];" + STORE)).kernel("k")
    out = there.allocate((32,), np.uint32)
    data.free()
    kernel((1, 1, 1), (32, 1, 1), out, np.uint64(data.pointer))
    assert out.download().tolist() == [POISON] * 32
    assert [(type(f), f.count, f.allocation) for f in there.faults] == (
        [(faults.UseAfterFree, 32, "data (freed)")] if action == "report" else []
    )


@pytest.mark.parametrize(
    ("access", "left"),
    [("st.global.u32 [%rd1], 9;", [9] * 30 + [7, 9]), ("red.global.add.u32 [%rd1], 2;", [9] * 30 + [7, 9])],
)
def test_a_bad_lane_writes_nothing(access, left):
    there = device(checks="report")
    data = there.upload(np.full(32, 7, np.uint32), "data")
    body = "mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in; setp.eq.u32 %p1, %lane, 30;"
    body += "@%p1 add.u64 %rd1, %rd1, 1;" + access + "mov.u32 %r2, 0;"
    out = there.allocate((32,), np.uint32)
    there.load(small.text(body + STORE)).kernel("k")((1, 1, 1), (32, 1, 1), out, data)
    assert data.download().tolist() == left
    assert [type(fault) for fault in there.faults] == [faults.Misaligned]


def test_one_access_may_have_faults_of_several_kinds():
    there = device(checks="report")
    body = """
        setp.eq.u32 %p1, %lane, 1; selp.b64 %rd1, 2, 0, %p1;
        setp.eq.u32 %p1, %lane, 2; selp.b64 %rd1, 4096, %rd1, %p1; add.u64 %rd1, %rd1, %in;
        ld.global.u32 %r2, [%rd1];"""
    assert run(body + STORE, given=[7] * 32, device=there) == [7, POISON, POISON] + [7] * 29
    assert [type(fault) for fault in there.faults] == [faults.Misaligned, faults.OutOfBounds]


def test_a_kind_that_is_off_does_not_hide_another():
    body = """
        setp.eq.u32 %p1, %lane, 1; selp.b64 %rd1, 2, 0, %p1;
        setp.eq.u32 %p1, %lane, 2; selp.b64 %rd1, 4096, %rd1, %p1; add.u64 %rd1, %rd1, %in;
        ld.global.u32 %r2, [%rd1];"""
    there = device(checks={"alignment": "off"})
    fault = fault_of(faults.OutOfBounds, body + STORE, given=[7] * 32, device=there)
    assert fault.place.lane == 2


@pytest.mark.parametrize("space", ["shared", "local"])
def test_accesses_outside_a_window_are_reported(space):
    declared = f".{space} .align 16 .b32 cells[32];" if space == "shared" else ""
    local = "" if space == "shared" else ".local .align 16 .b32 cells[32];"
    body = (
        local
        + f"""mov.u64 %rd1, cells; setp.eq.u32 %p1, %lane, 9; mov.u64 %rd2, %rd1;
        @%p1 add.u64 %rd2, %rd1, 1024;
        st.{space}.u32 [%rd2], 5;
        ld.{space}.u32 %r2, [%rd2];"""
    )
    there = device(checks={"bounds": "report", "races": "off"})
    assert run(body + STORE, before=declared, device=there) == [5] * 9 + [POISON] + [5] * 22
    assert [fault.space for fault in there.faults] == [space, space]


def test_reports_of_workers_are_merged():
    there = simwarp.Device(workers=2, chunk_lanes=32, checks="report")
    assert run(CASES["registers"][2] + STORE, grid=6, device=there) == [5] * 32 * 6
    (fault,) = there.faults
    assert fault.count == 24


def test_a_launch_that_ends_early_leaves_the_device_usable():
    there = device(checks={"runaway": "report"})
    assert run(CASES["runaway"][2] + STORE, device=there) == [small.NOTHING] * 32
    assert run("mov.u32 %r2, 1;" + STORE, device=there) == [1] * 32


def test_a_counting_loop_is_not_reported_as_endless():
    body = "mov.u32 %r2, 0; AGAIN: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 20000; @%p1 bra AGAIN;"
    assert run(body + STORE, device=device()) == [20000] * 32


@pytest.mark.gate
def test_a_long_wait_is_not_reported_as_a_livelock():
    """Lane 0 sets the flag after a long loop, while the others poll it without any change of state."""
    body = """
        setp.eq.u32 %p1, %lane, 0; @%p1 bra COUNT;
        POLL: ld.volatile.global.u32 %r3, [%in]; setp.eq.u32 %p1, %r3, 0; @%p1 bra POLL;
        mov.u32 %r2, 8; bra END;
        COUNT: mov.u32 %r2, 0;
        MORE: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 30000; @%p1 bra MORE;
        st.volatile.global.u32 [%in], 1;
        END:"""
    assert run(body + STORE, device=device()) == [30000] + [8] * 31


@pytest.mark.parametrize(
    ("checks", "words"),
    [
        ({"race": "off"}, "'race' is not a kind"),
        ({"races": "ignore"}, "'ignore' is not an action (given for races)"),
        ("warn", "'warn' is not an action"),
    ],
)
def test_unknown_checks_are_refused(checks, words):
    with pytest.raises(SchemeError) as caught:
        simwarp.Device(checks=checks)
    assert words in str(caught.value)
    assert "choose among" in str(caught.value)


def test_faults_are_merged_by_place_and_allocation():
    checks = Checks("report")
    for line, allocation in ((1, "a"), (1, "b"), (2, "a"), (1, "a")):
        fault = faults.OutOfBounds("x", place=faults.Place(kernel="k", line=line))
        fault.allocation = allocation
        checks.found(fault)
    assert [(f.place.line, f.allocation, f.count) for f in checks.faults] == [
        (1, "a", 2), (1, "b", 1), (2, "a", 1)
    ]  # fmt: skip


def test_a_trap_is_raised_with_all_checks_off():
    fault_of(faults.Trap, "trap;" + STORE, device=device(checks="off"))


# ------------------------------------------------------------------------------------- the new barriers


def test_a_barrier_with_too_many_threads_is_a_fault():
    body = "mov.u32 %r2, 1; barrier.sync 1, 32;"
    fault = fault_of(faults.BarrierFault, body + STORE, block=64, device=device(chunk_lanes=64))
    assert fault.values == "64 came, it takes 32"


def test_a_cluster_wait_without_arrival_is_a_fault():
    body = "barrier.cluster.wait; mov.u32 %r2, 1;"
    fault = fault_of(faults.BarrierFault, body + STORE)
    assert "without an arrive" in fault.what
    assert "barrier.cluster.wait" in fault.place.text


def test_a_warp_that_arrived_and_exited_counts_fully():
    body = """setp.lt.u32 %p1, %r1, 32; @%p1 bra WAIT; barrier.arrive 1, 64; ret;
WAIT: barrier.sync 1, 64; mov.u32 %r2, 3;"""
    assert run(body + STORE, block=50) == [3] * 32 + [small.NOTHING] * 18


# --------------------------------------------------------------------- values that nothing gave

HALF = "setp.lt.u32 %p1, %lane, 16; @%p1 mov.u32 %r9, 7; @%p1 mov.pred %p5, %p1;\n"
"""In lanes 16 and up, nothing wrote %r9 and %p5."""


@pytest.mark.parametrize(
    "body",
    [
        "selp.b32 %r2, %r9, 1, %p1;",
        "mov.u32 %r8, %r9; add.u32 %r8, %r8, 1; mov.u32 %r2, 1;",
        "setp.gt.u32 %p2, %r9, 3; and.pred %p3, %p2, %p1; selp.b32 %r2, 1, 2, %p3;",
        "setp.gt.and.u32 %p3, %r9, 3, %p1; selp.b32 %r2, 1, 2, %p3;",
        "setp.gt.and.u32 %p3, 20, %lane, %p5; selp.b32 %r2, 1, 2, %p1;",
        "not.pred %p2, %p1; or.pred %p3, %p2, %p5; selp.b32 %r2, 1, 2, %p3;",
        "and.b32 %r2, %r9, 0;",
        "shfl.sync.idx.b32 %r2, %r9, 3, 31, -1;",
        "mov.u32 %r3, cells; mad.lo.u32 %r3, %lane, 4, %r3; st.shared.u32 [%r3], %r9; mov.u32 %r2, 1;",
        "slct.u32.s32 %r2, 3, %r9, %lane;",
    ],
)
def test_an_uninitialised_value_may_be_copied(body):
    run(HALF + body + STORE, before=CELLS, device=device())


@pytest.mark.parametrize(
    ("body", "register", "lane", "use"),
    [
        ("selp.b32 %r2, 1, %r9, %p1;", "%r9", 16, "st.global"),
        ("mov.u32 %r8, %r9;\nadd.u32 %r2, %r8, 1;", "%r9", 16, "st.global"),
        ("setp.gt.u32 %p2, %r9, 3;\n@%p2 bra END;\nEND: mov.u32 %r2, 1;", "%r9", 16, "bra END"),
        ("mov.u32 %r2, 1;\n@%p5 add.u32 %r2, %r2, 1;", "%p5", 16, "@%p5 add"),
        ("mov.u32 %r2, 1; cvt.u64.u32 %rd1, %r9; add.u64 %rd1, %rd1, %in;\nld.global.u8 %r2, [%rd1];", "%r9",
         16, "ld.global"),
        ("atom.global.add.u32 %r2, [%in], %r9;", "%r9", 16, "atom"),
        ("shfl.sync.idx.b32 %r2, %r9, 20, 31, -1;", "%r9", 0, "st.global"),
        ("shfl.sync.bfly.b32 %r2, %r9, 16, 31, -1;", "%r9", 0, "st.global"),
        ("vote.sync.ballot.b32 %r2, %p5, -1;", "%p5", 16, "vote"),
        ("setp.gt.and.u32 %p3, %r9, 3, %p5; selp.b32 %r2, 1, 2, %p3;", "%p5", 16, "st.global"),
        ("setp.gt.or.u32 %p3, %r9, 3, %p1; selp.b32 %r2, 1, 2, %p3;", "%r9", 16, "st.global"),
        ("xor.b32 %r2, %r9, 1;", "%r9", 16, "st.global"),
    ],
)  # fmt: skip
def test_using_an_uninitialised_value_is_a_fault(body, register, lane, use):
    there = device(checks={"uninitialised": "off", "races": "off"})
    fault = fault_of(faults.UninitialisedRegister, HALF + body + "\n" + STORE, given=[0] * 64, device=there)
    assert fault.register == register
    assert fault.use.lane == fault.place.lane == lane
    assert use in fault.use.text


def test_uninitialised_values_are_tracked_through_loops():
    """Lane n gets its value in iteration n and carries it uninitialised until then."""
    body = """mov.u32 %r3, 0;
AGAIN: setp.eq.u32 %p2, %r3, %lane; selp.b32 %r9, %r3, %r9, %p2;
add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, LAST; @%p3 bra AGAIN;
mov.u32 %r2, %r9;"""
    assert run(body.replace("LAST", "32") + STORE) == list(range(32))
    fault = fault_of(faults.UninitialisedRegister, body.replace("LAST", "31") + STORE)
    assert (fault.register, fault.use.lane) == ("%r9", 31)


# ------------------------------------------------------------------- what public kernels brought to light

LISTENERS = """
setp.lt.u32 %p1, %r1, 32; rem.u32 %r5, %lane, {period}; add.u32 %r5, %r5, 1; selp.b32 %r5, %r5, 2, %p1;
setp.eq.u32 %p2, %r1, 511;
ROUND: mov.u32 %r2, 0; mov.u32 %r6, %r5;
LOOK: ld.volatile.global.u32 %r7, [%in]; add.u32 %r2, %r2, %r7; add.u32 %r6, %r6, -1;
setp.ne.u32 %p3, %r6, 0; @%p3 bra LOOK;
@%p2 st.volatile.global.u32 [%in], 1;
setp.eq.u32 %p4, %r2, 0; @%p4 bra ROUND;
mov.u32 %r2, 1;"""
"""All look until they see the flag, the first warp's lanes each another number of times in a round; the last
thread, behind that loop, sets it."""


@pytest.mark.parametrize("period", [5, 13])
def test_spinning_lanes_do_not_starve_the_awaited_lane(period):
    there = device(instruction_budget=500_000)
    assert run(LISTENERS.format(period=period) + STORE, block=512, device=there) == [1] * 512


def test_faults_in_shared_memory_name_the_block():
    body = """mov.u32 %r3, cells; mad.lo.u32 %r3, %lane, 4, %r3; setp.ne.u32 %p1, %i, 127;
        @%p1 st.shared.u32 [%r3], 3; ld.shared.u32 %r2, [%r3];"""
    fault = fault_of(faults.UninitialisedRead, body + STORE, grid=5, before=CELLS, device=device())
    assert (fault.place.block, fault.place.lane, fault.offset, fault.address) == ((3, 0, 0), 31, 124, 124)
    assert fault.values == "byte 124 of the block's shared memory (128 bytes)"
    assert [note.label for note in fault.notes] == ["what came of it is used here by"]


def test_a_launch_that_ends_early_counts_what_it_executed():
    there = device(checks={"runaway": "report"})
    run(CASES["runaway"][2] + STORE, device=there)
    assert there.executed > 32


def test_instructions_unrolled_from_one_source_line_are_one_fault():
    checks = Checks("report")
    for line in range(5):
        checks.found(
            faults.OutOfBounds("x", place=faults.Place("k", line=line, source_file="a.cu", source_line=3))
        )
    assert [fault.count for fault in checks.faults] == [5]


POISONED_BOUND = """setp.eq.u32 %p1, %lane, 3; selp.b64 %rd1, 4096, 0, %p1; add.u64 %rd1, %rd1, %in;
ld.global.u32 %r3, [%rd1];
mov.u32 %r2, 0;
AGAIN: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r3; @%p2 bra AGAIN;
"""
"""Lane 3 reads behind the array, and goes round as often as it read: 2,779,096,485 times."""


@pytest.mark.parametrize("budget", [50_000, 100_000])
def test_a_reported_fault_reduces_the_remaining_budget(budget):
    there = simwarp.Device(checks="report", instruction_budget=budget)
    run(POISONED_BOUND + STORE, given=[40] * 32, device=there)
    first, last = there.faults
    assert (type(first), first.place.lane) == (faults.OutOfBounds, 3)
    assert (type(last), last.place.lane) == (faults.RunawayKernel, 3)
    assert "after a fault" in last.what
    assert budget // 50 < there.executed < budget // 50 + 4500
    raised = {"bounds": "report", "runaway": "raise"}
    fault_of(
        faults.RunawayKernel, POISONED_BOUND + STORE, given=[40] * 32,
        device=simwarp.Device(checks=raised, instruction_budget=budget),
    )  # fmt: skip


def test_a_launch_without_faults_has_the_full_budget():
    there = simwarp.Device(checks="report", instruction_budget=50_000)
    assert run(POISONED_BOUND.replace("4096", "4") + STORE, given=[9000] * 32, device=there) == [9000] * 32
    assert there.faults == []


def test_a_fault_names_its_place_in_its_repr():
    fault = faults.KernelFault("too late", "values", "advice", faults.Place(kernel="k", lane=3))
    assert repr(fault) == "KernelFault('too late: kernel k, lane 3')"


def test_a_note_is_collected_and_never_raised():
    checks, note, error = Checks("strict"), faults.Race("equal"), faults.Race("unordered")
    note.severity = "note"
    checks.found(note)
    assert (checks.faults, checks.errors) == ([note], [])
    with pytest.raises(faults.Race, match="unordered"):
        checks.found(error)


def test_strict_is_asked_for_by_kind():
    assert Checks("strict").strict("races")
    assert Checks({"races": "report+strict"}).strict("races")
    assert not Checks().strict("races")
    with pytest.raises(SchemeError, match="bounds has no notes"):
        Checks({"bounds": "strict"})
