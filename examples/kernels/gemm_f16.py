"""A matrix product on tensor cores, f16 in and f32 out, by ldmatrix and mma.sync: `gemm_f16.cu`."""

import sys

import numpy as np
from common import divide_up, kernel, main, reals

from simwarp.verify import Draw

TILE, THREADS, DEPTH = 64, 128, 16


def gemm_f16(device, a, b):
    """The product of float16 matrices (m, k) and (k, n) → float32 (m, n)."""
    (m, k), n = a.shape, b.shape[1]
    c = device.allocate((m, n), np.float32, "c")
    grid = (divide_up(n, TILE), divide_up(m, TILE), 1)
    operands = device.upload(a, "a"), device.upload(b, "b"), c
    kernel(device, "gemm_f16")(grid, (THREADS, 1, 1), *operands, np.uint32(m), np.uint32(n), np.uint32(k))
    return c.download()


def draw(seed=0):
    source = Draw(seed, "gemm_f16", 0)
    return reals(source, 97, 83).astype(np.float16), reals(source, 83, 71).astype(np.float16)


def run(device, seed=0):
    return {"product": gemm_f16(device, *draw(seed))}


def expected(seed=0):
    a, b = (matrix.astype(np.float64) for matrix in draw(seed))
    return {"product": (a @ b, truncation(a.shape[1]) * (np.abs(a) @ np.abs(b)))}


def truncation(k):
    """A bound on the tensor cores' truncation error, relative to the sum of the products' magnitudes.

    An instruction adds 16 products to the accumulator. Each of the 17 is cut off 25 bits below the leading
    one of the largest, or above that, and the sum to the 24 bits of a float32; every step adds to that.
    """
    step = 17 * 2.0**-25 + 2.0**-23
    return (1 + step) ** divide_up(k, DEPTH) - 1


if __name__ == "__main__":
    sys.exit(main("gemm_f16", run, expected))
