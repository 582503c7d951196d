"""A matrix product of bits; blocks of a cluster share tiles by multicast: `gemm_b1_multicast.cu`."""

import sys

import numpy as np
from pipelines import Example, bits, main, packed, ptx

from simwarp.verify import Draw

ARCH = (9, 0)
TILE, THREADS, WORDS = 64, 160, 8
CLUSTER, STAGES = 2, 3


def gemm(device, a, b, cluster=CLUSTER, stages=STAGES):
    """The product of matrices of 0s and 1s, (m, k) and (k, n) → int32 (m, n).

    A cluster has 1, 2, 4 or 8 blocks.
    """
    m, n = a.shape[0], b.shape[1]
    text = ptx("gemm_b1_multicast", ARCH, {"CLUSTER": cluster, "STAGES": stages}).text
    kernel = device.load(text).kernel("gemm_b1_multicast")
    a, b = packed(a), packed(b.T, tiles=cluster)
    c = device.allocate((m, n), np.int32, "c")
    sizes = map(np.uint32, (m, n, len(a) // WORDS, a.shape[1], b.shape[1]))
    grid = (b.shape[1] // TILE, a.shape[1] // TILE, 1)
    kernel(grid, (THREADS, 1, 1), device.upload(a, "a"), device.upload(b, "b"), c, *sizes)
    return c.download()


def draw(shape, seed):
    (m, n, k), source = shape, Draw(seed, "gemm_b1_multicast", 0)
    return bits(source, m, k), bits(source, k, n)


def run(device, shape, seed):
    return gemm(device, *draw(shape, seed))


def expected(shape, seed):
    a, b = draw(shape, seed)
    return a.astype(np.int32) @ b.astype(np.int32)


EXAMPLE = Example("gemm_b1_multicast", ARCH, ((33, 100, 1100),), run, expected)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))
