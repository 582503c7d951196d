"""Count bytes by atomics in shared, then in global memory: `histogram.cu`."""

import sys

import numpy as np
from common import divide_up, kernel, main, whole

from simwarp.verify import Draw

THREADS, MOST_BLOCKS, BINS = 256, 16, 256


def histogram(device, x):
    """Count each byte of a uint8 array (n,) → uint32 (256,)."""
    counts = device.upload(np.zeros(BINS, np.uint32), "counts")
    blocks = min(divide_up(x.size, THREADS), MOST_BLOCKS)
    launch = kernel(device, "histogram")
    launch((blocks, 1, 1), (THREADS, 1, 1), device.upload(x, "x"), counts, np.uint32(x.size))
    return counts.download()


def draw(seed=0):
    # The smaller of two numbers: small ones are frequent, as in most of what people count.
    source = Draw(seed, "histogram", 0)
    return np.minimum(whole(source, 10007, 256), whole(source, 10007, 256)).astype(np.uint8)


def run(device, seed=0):
    return {"counts": histogram(device, draw(seed))}


def expected(seed=0):
    return {"counts": (np.bincount(draw(seed), minlength=BINS), 0)}


if __name__ == "__main__":
    sys.exit(main("histogram", run, expected))
