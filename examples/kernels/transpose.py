"""Transpose a matrix through tiles of shared memory: `transpose.cu`."""

import sys

import numpy as np
from common import divide_up, kernel, main, reals

from simwarp.verify import Draw

TILE, ROWS_AT_A_TIME = 32, 8


def transpose(device, matrix):
    """Transpose a float32 matrix (rows, columns) → (columns, rows)."""
    rows, columns = matrix.shape
    result = device.allocate((columns, rows), np.float32, "result")
    grid = (divide_up(columns, TILE), divide_up(rows, TILE), 1)
    block = (TILE, ROWS_AT_A_TIME, 1)
    launch = kernel(device, "transpose")
    launch(grid, block, device.upload(matrix, "matrix"), result, np.uint32(rows), np.uint32(columns))
    return result.download()


def draw(seed=0):
    return reals(Draw(seed, "transpose", 0), 67, 131)


def run(device, seed=0):
    return {"transpose": transpose(device, draw(seed))}


def expected(seed=0):
    return {"transpose": (draw(seed).T, 0)}


if __name__ == "__main__":
    sys.exit(main("transpose", run, expected))
