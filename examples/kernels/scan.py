"""Prefix sums in one pass, with decoupled look-back between blocks: `scan.cu`."""

import sys

import numpy as np
from common import divide_up, kernel, main, whole

from simwarp.verify import Draw

THREADS, TILE = 128, 512


def scan(device, x):
    """Inclusive prefix sums, modulo 2**32, of uint32 numbers (n,) → (n,)."""
    tiles = divide_up(x.size, TILE)
    result = device.allocate(x.shape, np.uint32, "result")
    next_tile = device.upload(np.zeros(1, np.uint32), "next_tile")
    known = device.upload(np.zeros(tiles, np.uint32), "known")
    tile_sums = device.allocate((tiles,), np.uint32, "tile_sums")
    running_sums = device.allocate((tiles,), np.uint32, "running_sums")
    launch = kernel(device, "scan")
    numbers = device.upload(x, "x"), result, np.uint32(x.size)
    launch((tiles, 1, 1), (THREADS, 1, 1), *numbers, next_tile, known, tile_sums, running_sums)
    return result.download()


def draw(seed=0):
    return whole(Draw(seed, "scan", 0), 5003, 2**32)


def run(device, seed=0):
    return {"sums": scan(device, draw(seed))}


def expected(seed=0):
    return {"sums": (np.cumsum(draw(seed), dtype=np.uint32), 0)}


if __name__ == "__main__":
    sys.exit(main("scan", run, expected))
