"""The reserved part of shared memory (PTX ISA 10.27 ff.) is separate from the kernel's, and zeroed."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import OutOfBounds, Race
from support import small_kernels as small

STORE, run, fault_of = small.STORE, small.run, small.fault_of

AT = "mov.u32 %r5, %reserved_smem_offset_1; mov.u32 %r6, %tid.x; mad.lo.u32 %r5, %r6, 4, %r5;\n"
OWN = ".shared .b32 own[32];"
GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void own(int* out, int* sums) {
    __shared__ unsigned data[128];
    __shared__ cg::block_tile_memory<128> scratch;
    auto cta = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<64>(cta);
    data[threadIdx.x] = 0xffffffffu;
    cta.sync();
    sums[threadIdx.x] = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
    tile.sync();
    out[threadIdx.x] = data[threadIdx.x];
}
extern "C" __global__ void none(int* out, int* sums) {
    auto tile = cg::tiled_partition<128>(cg::this_thread_block());
    sums[threadIdx.x] = tile.thread_rank();
    tile.sync();
    out[threadIdx.x] = sums[127 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def groups():
    return compile(GROUPS, "groups.cu", options=["--std=c++17"]).text


@pytest.mark.at_most(1)
@pytest.mark.parametrize("schedule", ["lowest pc", "random"])
def test_multi_warp_cooperative_groups_do_not_touch_the_kernels_memory(groups, schedule):
    device = simwarp.Device(schedule=schedule)
    out, sums = (device.upload(np.zeros(128, np.int32)) for _ in range(2))
    device.load(groups).kernel("own")((1, 1, 1), (128, 1, 1), out, sums)
    assert (out.download() == -1).all()
    assert sums.download().tolist() == [sum(range(64))] * 64 + [sum(range(64, 128))] * 64


def test_a_kernel_without_shared_memory_has_the_reserved_part(groups):
    device = simwarp.Device()
    out, sums = (device.upload(np.zeros(128, np.int32)) for _ in range(2))
    device.load(groups).kernel("none")((1, 1, 1), (128, 1, 1), out, sums)
    assert out.download().tolist() == list(range(127, -1, -1))


@pytest.mark.parametrize("space", [".shared", ""])
def test_each_block_has_its_own_zeroed_reserved_part(space):
    address = AT + "cvt.u64.u32 %rd5, %r5;" + ("" if space else "cvta.shared.u64 %rd5, %rd5;")
    body = f"{address} ld{space}.u32 %r2, [%rd5]; add.u32 %r7, %i, 1; st{space}.u32 [%rd5], %r7;"
    body += f"ld{space}.u32 %r8, [%rd5]; mad.lo.u32 %r2, %r2, 1000, %r8; {STORE}"
    assert run(body, block=64, grid=3) == list(range(1, 193))


def test_one_access_may_reach_own_and_reserved_shared_memory():
    body = AT + "mov.u32 %r7, own; mad.lo.u32 %r7, %r6, 4, %r7;\n"
    body += "and.b32 %r8, %r6, 1; setp.ne.u32 %p1, %r8, 0; selp.b32 %r5, %r5, %r7, %p1;\n"
    body += f"add.u32 %r9, %i, 5; st.shared.u32 [%r5], %r9; ld.shared.u32 %r2, [%r5]; {STORE}"
    assert run(body, before=OWN, grid=2) == [i + 5 for i in range(64)]


READ = "mov.u32 %r5, %reserved_smem_offset_begin; ld.shared.b64 %rd5, [%r5+{}]; ret;"


def test_the_last_word_of_the_reserved_part_is_readable():
    run(READ.format(1016), block=1)


@pytest.mark.parametrize("offset", [-8, 1024])
def test_accesses_around_the_reserved_part_are_out_of_bounds(offset):
    assert fault_of(OutOfBounds, READ.format(offset), block=1, before=OWN).space == "shared"


def test_an_overflow_of_kernel_memory_into_the_reserved_part_is_a_fault():
    body = "mov.u32 %r5, %reserved_smem_offset_1; st.shared.u32 [own+128], %r5; ret;"
    assert fault_of(OutOfBounds, body, block=1, before=OWN).offset == 128


def test_races_in_the_reserved_part_are_reported():
    body = "mov.u32 %r5, %reserved_smem_offset_1; st.shared.u32 [%r5], %i; ret;"
    assert fault_of(Race, body).space == "shared"
