"""Jacobi iteration of the heat equation on a plate, with grid.sync() between sweeps: `jacobi.cu`."""

import sys

import numpy as np
from common import divide_up, kernel, main, reals

from simwarp.verify import Draw

BLOCK = (16, 16, 1)


def jacobi(device, plate, sweeps):
    """The plate after some sweeps, and the largest change of the last; float32 (rows, columns), (1,)."""
    rows, columns = plate.shape
    plates = [device.upload(plate, "now"), device.upload(plate, "next")]
    change = device.upload(np.zeros(1, np.uint32), "change")
    grid = (divide_up(columns, BLOCK[0]), divide_up(rows, BLOCK[1]), 1)
    sizes = np.uint32(rows), np.uint32(columns), np.uint32(sweeps)
    kernel(device, "jacobi")(grid, BLOCK, *plates, *sizes, change, cooperative=True)
    return plates[sweeps % 2].download(), change.download().view(np.float32)


def draw(seed=0):
    return reals(Draw(seed, "jacobi", 0), 41, 53), 25


def run(device, seed=0):
    return dict(zip(("plate", "change"), jacobi(device, *draw(seed)), strict=True))


def expected(seed=0):
    plate, sweeps = draw(seed)
    change = np.zeros(1, np.float32)
    for _ in range(sweeps):
        before = plate.copy()
        plate[1:-1, 1:-1] = np.float32(0.25) * (
            (before[:-2, 1:-1] + before[2:, 1:-1]) + (before[1:-1, :-2] + before[1:-1, 2:])
        )
        change = np.abs(plate - before).max(keepdims=True).reshape(1)
    return {"plate": (plate, 0), "change": (change, 0)}


if __name__ == "__main__":
    sys.exit(main("jacobi", run, expected))
