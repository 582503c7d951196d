"""Layer normalisation with IEEE's square root and division: `layer_norm.cu`."""

import sys

import numpy as np
from common import gamma, kernel, main, reals

from simwarp.verify import Draw

THREADS, EPSILON = 128, np.float32(1e-5)


def layer_norm(device, x, scale, shift, epsilon=EPSILON):
    """Each row of float32 (rows, columns) normalised, times scale (columns,) plus shift (columns,)."""
    rows, columns = x.shape
    y = device.allocate(x.shape, np.float32, "y")
    operands = device.upload(x, "x"), device.upload(scale, "scale"), device.upload(shift, "shift"), y
    kernel(device, "layer_norm")((rows, 1, 1), (THREADS, 1, 1), *operands, np.uint32(columns), epsilon)
    return y.download()


def draw(seed=0):
    source = Draw(seed, "layer_norm", 0)
    return reals(source, 13, 211), reals(source, 211), reals(source, 211)


def run(device, seed=0):
    return {"normalised": layer_norm(device, *draw(seed))}


def expected(seed=0):
    x, scale, shift = (operand.astype(np.float64) for operand in draw(seed))
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + np.float64(EPSILON))
    # Mean and deviation are sums of numbers up to 1 and 4, and what they enter into is divided by about 0.6.
    return {"normalised": (centred / deviation * scale + shift, 4 * gamma(x.shape[1] + 8))}


if __name__ == "__main__":
    sys.exit(main("layer_norm", run, expected))
