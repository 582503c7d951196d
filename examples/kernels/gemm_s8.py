"""A matrix product on tensor cores, s8 in and s32 out, by the WMMA API: `gemm_s8.cu`."""

import sys

import numpy as np
from common import WARP_SIZE, divide_up, kernel, main, whole

from simwarp.verify import Draw

TILE, WARPS = 16, 4


def gemm_s8(device, a, b):
    """The product of int8 matrices (m, k) and (k, n) → int32 (m, n)."""
    (m, k), n = a.shape, b.shape[1]
    c = device.allocate((m, n), np.int32, "c")
    grid = (divide_up(n, WARPS * TILE), divide_up(m, TILE), 1)
    operands = device.upload(a, "a"), device.upload(b, "b"), c
    launch = kernel(device, "gemm_s8")
    launch(grid, (WARP_SIZE, WARPS, 1), *operands, np.uint32(m), np.uint32(n), np.uint32(k))
    return c.download()


def draw(seed=0):
    # Rows of a are pieces of 16 bytes, so that whole tiles come straight from memory; those of b are not.
    source = Draw(seed, "gemm_s8", 0)
    return integers(source, 53, 80), integers(source, 80, 72)


def integers(source, rows, columns):
    return whole(source, rows * columns, 256).astype(np.uint8).view(np.int8).reshape(rows, columns)


def run(device, seed=0):
    return {"product": gemm_s8(device, *draw(seed))}


def expected(seed=0):
    a, b = (matrix.astype(np.int32) for matrix in draw(seed))
    return {"product": (a @ b, 0)}


if __name__ == "__main__":
    sys.exit(main("gemm_s8", run, expected))
