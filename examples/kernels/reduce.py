"""Add numbers by shuffles, in a fixed order: `reduce.cu`."""

import sys

import numpy as np
from common import divide_up, gamma, kernel, main, reals

from simwarp.verify import Draw

THREADS, MOST_BLOCKS = 256, 16


def reduce(device, x):
    """The sum of float32 numbers (n,) → (1,)."""
    # The grid must not follow the device: with other shares, sums would round otherwise.
    blocks = min(divide_up(x.size, THREADS), MOST_BLOCKS)
    sums = device.allocate((blocks,), np.float32, "sums")
    total = device.allocate((1,), np.float32, "total")
    launch = kernel(device, "reduce")
    launch((blocks, 1, 1), (THREADS, 1, 1), device.upload(x, "x"), sums, np.uint32(x.size))
    launch((1, 1, 1), (THREADS, 1, 1), sums, total, np.uint32(blocks))
    return total.download()


def draw(seed=0):
    return reals(Draw(seed, "reduce", 0), 10007)


def run(device, seed=0):
    return {"sum": reduce(device, draw(seed))}


def expected(seed=0):
    x = draw(seed).astype(np.float64)
    return {"sum": (x.sum(keepdims=True), gamma(x.size) * np.abs(x).sum())}


if __name__ == "__main__":
    sys.exit(main("reduce", run, expected))
