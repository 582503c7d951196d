"""A matrix product on warpgroups, f16 in and f32 out, through tensor maps: `gemm_wgmma_f16.cu`."""

import sys

import numpy as np
from pipelines import Example, divide_up, eighths, main, pitched, ptx

from simwarp.verify import Draw

ARCH = (9, 0)
TILE, THREADS, STAGES = 128, 288, 4
DEPTH = 64
"""Elements along k in a step."""
SPAN = 128
"""Bytes of a row in a box, and of the swizzle."""
SIGNAL = 16
"""Bytes of the two mbarriers of a stage."""


def gemm(device, a, b, stages=STAGES, blocks=None):
    """The product of float16 matrices (m, k) and (k, n) → float32 (m, n).

    As many blocks as the device has multiprocessors share the tiles, or ``blocks``.
    """
    (m, k), n = a.shape, b.shape[1]
    kernel = device.load(ptx("gemm_wgmma_f16", ARCH, {"STAGES": stages}).text).kernel("gemm_wgmma_f16")
    of_a, of_b = device.upload(pitched(a), "a"), device.upload(pitched(b), "b")
    c = device.upload(pitched(np.zeros((m, n), np.float32)), "c")
    tiles = divide_up(m, TILE) * divide_up(n, TILE)
    kernel(
        min(tiles, blocks or device.multiprocessors),
        THREADS,
        mapped(device, of_a, (m, k), TILE),
        mapped(device, of_b, (k, n), DEPTH),
        mapped(device, c, (m, n), TILE // 2),
        *map(np.uint32, (m, n, divide_up(k, DEPTH))),
        shared=stages * (2 * TILE * SPAN + SIGNAL) + TILE * TILE * 4,
    )
    return c.download()[:, :n]


def mapped(device, matrix, shape, rows):
    """A tensor map of a matrix, in boxes of so many rows of `SPAN` bytes."""
    itemsize = matrix.dtype.itemsize
    strides = (matrix.shape[1] * itemsize,)
    return device.tensor_map(matrix, (rows, SPAN // itemsize), shape=shape, strides=strides, swizzle=SPAN)


def draw(shape, seed):
    (m, n, k), source = shape, Draw(seed, "gemm_wgmma_f16", 0)
    return eighths(source, m, k).astype(np.float16), eighths(source, k, n).astype(np.float16)


def run(device, shape, seed):
    return gemm(device, *draw(shape, seed))


def expected(shape, seed):
    a, b = draw(shape, seed)
    return (a.astype(np.float64) @ b.astype(np.float64) + 0.0).astype(np.float32)  # a sum of -0 is +0


EXAMPLE = Example("gemm_wgmma_f16", ARCH, ((130, 72, 330), (3, 300, 33)), run, expected)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))
