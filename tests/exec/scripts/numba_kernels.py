"""What scripts of numba.cuda use: all kinds of memory, streams, shuffles, atomics, ufuncs, reductions."""

import math
import sys

import numpy as np
from numba import cuda, float32, vectorize


@cuda.jit
def scale(x, y, factor):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = factor * x[i] + math.sqrt(x[i])


@cuda.jit
def total(x, out):
    i = cuda.grid(1)
    value = x[i]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


@cuda.jit
def reverse(x):
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    x[i] = tile[63 - i]


@cuda.jit
def exchange(x):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    x[i] = i
    grid.sync()
    value = x[x.size - 1 - i]
    grid.sync()
    x[i] = value


@vectorize(["float32(float32, float32)"], target="cuda")
def product(a, b):
    return a * b


@cuda.reduce
def add(a, b):
    return a + b


def streams_and_memory(x):
    stream, began, ended = cuda.stream(), cuda.event(), cuda.event()
    began.record(stream)
    with cuda.pinned(x):
        given = cuda.to_device(x, stream=stream)
    result = cuda.device_array_like(given)
    scale[2, 64, stream](given, result, 2)
    ended.record(stream)
    stream.synchronize()
    assert cuda.event_elapsed_time(began, ended) >= 0
    np.testing.assert_allclose(result.copy_to_host(), 2 * x + np.sqrt(x), rtol=1e-6)
    managed = cuda.managed_array(x.size, np.float32)
    mapped = cuda.mapped_array(x.size, np.float32)
    managed[:] = x
    scale[2, 64](managed, mapped, 0)
    cuda.synchronize()
    np.testing.assert_allclose(mapped, np.sqrt(x), rtol=1e-6)


@cuda.jit
def half(x, y):
    y[0] = cuda.fp16.hadd(x[0], x[1])  # compiled by NVRTC


def main():
    x = np.arange(128, dtype=np.float32)
    streams_and_memory(x)
    out = cuda.to_device(np.zeros(1, np.float32))
    total[2, 64](cuda.to_device(x), out)
    assert out.copy_to_host()[0] == x.sum()
    turned = x[:64].copy()
    reverse[1, 64](turned)
    assert (turned == x[63::-1]).all()
    numbers = cuda.device_array(128, np.int32)
    exchange[2, 64](numbers)
    assert (numbers.copy_to_host() == np.arange(127, -1, -1)).all()
    assert (product(x, x) == x * x).all()
    assert add(x) == x.sum()
    found = np.zeros(1, np.float16)
    half[1, 1](np.array([1, 2], np.float16), found)
    assert found[0] == 3
    sys.stdout.write(" ".join(["numba_kernels: right", *sys.argv[1:]]) + "\n")


if __name__ == "__main__":
    main()
