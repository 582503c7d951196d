"""Dependent launches: what a grid may touch before it has waited for the one before."""

from __future__ import annotations

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from gpu.cuda.graphs import BoundChain, BoundLaunch
from gpu.device import LaunchChain, LaunchPlan
from simwarp.device.schedules import Schedule, compare_schedules
from simwarp.faults import DependentAccess
from support.cuda_driver import cuda_kernel
from support.small_kernels import text

__all__ = ["cuda_kernel"]

ALLOW, WAIT = "griddepcontrol.launch_dependents;\n", "griddepcontrol.wait;\n"
INPUT = "mul.wide.u32 %rd1, %i, 4; add.u64 %rd1, %rd1, %in;\n"
READ = "ld.global.u32 %r2, [%rd1];\n"
STORE = "add.u32 %r2, %r2, 100; st.global.u32 [%at], %r2;\n"
PRIMARY = "add.u32 %r2, %i, 7;\nst.global.u32 [%at], %r2;\n"
CELLS = ".shared .align 16 .b8 cells[64];"
OLD, NEW = [5 + 100] * 64, [7 + i + 100 for i in range(64)]


class Pair:
    """A launch that writes x[i] = 7 + i, and a dependent one that mostly reads it into y."""

    def __init__(
        self, primary=PRIMARY + ALLOW + "ret;", schedule="lowest pc", seed=0, chunk=32768, **options
    ):
        self.device = simwarp.Device(
            checks={"dependents": "report"}, schedule=schedule, seed=seed, chunk_lanes=chunk, **options
        )
        self.x = self.device.upload(np.full(64, 5, np.uint32), "x")
        self.y = self.device.upload(np.zeros(64, np.uint32), "y")
        self.primary(primary)

    def primary(self, body, out=None, **options):
        kernel = self.device.load(text(body, CELLS).replace("entry k", "entry primary")).kernel("primary")
        kernel(2, 32, out or self.x, self.x, **options)

    def then(self, body, out=None, grid=2, **options):
        """Launch a dependent grid; returns what it left in y."""
        options = {"dependent": True, **options}
        self.device.load(text(body + "ret;", CELLS)).kernel("k")(
            grid, 64 // grid, out or self.y, self.x, **options
        )
        faults, y = list(self.device.faults), self.y.download().tolist()
        return y, faults


SCHEDULES = pytest.mark.parametrize(
    ("schedule", "seed", "seen"),
    [("lowest pc", 0, OLD), ("stack", 0, NEW), ("random", 0, None), ("random", 1, NEW)],
)


@SCHEDULES
def test_a_read_before_the_wait_is_a_fault(schedule, seed, seen):
    pair = Pair(schedule=schedule, seed=seed)
    y, (fault,) = pair.then(INPUT + READ + WAIT + STORE)
    if seen is None:  # the first warp that waits lets the other one see
        assert OLD[0] in y
        assert all(word in (old, new) for word, old, new in zip(y, OLD, NEW, strict=True))
    else:
        assert y == seen
    assert type(fault) is DependentAccess
    assert (fault.check, fault.earlier, fault.later, fault.count) == ("dependents", "write", "read", 64)
    assert (fault.allocation, fault.width, fault.space) == ("x", 4, "global")
    if schedule == "random":  # any block comes first
        return
    assert fault.offset == 0
    assert (fault.place.kernel, fault.place.block, fault.place.lane) == ("k", (0, 0, 0), 0)
    assert (fault.place.text, fault.other.text) == ("ld.global.u32 %r2, [%rd1];", "st.global.u32 [%at], %r2;")
    assert (fault.other.kernel, fault.other.block, fault.other.thread) == ("primary", (0, 0, 0), (0, 0, 0))
    assert "without waiting" in str(fault)
    assert "griddepcontrol.wait" in str(fault)
    assert pair.x.download().tolist() == [
        7 + i for i in range(64)
    ]  # the launch before has written all the same


@SCHEDULES
@pytest.mark.parametrize("chunk", [32, 32768])
def test_a_read_behind_the_wait_is_right(schedule, seed, seen, chunk):
    y, faults = Pair(schedule=schedule, seed=seed, chunk=chunk).then(INPUT + WAIT + READ + STORE)
    assert (y, faults) == (NEW, [])


def test_the_fault_is_raised_by_default():
    device = simwarp.Device()
    x = device.upload(np.zeros(64, np.uint32), "x")
    device.load(text(PRIMARY + ALLOW + "ret;")).kernel("k")(2, 32, x, x)
    kernel = device.load(text(INPUT + READ + "ret;")).kernel("k")
    with pytest.raises(DependentAccess):
        kernel(2, 32, x, x, dependent=True)
    assert x.download()[:2].tolist() == [7, 8]


@pytest.mark.parametrize(
    "body",
    [
        INPUT + "ld.u32 %r2, [%rd1];\n",
        INPUT + "ld.volatile.global.u32 %r2, [%rd1];\n",
        INPUT + "atom.global.add.u32 %r2, [%rd1], 1;\n",
        INPUT + "red.global.add.u32 [%rd1], 1;\n",
        INPUT + "st.global.u32 [%rd1], %i;\n",
        INPUT + "st.global.u8 [%rd1], %r1;\n",
        "and.b32 %i, %i, 31; mul.wide.u32 %rd1, %i, 8; add.u64 %rd1, %rd1, %in;\n"
        "ld.global.v2.u32 {%r2, %r3}, [%rd1];\n",
    ],
)
def test_every_kind_of_access_is_seen(body):
    assert Pair().then(body + WAIT + "mov.u32 %r2, 0;" + STORE)[1]
    assert not Pair().then(WAIT + body + "mov.u32 %r2, 0;" + STORE)[1]


@pytest.mark.parametrize("before", ["", WAIT])
def test_a_load_of_constants_is_seen_anywhere(before):
    """It may be moved before the wait, as ptxas did in gpu/bmm/skinny.cu."""
    _, (fault,) = Pair().then(before + INPUT + "ld.global.nc.u32 %r2, [%rd1];" + WAIT + STORE)
    assert (fault.earlier, fault.later, fault.count) == ("write", "read", 64)
    assert "as constant memory" in str(fault)
    assert "ld.global" in str(fault)


def test_a_load_of_constants_that_nobody_wrote_is_right():
    pair = Pair()
    pair.x, written = pair.device.upload(np.full(64, 5, np.uint32), "z"), pair.x
    assert pair.then(INPUT + "ld.global.nc.u32 %r2, [%rd1];" + WAIT + STORE) == (OLD, [])
    assert written.download()[1] == 8


BULK = """setp.eq.u32 %p2, %r1, 0; @%p2 mbarrier.init.shared.b64 [cells], 1; bar.sync 0;
@!%p2 bra AWAIT;
{before} mbarrier.arrive.expect_tx.shared.b64 _, [cells], 32;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cells+16], [%in], 32, [cells];
AWAIT: mbarrier.try_wait.parity.shared.b64 %p1, [cells], 0; @!%p1 bra AWAIT;
ld.shared.u32 %r2, [cells+16];
"""


def test_a_bulk_copy_before_the_wait_is_seen_where_it_begins():
    """The threads wait before they use what the copy brought, which is too late."""
    y, (fault,) = Pair().then(BULK.format(before="") + WAIT + STORE, grid=1)
    assert (y, fault.allocation, fault.count) == ([105] * 64, "x", 1)
    assert fault.place.text.startswith("cp.async.bulk")
    assert Pair().then(BULK.format(before=WAIT) + STORE, grid=1) == ([107] * 64, [])


def test_a_write_of_what_the_launch_before_read_is_a_fault():
    reads = INPUT + READ + ALLOW + "ret;"
    write = INPUT + "mov.u32 %r2, 0;\nst.global.u32 [%rd1], %r2;\n"
    _, (fault,) = Pair(reads).then(write + WAIT + STORE)
    assert (fault.earlier, fault.later, fault.allocation) == ("read", "write", "x")
    assert fault.other.text.startswith("ld.global")
    assert Pair(reads).then(INPUT + READ + WAIT + STORE)[1] == []  # both only read
    assert Pair(reads).then(WAIT + write + STORE)[1] == []


def test_other_bytes_may_be_touched_before_the_wait():
    """Even threads write; odd words are read early."""
    even = "and.b32 %r3, %i, 1; setp.eq.u32 %p1, %r3, 0;\n@%p1 st.global.u32 [%at], %i;\n" + ALLOW + "ret;"
    odd = "or.b32 %i, %i, 1;\n" + INPUT + READ + WAIT + STORE
    y, faults = Pair(even).then(odd)
    assert (y, faults) == ([105] * 64, [])


def test_writes_behind_launch_dependents_count_too():
    late = ALLOW + PRIMARY + "ret;"
    y, (fault,) = Pair(late).then(INPUT + READ + WAIT + STORE)
    assert (y, fault.count) == (OLD, 64)


@pytest.mark.parametrize(
    "how", ["not dependent", "no launch_dependents", "synchronised", "uploaded", "streams"]
)
def test_launches_that_do_not_overlap_need_no_wait(how):
    pair = Pair(PRIMARY + "ret;" if how == "no launch_dependents" else PRIMARY + ALLOW + "ret;")
    if how == "synchronised":
        pair.device.synchronize()
    if how == "uploaded":
        pair.y.upload(np.zeros(64, np.uint32))
    stream = pair.device.stream() if how == "streams" else None
    y, faults = pair.then(INPUT + READ + STORE, dependent=how != "not dependent", stream=stream)
    assert (y, faults) == (NEW, [])


def test_launches_of_one_stream_overlap():
    pair = Pair()
    stream = pair.device.stream()
    pair.primary(PRIMARY + ALLOW + "ret;", stream=stream)
    assert len(pair.then(INPUT + READ + WAIT + STORE, stream=stream)[1]) == 1
    pair.device.checks.clear()
    pair.primary(PRIMARY + ALLOW + "ret;", stream=stream)
    stream.synchronize()
    assert pair.then(INPUT + READ + WAIT + STORE, stream=stream)[1] == []


FIRST = "setp.eq.u32 %p1, %r1, 0;\n@%p1 " + WAIT
BARRIERS = {
    "bar.sync 0;": True,
    "barrier.cluster.arrive; barrier.cluster.wait;": True,
    "bar.warp.sync 0xFFFFFFFF;": False,  # only the first warp
    "": False,
    "fence.acq_rel.gpu;": False,
}


@pytest.mark.parametrize("barrier", BARRIERS)
def test_a_wait_reaches_other_threads_through_barriers(barrier):
    """Thread 0 waits; the other 63, of its warp and of another one, read."""
    pair = Pair()
    _, faults = pair.then(FIRST + barrier + INPUT + READ + STORE, grid=1)
    counts = {fault.count for fault in faults}
    assert counts == (set() if BARRIERS[barrier] else {32} if "warp" in barrier else {63})


MBARRIER = """setp.eq.u32 %p2, %r1, 0; @%p2 mbarrier.init.shared.b64 [cells], 1; bar.sync 0;
@!%p2 bra AWAIT;
{wait} mbarrier.arrive.shared.b64 _, [cells];
AWAIT: mbarrier.try_wait.parity.shared.b64 %p1, [cells], 0; @!%p1 bra AWAIT;
"""
FLAG = """setp.eq.u32 %p2, %r1, 0; @%p2 st.shared.u32 [cells], 0; bar.sync 0;
@!%p2 bra AWAIT;
{wait} st.release.cta.shared.u32 [cells], 1;
AWAIT: ld.acquire.cta.shared.u32 %r3, [cells]; setp.ne.u32 %p1, %r3, 1; @%p1 bra AWAIT;
"""


@pytest.mark.parametrize("signal", [MBARRIER, FLAG], ids=["mbarrier", "flag"])
def test_a_wait_reaches_other_threads_through_mbarriers_and_flags(signal):
    """A producer waits and signals; the consumers never wait themselves."""
    assert Pair().then(signal.format(wait=WAIT) + INPUT + READ + STORE, grid=1) == (NEW, [])
    assert Pair().then(signal.format(wait="") + INPUT + READ + STORE, grid=1)[1][0].count == 64


def test_a_third_launch_overlaps_the_first_if_the_second_allows_it_before_it_waits():
    for second, overlaps in ((ALLOW + WAIT, True), (WAIT + ALLOW, False), (ALLOW, True)):
        pair = Pair()
        pair.primary(second + "ret;", pair.y, dependent=True)
        y, faults = pair.then(INPUT + READ + WAIT + STORE)
        assert (y == OLD, bool(faults)) == (overlaps, overlaps)


def test_ordinary_launches_keep_no_record():
    pair = Pair()
    pair.then(WAIT, dependent=False)
    assert pair.device.default_stream.unfinished == ()
    pair.primary(PRIMARY + "ret;")
    assert pair.device.default_stream.unfinished == ()


def test_the_check_can_be_off_and_races_are_still_found():
    device = simwarp.Device(checks={"dependents": "off", "races": "report"})
    x = device.upload(np.full(64, 5, np.uint32), "x")
    device.load(text(PRIMARY + ALLOW + "st.global.u32 [%out], %i; ret;")).kernel("k")(1, 64, x, x)
    assert {type(fault).__name__ for fault in device.faults} == {"Race"}
    device.checks.clear()
    y = device.upload(np.zeros(64, np.uint32))
    device.load(text(PRIMARY + ALLOW + "ret;")).kernel("k")(1, 64, x, x)
    device.load(text(INPUT + READ + STORE + "ret;")).kernel("k")(1, 64, y, x, dependent=True)
    assert device.faults == []


def test_a_device_with_workers_sees_the_same():
    pair = Pair(workers=2, chunk=32)
    y, (fault,) = pair.then(INPUT + READ + WAIT + STORE)
    assert (y, fault.count) == (OLD, 64)


def test_what_the_answer_depends_on_differs_between_schedules():
    def both(wait_first):
        def launches(device):
            x, y = (device.upload(np.zeros(64, np.uint32)) for _ in range(2))
            device.load(text(PRIMARY + ALLOW + "ret;")).kernel("k")(2, 32, x, x)
            body = INPUT + (WAIT + READ if wait_first else READ + WAIT) + STORE + "ret;"
            device.load(text(body)).kernel("k")(2, 32, y, x, dependent=True)
            return {"y": y}

        schedules = [Schedule("lowest pc"), Schedule("stack")]
        return compare_schedules(launches, schedules, {"dependents": "off"}, simwarp.Device)

    assert not both(wait_first=True)
    assert both(wait_first=False)


# ---- planted: a chain of two kernels in CUDA C++, the second of which reads too early

CHAIN = """
__device__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ void allow() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
extern "C" __global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    allow();
    if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void add(const float* y, const float* bias, float* z, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float b = i < n ? bias[i] : 0;  // no launch before writes the bias
    EARLY
    if (i < n) z[i] = y[i] + b;           // BUG, unless it waits
}
"""


@pytest.mark.parametrize("n", [1, 33, 257, 1000])
@pytest.mark.parametrize("waits", [True, False])
def test_a_dependent_grid_that_reads_before_its_wait_is_found(n, waits):
    source = CHAIN.replace("EARLY", "wait();" if waits else "")
    ptx, blocks = compile(source, "chain.cu").text, -(-n // 128)
    rng = np.random.default_rng(n)
    x, bias = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    device = simwarp.Device(checks={"dependents": "report"}, schedule="stack")
    arrays = [device.upload(host) for host in (x, np.zeros(n, np.float32), bias, np.zeros(n, np.float32))]
    plans = (
        LaunchPlan(ptx, "scale", (blocks, 1, 1), (128, 1, 1), (None, None, n)),
        LaunchPlan(ptx, "add", (blocks, 1, 1), (128, 1, 1), (None, None, None, n), dependent=True),
    )
    device.launch_all(LaunchChain(plans), [arrays[:2], arrays[1:]])
    np.testing.assert_array_equal(arrays[3].download(), 2 * x + bias)
    if waits:
        assert device.faults == []
    else:
        (fault,) = device.faults
        bug = 1 + source[: source.index("// BUG")].count("\n")
        assert (fault.place.source_file, fault.place.source_line, fault.count) == ("chain.cu", bug, n)
        assert fault.other.source_line == 1 + source[: source.index("y[i] = 2")].count("\n")


# ---- the CUDA device, whose driver is replaced


def test_cuda_launches_say_that_they_are_dependent(cuda_kernel):
    launch, driver = cuda_kernel()
    launch(4, 32, dependent=True)
    launch(4, 32, dependent=True, cluster=2, cooperative=True)
    both = [
        {a.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_") for a in call[0].attrs} for call in driver.launched
    ]
    assert both == [
        {"PROGRAMMATIC_STREAM_SERIALIZATION"},
        {"PROGRAMMATIC_STREAM_SERIALIZATION", "CLUSTER_DIMENSION", "COOPERATIVE"},
    ]
    assert all(
        a.value.programmaticStreamSerializationAllowed == 1
        for call in driver.launched
        for a in call[0].attrs
        if "PROGRAMMATIC" in a.id.name
    )


def test_a_chain_has_programmatic_edges_to_its_dependent_plans(cuda_kernel):
    launch, driver = cuda_kernel()
    edges, depends = [], []
    add = driver.calls["cuGraphAddKernelNode"]

    def add_node(graph, before, count, params):
        depends.append(before)
        return add(params)

    def add_edge(_, before, after, edge, count):
        edges.append((before, after, edge[0].from_port, int(edge[0].type), count))
        return (driver.success,)

    driver.calls |= {"cuGraphAddKernelNode": add_node, "cuGraphAddDependencies": add_edge}
    plans = [
        LaunchPlan("", "f", (1, 1, 1), (32, 1, 1), (), shared=shared, dependent=dependent)
        for shared, dependent in ((1, True), (2, False), (3, True))
    ]
    BoundChain([BoundLaunch(launch, plan) for plan in plans])
    assert depends == [None, ["node of 1 bytes"], None]
    assert edges == [(["node of 2 bytes"], ["node of 3 bytes"], 1, 1, 1)]
