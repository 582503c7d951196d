"""A matrix product on tensor cores, f16 in and f32 out; its tiles arrive by cp.async: `gemm_cp_async.cu`."""

import sys

import numpy as np
from pipelines import Example, divide_up, eighths, main, pitched, ptx

from simwarp.verify import Draw

ARCH = (8, 0)
TILE, THREADS, STAGES = 64, 128, 3


def gemm(device, a, b, stages=STAGES):
    """The product of float16 matrices (m, k) and (k, n) → float32 (m, n)."""
    (m, k), n = a.shape, b.shape[1]
    kernel = device.load(ptx("gemm_cp_async", ARCH, {"STAGES": stages}).text).kernel("gemm_cp_async")
    a, b = pitched(a), pitched(b)
    c = device.allocate((m, n), np.float32, "c")
    sizes = map(np.uint32, (m, n, k, a.shape[1], b.shape[1]))
    grid = (divide_up(n, TILE), divide_up(m, TILE), 1)
    kernel(grid, (THREADS, 1, 1), device.upload(a, "a"), device.upload(b, "b"), c, *sizes)
    return c.download()


def draw(shape, seed):
    (m, n, k), source = shape, Draw(seed, "gemm_cp_async", 0)
    return eighths(source, m, k).astype(np.float16), eighths(source, k, n).astype(np.float16)


def run(device, shape, seed):
    return gemm(device, *draw(shape, seed))


def expected(shape, seed):
    a, b = draw(shape, seed)
    return (a.astype(np.float64) @ b.astype(np.float64) + 0.0).astype(np.float32)  # a sum of -0 is +0


EXAMPLE = Example("gemm_cp_async", ARCH, ((64, 64, 64), (96, 80, 72), (33, 7, 101)), run, expected)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))
