"""A kernel without its barrier."""

import numpy as np
from numba import cuda, float32


@cuda.jit
def reverse(x):
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    x[i] = tile[63 - i]


reverse[1, 64](cuda.to_device(np.zeros(64, np.float32)))
cuda.synchronize()
