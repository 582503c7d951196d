"""A matrix product of bits whose steps along k are divided evenly among blocks: `gemm_b1_stream_k.cu`."""

import sys

import numpy as np
from pipelines import Example, bits, main, packed, ptx

from simwarp.verify import Draw

ARCH = (9, 0)
TILE, THREADS, WORDS = 64, 128, 8
CLUSTER = 4


def gemm(device, a, b, cluster=CLUSTER, clusters=2):
    """The product of matrices of 0s and 1s, (m, k) and (k, n) → int32 (m, n).

    On a GPU, ``clusters`` should be as many as run at once: all of them have the same amount of work.
    """
    m, n = a.shape[0], b.shape[1]
    text = ptx("gemm_b1_stream_k", ARCH, {"CLUSTER": cluster}).text
    kernel = device.load(text).kernel("gemm_b1_stream_k")
    a, b = packed(a), packed(b.T)
    c = device.allocate((a.shape[1], b.shape[1]), np.int32, "c")
    sizes = map(np.uint32, (a.shape[1] // TILE, b.shape[1] // TILE, len(a) // WORDS))
    grid = (clusters * cluster, 1, 1)
    kernel(grid, (THREADS, 1, 1), device.upload(a, "a"), device.upload(b, "b"), c, *sizes)
    return c.download()[:m, :n]


def draw(shape, seed):
    (m, n, k), source = shape, Draw(seed, "gemm_b1_stream_k", 0)
    return bits(source, m, k), bits(source, k, n)


def run(device, shape, seed):
    return gemm(device, *draw(shape, seed))


def expected(shape, seed):
    a, b = draw(shape, seed)
    return a.astype(np.int32) @ b.astype(np.int32)


EXAMPLE = Example("gemm_b1_stream_k", ARCH, ((130, 130, 300), (40, 50, 1000)), run, expected)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))
