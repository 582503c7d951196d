"""A matrix product of ±1 on warpgroups; tiles of bits arrive through tensor maps: `gemm_wgmma_b1.cu`."""

import sys

import numpy as np
from pipelines import Example, bits, divide_up, main, ptx

from simwarp.verify import Draw

ARCH = (9, 0)
TILE, THREADS, STAGES = 128, 288, 4
SPAN = 128
"""Bytes of a row, or of a column, in a step along k; the bytes of the swizzle."""
SIGNAL = 16
"""Bytes of the two mbarriers of a stage."""
PIECE = 16
"""What rows of a tensor's bytes start at multiples of."""


def gemm(device, a, b, stages=STAGES, blocks=None):
    """The product of matrices of ±1, bool (m, k) and (k, n), True for +1 → int32 (m, n).

    As many blocks as the device has multiprocessors share the tiles, or ``blocks``.
    """
    (m, k), n = a.shape, b.shape[1]
    kernel = device.load(ptx("gemm_wgmma_b1", ARCH, {"STAGES": stages}).text).kernel("gemm_wgmma_b1")
    pitch = n + n % 2
    c = device.allocate((m, pitch), np.int32, "c")
    rows = (k - 2 * a.sum(axis=1)).astype(np.int32)
    columns = np.pad(-2 * b.sum(axis=0), (0, pitch - n)).astype(np.int32)
    tiles = divide_up(m, TILE) * divide_up(n, TILE)
    of_a, of_b = packed(device, a, "a"), packed(device, b.T, "b")
    kernel(
        min(tiles, blocks or device.multiprocessors),
        THREADS,
        *(mapped(device, operand, k) for operand in (of_a, of_b)),
        device.upload(rows, "rows"),
        device.upload(columns, "columns"),
        c,
        *map(np.uint32, (m, n, pitch, divide_up(k, 8 * SPAN))),
        shared=stages * (2 * TILE * SPAN + SIGNAL),
    )
    return c.download()[:, :n]


def packed(device, lines, name):
    """Upload lines (n, k) as bits along k, their bytes filled up with zeros to a multiple of `PIECE`."""
    return device.upload(
        np.packbits(np.pad(lines, ((0, 0), (0, -lines.shape[1] % (8 * PIECE)))), axis=1), name
    )


def mapped(device, lines, k):
    """A tensor map of lines, whose box is a tile in a step along k."""
    shape = lines.shape[0], divide_up(k, 8)
    return device.tensor_map(lines, (TILE, SPAN), shape=shape, strides=(lines.shape[1],), swizzle=SPAN)


def draw(shape, seed):
    (m, n, k), source = shape, Draw(seed, "gemm_wgmma_b1", 0)
    return bits(source, m, k).astype(bool), bits(source, k, n).astype(bool)


def run(device, shape, seed):
    return gemm(device, *draw(shape, seed))


def expected(shape, seed):
    a, b = (2 * x.astype(np.int64) - 1 for x in draw(shape, seed))
    return (a @ b).astype(np.int32)


EXAMPLE = Example("gemm_wgmma_b1", ARCH, ((130, 67, 5000), (1, 300, 77)), run, expected)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))
