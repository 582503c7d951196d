"""A kernel whose registers Numba bounds, by an option of the linker."""

import numpy as np
from numba import cuda


@cuda.jit(max_registers=16)
def products(x, a, b, c, d):
    s, t, u, v = a * b, a * c, a * d, b * c
    for i in range(x.size):
        s, t, u, v = s + t * x[i], t + u * x[i], u + v * x[i], v + s * x[i]
    x[0] = s * a + t * b + u * c + v * d


assert products.specialize(np.ones(8), 1.0, 2.0, 3.0, 4.0).get_regs_per_thread() == 16
