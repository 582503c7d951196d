"""Endless loops are named soon, whatever else changes in them; loops that end are not."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.engine.schedule import livelock
from simwarp.engine.schedule import scheduler as scheduling
from simwarp.faults import Livelock, NeedsIndependentProgress, OutOfBounds, RunawayKernel

BUDGET = 400_000
"""Steps that the endless loops must not need."""
ENDLESS = r"""
#define KERNEL extern "C" __global__ void
__device__ __noinline__ unsigned wait(volatile unsigned* x) {
    unsigned n = 0;
    while (*x == 0) n++;  // in_function
    return n;
}
KERNEL narrow(unsigned* x, unsigned* out, unsigned n) {
    for (unsigned char i = 0; i < 256; i++)
        atomicAdd(x, 1);  // narrow
    out[0] = 1;
}
KERNEL counted(volatile unsigned* x, unsigned* out, unsigned n) {
    unsigned tries = 0;
    while (x[0] == 0) tries++;  // counted
    out[threadIdx.x] = tries;
}
KERNEL timed(unsigned* x, unsigned* out, unsigned n) {
    __shared__ unsigned left;
    if (threadIdx.x == 0) left = blockDim.x;
    __syncthreads();
    atomicSub(&left, 1 + (threadIdx.x == 3));
    long long start = clock64();
    while (atomicOr(&left, 0) != 0) {  // timed
        long long waited = clock64() - start;
        if (waited > 4000) __nanosleep(1000);
        else if (waited > 40) __nanosleep(waited / 4);
    }
    out[threadIdx.x] = 1;
}
KERNEL in_memory(volatile unsigned* x, volatile unsigned* out, unsigned n) {
    __shared__ volatile unsigned tries[64], flag;
    flag = 0; tries[threadIdx.x] = 0;
    __syncthreads();
    while (flag == 0) { tries[threadIdx.x]++; out[threadIdx.x]++; }  // in_memory
}
KERNEL ragged(volatile unsigned* x, unsigned* out, unsigned n) {
    unsigned tries = 0;
    if (threadIdx.x % 5 == 1)
        while (x[threadIdx.x % 3] == 0) tries += threadIdx.x;  // ragged
    __syncthreads();
    out[threadIdx.x] = tries;
}
KERNEL in_function(volatile unsigned* x, unsigned* out, unsigned n) {
    out[threadIdx.x] = blockIdx.x == 1 ? wait(x) : 5;
}
KERNEL locked(unsigned* x, unsigned* out, unsigned n) {
    unsigned backoff = 8, tries = 0;
    while (atomicCAS(x, 0, 1) != 0) {  // locked
        __nanosleep(backoff);
        if (backoff < 256) backoff *= 2;
        tries++;
    }
    out[threadIdx.x] = tries;  // nobody unlocks
}
KERNEL no_way_out(unsigned* x, unsigned* out, unsigned n) {
    for (unsigned i = 0;; i++)
        atomicXor(&out[i % n], i);  // no_way_out
}
"""
ENDS = r"""
#define KERNEL extern "C" __global__ void
KERNEL tries_are_bounded(volatile unsigned* x, unsigned* out, unsigned n) {
    unsigned tries = 0;
    while (x[0] == 0 && tries < n) tries++;
    out[threadIdx.x] = tries;
}
KERNEL time_is_bounded(volatile unsigned* x, unsigned* out, unsigned n) {
    long long start = clock64();
    unsigned tries = 0;
    while (x[0] == 0 && clock64() - start < 300 * n) tries++;
    out[threadIdx.x] = n;
}
KERNEL carries(unsigned* x, unsigned* out, unsigned n) {
    unsigned char low = 0;
    unsigned high = 0;
    for (;;) {
        asm volatile("");
        if (++low == 0) high++;
        atomicAdd(x, 1);
        if (high == n / 256) break;
    }
    out[threadIdx.x] = n;
}
KERNEL counts_in_memory(volatile unsigned* x, unsigned* out, unsigned n) {
    __shared__ volatile unsigned count;
    count = 0;
    __syncwarp();
    while (count < n) { if (threadIdx.x == 0) count = count + 1; }
    out[threadIdx.x] = count;
}
KERNEL seldom(unsigned* x, unsigned* out, unsigned n) {
    unsigned tries = 0;
    while (atomicOr(x, 0) < 10) if (++tries % (n / 10) == 0) atomicAdd(x, 1);
    out[threadIdx.x] = n;
}
KERNEL waits_for_work(volatile unsigned* x, unsigned* out, unsigned n) {
    unsigned tries = 0, state = 1;
    if (threadIdx.x >= 32) {
        for (unsigned i = 0; i < n; i++) state = state * 1664525 + 1013904223;
        out[63] = state;
        __threadfence();
        x[0] = 1;
    } else while (x[0] == 0) tries++;
    out[threadIdx.x] = n + 0 * tries;
}
KERNEL contention(unsigned* x, unsigned* out, unsigned n) {
    unsigned tries = 0;
    bool done = false;
    while (!done) {
        if (atomicCAS(x, 0, 1) == 0) {
            for (unsigned i = 0; i < 5; i++) ((volatile unsigned*)x)[1]++;
            __threadfence();
            atomicExch(x, 0);
            done = true;
        }
        tries++;
    }
    out[threadIdx.x] = n + 0 * tries;
}
KERNEL meets_in_grid(volatile unsigned* x, unsigned* out, unsigned n) {
    unsigned tries = 0;
    for (unsigned phase = 1; phase <= 20; phase++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd((unsigned*)x, 1);
            while (x[0] < phase * gridDim.x) tries++;
            __threadfence();
        }
        __syncthreads();
    }
    out[threadIdx.x] = n;
}
KERNEL walks(volatile unsigned* x, unsigned* out, unsigned n) {
    unsigned i = 0;
    while (out[i] == 7) i++;
    x[threadIdx.x] = i;
    __syncthreads();
    out[threadIdx.x] = n;
}
"""
PLANTED = ["narrow", "counted", "timed", "in_memory", "ragged", "in_function", "locked", "no_way_out"]
TWINS = [word.split("(")[0] for word in ENDS.split("KERNEL ")[2:]]
ONE_WARP, ONE_BLOCK = ("counts_in_memory", "seldom"), ("walks",)
SCHEDULES = pytest.mark.parametrize("schedule", ["lowest pc", "stack"])


def launch(source, name, n, **options):
    """The answers of a launch; ``x`` is 0, and so is ``out`` behind its first ``n`` words."""
    device, block = simwarp.Device(checks={"races": "off"}, **options), 32 if name in ONE_WARP else 64
    kernel = device.load(compile(source, "loops.cu")).kernel(name)
    words = np.where(np.arange(n + 64) < n, 7, 0).astype(np.uint32)
    x, out = device.upload(np.zeros(64, np.uint32)), device.upload(words)
    kernel((1 if name in ONE_BLOCK else 2, 1, 1), (block, 1, 1), x, out, np.uint32(n))
    return set(out.download()[:block].tolist())


@pytest.mark.at_most(3)
@SCHEDULES
@pytest.mark.parametrize("name", PLANTED)
def test_an_endless_loop_is_named_whatever_it_counts(name, schedule, monkeypatch):
    monkeypatch.setattr(livelock, "_NO_WAY_OUT", 16)
    with pytest.raises((Livelock, NeedsIndependentProgress)) as caught:
        launch(ENDLESS, name, 40, schedule=schedule, instruction_budget=BUDGET)
    assert f"// {name}" in ENDLESS.splitlines()[caught.value.place.source_line - 1]


@pytest.mark.at_most(3)
@SCHEDULES
@pytest.mark.parametrize("name", TWINS)
def test_a_long_loop_that_ends_is_not_reported(name, schedule, monkeypatch):
    monkeypatch.setattr(scheduling, "_LOOK", 16)  # as often as in a loop that is 256 times as long
    monkeypatch.setattr(scheduling, "_POLLING_TURN", 16)
    if (name, schedule) == ("contention", "stack"):
        with pytest.raises(NeedsIndependentProgress):
            launch(ENDS, name, 1024, schedule=schedule)
    else:
        assert launch(ENDS, name, 1024, schedule=schedule) == {1024}


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["narrow", "timed", "ragged"])
def test_the_random_schedule_finds_it_too(name, seed):
    with pytest.raises(Livelock) as caught:
        launch(ENDLESS, name, 40, schedule="random", seed=seed)
    assert f"// {name}" in ENDLESS.splitlines()[caught.value.place.source_line - 1]


@pytest.mark.slow
def test_a_walk_without_an_end_leaves_its_array():
    """Addresses that change lead out of the array: the fault is that, although nothing leaves the loop."""
    source = 'extern "C" __global__ void k(unsigned* x) { for (unsigned i = 0;; i++) atomicAdd(&x[i], 1); }'
    device = simwarp.Device()
    kernel = device.load(compile(source, "walk.cu")).kernel("k")
    with pytest.raises(OutOfBounds):
        kernel((1, 1, 1), (32, 1, 1), device.upload(np.zeros(2000, np.uint32)))


@pytest.mark.slow
def test_what_only_the_budget_ends():
    """The index repeats, but what it is computed from does not."""
    source = """extern "C" __global__ void k(volatile unsigned* x, unsigned n) {
        for (unsigned i = 0; x[i % n] == 0; i++);
    }"""
    device = simwarp.Device(instruction_budget=20_000)
    kernel = device.load(compile(source, "walk.cu")).kernel("k")
    with pytest.raises(RunawayKernel, match="instructions executed") as caught:
        kernel((1, 1, 1), (32, 1, 1), device.upload(np.zeros(5, np.uint32)), np.uint32(5))
    assert not isinstance(caught.value, Livelock)
