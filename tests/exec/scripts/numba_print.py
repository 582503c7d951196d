"""A kernel that prints a string and numbers."""

import numpy as np
from numba import cuda


@cuda.jit
def show(x):
    i = cuda.grid(1)
    print("value", i, x[i])  # noqa: T201 - is the kernel's


show[1, 2](np.array([0.5, 1.5]))
cuda.synchronize()
