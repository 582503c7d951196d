"""A product of two ±1 matrices on tensor cores, one bit per element, by mma.sync: `gemm_b1.cu`."""

import sys

import numpy as np
from common import divide_up, kernel, main, whole

import reference
from simwarp.verify import Draw

TILE, THREADS = 64, 128


def gemm_b1(device, a, b):
    """The product of the signs of real matrices (m, k) and (k, n) → int32 (m, n)."""
    (m, k), n = a.shape, b.shape[1]
    a_words = reference.pack(a, layout="column", first="lsb").words
    b_words = reference.pack(b, layout="row", first="lsb").words
    c = device.allocate((m, n), np.int32, "c")
    grid = (divide_up(n, TILE), divide_up(m, TILE), 1)
    operands = device.upload(a_words, "a"), device.upload(b_words, "b"), c
    kernel(device, "gemm_b1")(grid, (THREADS, 1, 1), *operands, np.uint32(m), np.uint32(n), np.uint32(k))
    return c.download()


def draw(seed=0):
    source = Draw(seed, "gemm_b1", 0)
    return signs(source, 97, 523), signs(source, 523, 71)


def signs(source, rows, columns):
    return (2 * whole(source, rows * columns, 2).astype(np.int8) - 1).reshape(rows, columns)


def run(device, seed=0):
    return {"product": gemm_b1(device, *draw(seed))}


def expected(seed=0):
    return {"product": (reference.bmm(*draw(seed)), 0)}


if __name__ == "__main__":
    sys.exit(main("gemm_b1", run, expected))
