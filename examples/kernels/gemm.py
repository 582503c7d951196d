"""A matrix product through tiles of shared memory, a chain of fused multiply-adds per element: `gemm.cu`."""

import sys

import numpy as np
from common import divide_up, gamma, kernel, main, reals

from simwarp.verify import Draw

TILE = 16


def gemm(device, a, b):
    """The product of float32 matrices (m, k) and (k, n) → (m, n)."""
    (m, k), n = a.shape, b.shape[1]
    c = device.allocate((m, n), np.float32, "c")
    grid = (divide_up(n, TILE), divide_up(m, TILE), 1)
    operands = device.upload(a, "a"), device.upload(b, "b"), c
    kernel(device, "gemm")(grid, (TILE, TILE, 1), *operands, np.uint32(m), np.uint32(n), np.uint32(k))
    return c.download()


def draw(seed=0):
    source = Draw(seed, "gemm", 0)
    return reals(source, 67, 53), reals(source, 53, 61)


def run(device, seed=0):
    return {"product": gemm(device, *draw(seed))}


def expected(seed=0):
    a, b = (matrix.astype(np.float64) for matrix in draw(seed))
    return {"product": (a @ b, gamma(a.shape[1]) * (np.abs(a) @ np.abs(b)))}


if __name__ == "__main__":
    sys.exit(main("gemm", run, expected))
