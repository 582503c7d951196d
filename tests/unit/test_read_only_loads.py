"""Read-only loads (``ld.global.nc``) of bytes that their launch writes, whoever writes, in any order."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import ReadOnlyLoad
from support import small_kernels as small

SCHEDULES = [("lowest pc", 0), ("stack", 0), ("random", 1), ("random", 2), ("random", 3)]
every_schedule = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)

ARRAYS = "mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %in, %rd1; xor.b32 %r3, %r1, 33;\n"
ARRAYS += "mul.wide.u32 %rd3, %r3, 4; add.u64 %rd3, %in, %rd3; mov.u32 %r4, %ctaid.x; mov.u32 %r2, 0;\n"
"""``%rd2`` is the thread's word of ``in``, ``%rd3`` that of a thread of another warp."""
LOAD, STORE = "ld.global.nc.u32 %r2, [{}];\n", "st.global.u32 [{}], %i;\n"
BLOCK = "setp.eq.u32 %p1, %r4, {}; @!%p1 bra B{}; {} B{}:\n"
TILE = """mov.u64 %rd4, tile; mul.wide.u32 %rd5, %r1, 16; add.u64 %rd5, %rd4, %rd5;
st.shared.v4.u32 [%rd5], {%r1, %r1, %r1, %r1}; fence.proxy.async; bar.sync 0; setp.eq.u32 %p2, %r1, 0;
@%p2 cp.async.bulk.global.shared::cta.bulk_group [%in], [%rd4], 256;
@%p2 cp.async.bulk.commit_group; @%p2 cp.async.bulk.wait_group 0; bar.sync 0;
"""
WRONG = {
    "another thread wrote": STORE.format("%rd2") + "bar.sync 0;\n" + LOAD.format("%rd3"),
    "another thread writes later": LOAD.format("%rd3") + "bar.sync 0;\n" + STORE.format("%rd2"),
    "the same thread wrote": STORE.format("%rd2") + LOAD.format("%rd2"),
    "the same thread writes later": LOAD.format("%rd2") + STORE.format("%rd2"),
    "an update": "red.global.add.u32 [%rd2], 1; bar.sync 0;\n" + LOAD.format("%rd3"),
    "a strong store": "st.release.gpu.global.u32 [%rd2], 5; bar.sync 0;\n" + LOAD.format("%rd3"),
    "a bulk store": TILE + LOAD.format("%rd3"),
    "a bulk store later": LOAD.format("%rd3") + "bar.sync 0;\n" + TILE,
    "a vector, with hints": STORE.format("%rd2")
    + "bar.sync 0; and.b32 %r3, %r1, 60; mad.wide.u32 %rd3, %r3, 4, %in;\n"
    "ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%r2, %r5, %r6, %r7}, [%rd3];\n",
    "a byte of the word": STORE.format("%rd2") + "bar.sync 0; ld.global.nc.u8 %r2, [%rd3+3];\n",
    "another block wrote": BLOCK.format(0, 0, STORE.format("%rd2"), 0)
    + BLOCK.format(1, 1, LOAD.format("%rd3"), 1),
    "another block writes": BLOCK.format(1, 1, STORE.format("%rd2"), 1)
    + BLOCK.format(0, 0, LOAD.format("%rd3"), 0),
}
RIGHT = {
    "plain loads": WRONG["another thread wrote"].replace(".nc", ""),
    "other bytes": STORE.format("%rd2") + "bar.sync 0;\n" + LOAD.format("%rd3+256"),
    "nothing is written": LOAD.format("%rd3"),
}


def run(body, schedule, seed, grid):
    device = simwarp.Device(schedule=schedule, seed=seed, chunk_lanes=64, instruction_budget=100_000)
    before = ".shared .align 16 .b8 tile[1024];"
    small.run(ARRAYS + body + small.STORE, 64, grid, np.arange(256), device, before=before)


@every_schedule
@pytest.mark.parametrize("name", WRONG)
def test_a_read_only_load_of_what_the_launch_writes_is_named(name, schedule, seed):
    with pytest.raises(ReadOnlyLoad) as caught:
        run(WRONG[name], schedule, seed, 2 if "block" in name else 1)
    fault = caught.value
    assert "ld.global.nc" in fault.place.text
    assert "ld.global.nc" not in fault.other.text
    assert (fault.allocation, fault.space, fault.check) == ("in", "global", "races")


@every_schedule
@pytest.mark.parametrize("name", RIGHT)
def test_right_loads_are_silent(name, schedule, seed):
    run(RIGHT[name], schedule, seed, 1)


def test_a_later_launch_may_load_what_an_earlier_one_wrote():
    device = simwarp.Device()
    x, y = device.upload(np.arange(64, dtype=np.uint32), "x"), device.upload(np.zeros(64, np.uint32), "y")
    for body, out in ((STORE.format("%rd2"), y), (LOAD.format("%rd3"), y)):
        device.load(small.text(ARRAYS + body + small.STORE)).kernel("k")(1, 64, out, x)


SHIFT = """extern "C" __global__ void shift(const int* __restrict__ x, int* __restrict__ y) {
    y[threadIdx.x] = x[threadIdx.x + 64];
    __syncthreads();
    y[threadIdx.x + 64] = x[threadIdx.x + 128];
}"""


def test_one_array_for_a_restricted_input_and_an_output_is_named_by_its_lines():
    device = simwarp.Device()
    x, y = (device.upload(np.arange(256, dtype=np.int32), name) for name in "xy")
    kernel = device.load(compile(SHIFT, "shift.cu")).kernel("shift")
    kernel(1, 64, x, y)
    with pytest.raises(ReadOnlyLoad, match=r"read of x\[64\], which this launch writes") as caught:
        kernel(1, 64, x, x)
    assert (caught.value.place.source_line, caught.value.other.source_line) == (2, 4)
    assert "__restrict__" in caught.value.advice


CHUNKS = """mov.u64 %rd4, tile; mov.u32 %r2, 0; mov.u32 %r4, %ctaid.x;
mul.wide.u32 %rd5, %r1, 16; add.u64 %rd5, %rd4, %rd5; st.shared.v4.u32 [%rd5], {%i, %i, %i, %i};
fence.proxy.async; bar.sync 0; setp.ne.u32 %p2, %r1, 0; @%p2 bra END; setp.ne.u32 %p3, %r4, 0; @%p3 bra NEXT;
cp.async.bulk.global.shared::cta.bulk_group [%in], [%rd4], 16;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; bra END;
NEXT: ld.global.u32 %r2, [%in];
END:
"""


def test_a_copy_of_blocks_that_ran_before_is_named_as_a_copy():
    device = simwarp.Device(chunk_lanes=64)
    with pytest.raises(simwarp.faults.CopyInFlight) as caught:
        small.run(
            CHUNKS + small.STORE, 64, 2, np.arange(64), device, before=".shared .align 16 .b8 tile[1024];"
        )
    assert "cp.async.bulk" in caught.value.copy.text
