"""A sparse matrix times a vector, a warp per row: `spmv.cu`."""

import sys

import numpy as np
from common import WARP_SIZE, divide_up, gamma, kernel, main, reals, whole

from simwarp.verify import Draw

THREADS = 128


def spmv(device, row_starts, columns, values, x):
    """A sparse matrix, CSR, times a float32 vector (columns,) → (rows,).

    Row i has ``values[j]`` in column ``columns[j]``, for j from ``row_starts[i]`` up to the next start.
    """
    rows = row_starts.size - 1
    y = device.allocate((rows,), np.float32, "y")
    matrix = [device.upload(part) for part in (row_starts, columns, values)]
    grid = (divide_up(rows * WARP_SIZE, THREADS), 1, 1)
    kernel(device, "spmv")(grid, (THREADS, 1, 1), *matrix, device.upload(x, "x"), y, np.uint32(rows))
    return y.download()


def draw(seed=0, rows=97, columns=89):
    source = Draw(seed, "spmv", 0)
    # From row to row the share of elements that are there differs; every seventh row has none.
    percent = whole(source, rows, 100)
    percent[6::7] = 0
    present = whole(source, rows * columns, 100).reshape(rows, columns) < percent[:, None]
    present[0, 0] = True
    row_starts = np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.uint32)
    elements = np.nonzero(present)[1].astype(np.uint32)
    return row_starts, elements, reals(source, elements.size), reals(source, columns)


def run(device, seed=0):
    return {"product": spmv(device, *draw(seed))}


def expected(seed=0):
    row_starts, columns, values, x = draw(seed)
    dense = np.zeros((row_starts.size - 1, x.size))
    dense[np.repeat(np.arange(row_starts.size - 1), np.diff(row_starts)), columns] = values
    return {"product": (dense @ x, gamma(x.size) * (np.abs(dense) @ np.abs(x)))}


if __name__ == "__main__":
    sys.exit(main("spmv", run, expected))
