"""The kernels of the decomposition, except MTTKRP: their compilation and their grids.

Grids depend on the sizes alone, not on the device, so that sums have the same bits on every device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.compile import compile_file
from gpu.device import Device, Kernel
from gpu.mttkrp.kernels import C_TYPES

THREADS = 256
"""Threads of a block, in kernels over rows."""

BLOCK = (THREADS, 1, 1)

MOST_WARPS = 32
"""The most warps of the block that inverts a matrix; it has one for each line up to then."""

MOST_BLOCKS = 1056
"""The most blocks of a kernel over rows: 8 for each multiprocessor of an H200."""

SHARED_BYTES = 48 * 1024
"""Bytes of shared memory that a block may have without an opt-in."""

LARGEST_RANK = 2048
"""The largest rank: one block inverts a (rank, rank) matrix, with two of its lines in shared memory."""


@dataclass(frozen=True)
class Grid:
    """The division of the rows and columns of factors among blocks, as in tile.cuh."""

    rank: int

    @property
    def tile(self) -> int:
        """The number of columns of a block's tile."""
        return next(tile for tile in (8, 16, 32) if tile >= min(self.rank, 32))

    @property
    def tiles(self) -> int:
        """The number of tiles that cover all columns."""
        return -(-self.rank // self.tile)

    @property
    def gram_tiles(self) -> int:
        """The number of tiles of a Gram matrix on and below its diagonal."""
        return self.tiles * (self.tiles + 1) // 2

    def apply_blocks(self, rows: int) -> int:
        """The number of blocks that share the rows when the inverse is applied."""
        return min(-(-rows // (4096 // self.tile)), max(1, MOST_BLOCKS // self.tiles))

    def gram_blocks(self, rows: int) -> int:
        """The number of blocks that share the rows for one tile of the Gram matrix."""
        return min(-(-rows // (2048 // self.tile)), max(1, MOST_BLOCKS // self.gram_tiles))

    @property
    def gram_elements(self) -> int:
        """The number of blocks with a thread for each element of a Gram matrix."""
        return -(-(self.rank**2) // THREADS)

    @property
    def lanes(self) -> int:
        """The number of threads that share the columns of a nonzero."""
        return min(32, 1 << (self.rank - 1).bit_length())

    def residual_blocks(self, nonzeros: int) -> int:
        """The number of blocks that share the nonzeros when the residual is computed."""
        return min(-(-nonzeros * self.lanes // THREADS), MOST_BLOCKS)

    def residual_parts(self, rows: int) -> int:
        """The number of parts of the rows for a double-double Gram matrix; one thread sums each part."""
        return min(-(-rows // 64), max(1, MOST_BLOCKS // self.gram_elements))


def loaded(device: Device, source: str, defines: Mapping[str, str | int], *names: str) -> dict[str, Kernel]:
    """Kernels of a source in this folder, by name, compiled and loaded."""
    module = device.load(compile_file(f"cpd/{source}.cu", defines, device.compute_capability).text)
    return {name: module.kernel(name) for name in names}


def kernels_of_model(device: Device, dtype: np.dtype[Any], grid: Grid) -> dict[str, Kernel]:
    """The kernels of `gpu.cpd.model`, by name."""
    over_rows: dict[str, str | int] = {"ELEMENT": C_TYPES[dtype.name], "TILE": grid.tile}
    kernels = loaded(device, "apply", over_rows, "apply", "weigh")
    kernels |= loaded(device, "gram", over_rows, "normalise", "sum_gram")
    kernels |= loaded(device, "solve", {}, "invert") | loaded(device, "eigen", {}, "pseudo_invert")
    return kernels | loaded(device, "fit", {}, "fit")
