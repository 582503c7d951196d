"""BMM-32 in numba's CUDA simulator, as a peer: one thread per element of the product.

    python benchmarks/numba_cudasim.py FOLDER

reads ``a.npy`` and ``b.npy`` (packed words along K) and K from ``k.npy``, writes ``c.npy``, and prints
the seconds of the launch.
"""

import os
import sys
import time
from pathlib import Path

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # read when numba is imported

import numpy as np
from numba import cuda

BLOCK = (16, 16)


@cuda.jit
def product(a, b, c, k):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        differing = 0
        for w in range(a.shape[0]):
            # Not cuda.popc: the simulator's is slower, and wrong for negative numbers.
            differing += (a[w, i] ^ b[w, j]).bit_count()
        c[i, j] = k - 2 * differing


def main(folder: Path) -> None:
    a, b = np.load(folder / "a.npy"), np.load(folder / "b.npy")
    k = int(np.load(folder / "k.npy"))
    c = np.zeros((a.shape[1], b.shape[1]), np.int32)
    grid = tuple(-(-size // threads) for size, threads in zip(c.shape, BLOCK, strict=True))
    start = time.perf_counter()
    product[grid, BLOCK](a, b, c, k)
    print(time.perf_counter() - start)
    np.save(folder / "c.npy", c)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
