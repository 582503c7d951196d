"""Sort keys by a bitonic network, its short distances in shared memory: `bitonic_sort.cu`."""

import sys

import numpy as np
from common import kernel, main, whole

from simwarp.verify import Draw

THREADS, TILE = 256, 512


def bitonic_sort(device, keys):
    """Sort keys in ascending order; uint32 (n,) of any n."""
    # The network takes a power of two. The largest key fills up: it goes to the end, behind the others.
    n = max(TILE, 1 << (keys.size - 1).bit_length())
    padded = device.upload(np.concatenate([keys, np.full(n - keys.size, 0xFFFFFFFF, np.uint32)]), "keys")
    sort_tiles, merge_step, merge_tiles = (
        kernel(device, "bitonic_sort", name) for name in ("sort_tiles", "merge_step", "merge_tiles")
    )
    grid, block = (n // TILE, 1, 1), (THREADS, 1, 1)
    sort_tiles(grid, block, padded)
    size = 2 * TILE
    while size <= n:
        distance = size // 2
        while distance >= TILE:
            merge_step(grid, block, padded, np.uint32(size), np.uint32(distance))
            distance //= 2
        merge_tiles(grid, block, padded, np.uint32(size))
        size *= 2
    return padded.download()[: keys.size]


def draw(seed=0):
    return whole(Draw(seed, "bitonic_sort", 0), 3001, 2**32)


def run(device, seed=0):
    return {"sorted": bitonic_sort(device, draw(seed))}


def expected(seed=0):
    return {"sorted": (np.sort(draw(seed)), 0)}


if __name__ == "__main__":
    sys.exit(main("bitonic_sort", run, expected))
