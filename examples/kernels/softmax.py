"""The softmax of each row, with an exponential made of correctly rounded operations: `softmax.cu`."""

import sys

import numpy as np
from common import WARP_SIZE, divide_up, gamma, kernel, main, reals

from simwarp.verify import Draw

THREADS = 128


def softmax(device, x):
    """The softmax of each row of float32 (rows, columns) → the same shape."""
    rows, columns = x.shape
    y = device.allocate(x.shape, np.float32, "y")
    grid = (divide_up(rows * WARP_SIZE, THREADS), 1, 1)
    launch = kernel(device, "softmax")
    launch(grid, (THREADS, 1, 1), device.upload(x, "x"), y, np.uint32(rows), np.uint32(columns))
    return y.download()


def draw(seed=0):
    return 16 * reals(Draw(seed, "softmax", 0), 13, 211)


def run(device, seed=0):
    return {"softmax": softmax(device, draw(seed))}


def expected(seed=0):
    x = draw(seed).astype(np.float64)
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    right = exponentials / exponentials.sum(axis=1, keepdims=True)
    # The difference x - max, up to 32, is rounded once: its exponential is off by 32 roundings, and by
    # two of its own. That counts above and below the fraction line; below it come the additions.
    return {"softmax": (right, gamma(2 * 34 + x.shape[1]) * right)}


if __name__ == "__main__":
    sys.exit(main("softmax", run, expected))
