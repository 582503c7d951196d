"""Stored pointers to another block's shared or another thread's local memory are reported when used."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import ForeignPointer

SOURCE = """
struct Range { int* begin; int* end; };
__device__ int* P[4]; __device__ int* one; __device__ Range ranges[4];
extern "C" __global__ void blocks(int* y, int by) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x + blockIdx.x;
    if (threadIdx.x == 0) P[blockIdx.x] = tile;
    __syncthreads();
    int* theirs = P[(blockIdx.x + by) % gridDim.x];
    y[blockIdx.x * 64 + threadIdx.x] = theirs[threadIdx.x ^ 1];
}
extern "C" __global__ void structures(int* y, int by) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x + blockIdx.x;
    if (threadIdx.x == 0) ranges[blockIdx.x] = Range{tile, tile + 64};
    __syncthreads();
    Range theirs = ranges[(blockIdx.x + by) % gridDim.x];
    y[blockIdx.x * 64 + threadIdx.x] = theirs.end[-1 - (int)(threadIdx.x ^ 62)];
}
extern "C" __global__ void threads(int* y, int by) {
    __shared__ int* p[64];
    int mine[4];
    for (int i = 0; i < 4; i++) mine[(i + by) % 4] = threadIdx.x + blockIdx.x;
    p[threadIdx.x] = mine;
    __syncthreads();
    y[blockIdx.x * 64 + (threadIdx.x ^ 1)] = p[(threadIdx.x + by) % 64][by & 3];
}
extern "C" __global__ void looks(int* y, int by) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x + blockIdx.x;
    if (threadIdx.x == 0) { P[blockIdx.x] = tile; ranges[blockIdx.x] = Range{tile, tile + 64}; }
    __syncthreads();
    int* mine = nullptr; int set = 0;
    for (int b = 0; b < gridDim.x; b++) {
        int* p = P[b];
        if (p != nullptr) set++;
        if (b == blockIdx.x) mine = p;
    }
    Range theirs = ranges[(blockIdx.x + by) % gridDim.x];
    one = theirs.begin;
    int length = theirs.begin ? theirs.end - theirs.begin : 64;
    y[blockIdx.x * 64 + threadIdx.x] = mine[threadIdx.x ^ 1] + tile[length - 1 - threadIdx.x] * 0 + set * 0;
}
extern "C" __global__ void same(int* y, int by) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x + blockIdx.x;
    if (threadIdx.x == 0) one = tile;
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = one[threadIdx.x ^ 1];
}
extern "C" __global__ void replaced(int* y, int by) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x + blockIdx.x;
    int other = (blockIdx.x + by) % gridDim.x;
    if (threadIdx.x == 0) P[blockIdx.x] = tile;
    __syncthreads();
    if (threadIdx.x == 0) P[other] = y + blockIdx.x * 64;
    __syncthreads();
    if (threadIdx.x < 64) y[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x ^ 1];
    __syncthreads();
    if (threadIdx.x == 63) *P[other] += 0;
}
"""
RIGHT = [(t ^ 1) + b for b in range(4) for t in range(64)]
HOW = [pytest.param([], id="O3"), pytest.param(["-G"], id="G")]


def launch(name, by, how, **options):
    checks = {"races": "off"} | options.pop("checks", {})
    there = simwarp.Device(checks=checks, **options)
    y = there.upload(np.full(256, -1, np.int32), "y")
    kernel = there.load(compile(SOURCE, "k.cu", options=how).text).kernel(name)
    kernel((4, 1, 1), (64, 1, 1), y, np.int32(by))
    return there, y.download().tolist()


PLANTED = [("blocks", "shared", 10, 7), ("structures", "shared", 18, 15), ("threads", "local", 26, 24)]


@pytest.mark.at_most(3)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("name", "space", "line", "stored"), PLANTED)
def test_a_foreign_pointer_names_the_owner_of_its_memory(name, space, line, stored, how):
    assert launch(name, 0, how)[1] == RIGHT
    with pytest.raises(ForeignPointer) as caught:
        launch(name, 1, how)
    fault = caught.value
    assert (fault.space, fault.place.source_line, fault.stored.source_line) == (space, line, stored)
    assert fault.place.block == (0, 0, 0)
    if space == "shared":
        assert fault.stored.block == (1, 0, 0)
        assert "another block's shared memory" in fault.what
    else:
        assert (fault.stored.block, fault.stored.lane) == ((0, 0, 0), fault.place.lane + 1)
        assert "another thread's local memory" in fault.what


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("by", [0, 1, 3])
@pytest.mark.parametrize("name", ["looks", "same", "replaced"])
def test_an_unused_foreign_pointer_is_not_reported(name, by, how):
    assert launch(name, by, how)[1] == RIGHT


@pytest.mark.parametrize("lanes", [64, 128])
def test_a_foreign_pointer_is_found_when_blocks_run_in_sequence(lanes):
    there, _ = launch("blocks", 3, [], chunk_lanes=lanes, checks={"bounds": "report"})
    null, foreign = there.faults  # block 0 finds a null pointer
    assert (null.place.block, type(foreign), foreign.count) == ((0, 0, 0), ForeignPointer, 192)
    assert (foreign.place.block, foreign.stored.block) == ((1, 0, 0), (0, 0, 0))
    assert launch("blocks", 0, [], chunk_lanes=lanes)[1] == RIGHT


def test_a_reported_foreign_read_returns_poison():
    there, left = launch("blocks", 1, [], checks={"bounds": "report"})
    ((fault),) = there.faults
    assert (type(fault), fault.count) == (ForeignPointer, 256)
    assert {word & 0xFFFFFFFF for word in left} == {0xA5A5A5A5}
    assert launch("blocks", 1, [], checks={"bounds": "off"})[1] == RIGHT


CLUSTER = """
#include <cooperative_groups.h>
__device__ int* P[4];
extern "C" __global__ void __cluster_dims__(4) k(int* y, int mapped) {
    __shared__ int tile[64];
    auto cluster = cooperative_groups::this_cluster();
    tile[threadIdx.x] = threadIdx.x + blockIdx.x;
    if (threadIdx.x == 0) P[blockIdx.x] = mapped ? cluster.map_shared_rank(tile, blockIdx.x) : tile;
    cluster.sync();
    int* theirs = P[blockIdx.x ^ 1];
    if (mapped == 2) theirs = cluster.map_shared_rank(tile, blockIdx.x ^ 1);
    y[blockIdx.x * 64 + threadIdx.x] = theirs[threadIdx.x ^ 1];
    cluster.sync();
}"""


@pytest.mark.slow
def test_a_mapped_cluster_address_reaches_its_block():
    there = simwarp.Device()
    y = there.upload(np.zeros(256, np.int32), "y")
    kernel = there.load(compile(CLUSTER, "k.cu").text).kernel("k")
    for mapped in (1, 2):
        kernel((4, 1, 1), (64, 1, 1), y, np.int32(mapped))
        assert y.download().tolist() == [(t ^ 1) + (b ^ 1) for b in range(4) for t in range(64)]
    with pytest.raises(ForeignPointer) as caught:
        kernel((4, 1, 1), (64, 1, 1), y, np.int32(0))
    assert "map_shared_rank" in str(caught.value)
