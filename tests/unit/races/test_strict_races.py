"""Notes of ``races="strict"``: equal bits, volatile accesses, warp-synchronous code; right code is silent."""

import numpy as np
import pytest

from simwarp.run import Out, run

SCHEDULES = [{"schedule": "lowest pc"}, {"schedule": "stack"}] + [
    {"schedule": "random", "seed": seed} for seed in (1, 2, 3)
]
TAIL = """__global__ void reduce(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 32) {
        volatile float* v = s;
        float sum = v[t];
        for (int n = 32; n > 0; n /= 2) {
            sum += t < n ? v[t + n] : 0;
            SYNC
            v[t] = sum;
            SYNC
        }
    }
    if (t == 0) y[0] = s[0];
}"""
FLAG = """__global__ void flag(int* f, int* y) {
    if (threadIdx.x % 2) f[0] = VALUE;
    y[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}"""
POLL = """__global__ void poll(FLAG* flag, int* data, int* y) {
    if (threadIdx.x == 0 && blockIdx.x == 0) { data[0] = 5; __threadfence(); SET }
    if (threadIdx.x == 0 && blockIdx.x == 1) { while (TEST == 0); __threadfence(); y[0] = data[0]; }
}"""


def notes_of(source, grid, block, args, **options):
    result = run(source, grid=grid, block=block, args=args, checks="strict", cooperative=grid > 1, **options)
    assert all(fault.severity == "note" for fault in result.faults)
    return [str(fault) for fault in result.faults]


def tail(sync, **options):
    return notes_of(
        TAIL.replace("SYNC", sync), 1, 64, {"x": np.ones(64, np.float32), "y": Out("float32", 1)}, **options
    )


@pytest.mark.parametrize("options", SCHEDULES)
def test_warp_synchronous_code_is_noted_and_with_syncwarp_it_is_not(options):
    found = tail("", **options)
    assert found
    assert all("warp-synchronous code without __syncwarp()" in note for note in found)
    assert tail("__syncwarp();", **options) == []


@pytest.mark.parametrize("options", SCHEDULES)
def test_writes_of_equal_bits_are_noted_and_one_writer_is_not(options):
    args = {"f": np.zeros(1, np.int32), "y": Out("int32", 128)}
    found = notes_of(FLAG.replace("VALUE", "1"), 2, 64, args, **options)
    assert any("with the same bits" in note and "f[0]" in note for note in found)
    alone = FLAG.replace("VALUE", "1").replace("threadIdx.x % 2", "threadIdx.x + blockIdx.x == 0")
    assert notes_of(alone, 2, 64, args, **options) == []


@pytest.mark.parametrize("options", SCHEDULES[::2])
def test_a_volatile_flag_is_noted_and_atomic_operations_are_not(options):
    args = {"flag": np.zeros(1, np.int32), "data": np.zeros(1, np.int32), "y": Out("int32", 1)}
    volatile = {"FLAG": "volatile int", "SET": "*flag = 1;", "TEST": "*flag"}
    atomic = {"FLAG": "int", "SET": "atomicExch(flag, 1);", "TEST": "atomicAdd(flag, 0)"}
    source = POLL
    for word, text in volatile.items():
        source = source.replace(word, text)
    found = notes_of(source, 2, 32, args, **options)
    assert found
    assert all("flag[0]" in note and "volatile" in note for note in found)  # the data is ordered
    source = POLL
    for word, text in atomic.items():
        source = source.replace(word, text)
    assert notes_of(source, 2, 32, args, **options) == []


@pytest.mark.parametrize("source", [TAIL.replace("SYNC", ""), FLAG.replace("VALUE", "1")])
def test_by_default_there_are_no_notes(source):
    args = (
        [np.ones(64, np.float32), Out("float32", 1)]
        if "reduce" in source
        else [np.zeros(1, np.int32), Out("int32", 128)]
    )
    assert run(source, grid=1, block=64, args=args).faults == []


def test_a_race_is_still_raised():
    from simwarp.faults import Race

    with pytest.raises(Race):
        notes_of(
            FLAG.replace("VALUE", "threadIdx.x"), 2, 64, {"f": np.zeros(1, np.int32), "y": Out("int32", 128)}
        )


FREE = """__global__ void late(int* y) {
    __shared__ int* p;
    int t = threadIdx.x;
    if (t == 0) p = (int*)malloc(64 * sizeof(int));
    __syncthreads();
    p[t] = t;
    __syncthreads();
    y[t] = p[63 - t];
    SYNC
    if (t == 0) free(p);
}"""


@pytest.mark.parametrize("options", SCHEDULES)
def test_a_free_is_a_write_of_its_block(options):
    from simwarp.faults import Race, UseAfterFree

    with pytest.raises((Race, UseAfterFree)) as caught:
        run(FREE.replace("SYNC", ""), grid=1, block=64, args=[Out("int32", 64)], **options)
    assert caught.value.place.source_line in (8, 10)
    run(FREE.replace("SYNC", "__syncthreads();"), grid=1, block=64, args=[Out("int32", 64)], **options)
