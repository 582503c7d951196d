"""The kernels of the decomposition, but for MTTKRP: how they are compiled, and the shapes of their launches.

Grids depend on the sizes alone, never on the device: then so do all sums, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.compile import Ptx, compile_file
from gpu.device import Device, Kernel

THREADS = 256
"""Of a block, in kernels over rows."""

MOST_WARPS = 32
"""Of the one block that inverts a matrix: up to so many, one for each of its lines."""

MOST_BLOCKS = 1056
"""Of a kernel over rows: 8 for each multiprocessor of an H200."""

SHARED_BYTES = 48 * 1024
"""What a launch may ask for without further ado."""

LARGEST_RANK = 2048
"""One block inverts a (rank, rank) matrix, with two of its lines in shared memory."""

_C_TYPES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class Grid:
    """How the rows and columns of factors are shared out to blocks (the twin of tile.cuh).

    Attributes
    ----------
    rank : int

    Examples
    --------
    >>> Grid(33).tile, Grid(33).tiles, Grid(33).apply_blocks(1000), Grid(33).gram_blocks(4_000_000)
    (32, 2, 8, 352)
    """

    rank: int

    @property
    def tile(self) -> int:
        """Columns of a block."""
        return next(tile for tile in (8, 16, 32) if tile >= min(self.rank, 32))

    @property
    def tiles(self) -> int:
        """Tiles of columns."""
        return -(-self.rank // self.tile)

    @property
    def gram_tiles(self) -> int:
        """Tiles of a Gram matrix on and below its diagonal."""
        return self.tiles * (self.tiles + 1) // 2

    def apply_blocks(self, rows: int) -> int:
        """Blocks that share the rows when the inverse is applied."""
        return min(-(-rows // (4096 // self.tile)), max(1, MOST_BLOCKS // self.tiles))

    def gram_blocks(self, rows: int) -> int:
        """Blocks that share the rows for one tile of the Gram matrix."""
        return min(-(-rows // (2048 // self.tile)), max(1, MOST_BLOCKS // self.gram_tiles))

    @property
    def gram_elements(self) -> int:
        """Blocks that have a thread for each element of a Gram matrix."""
        return -(-(self.rank**2) // THREADS)

    @property
    def lanes(self) -> int:
        """Threads that share a nonzero's columns."""
        return min(32, 1 << (self.rank - 1).bit_length())

    def residual_blocks(self, nonzeros: int) -> int:
        """Blocks that share the nonzeros when they are compared with the model."""
        return min(-(-nonzeros * self.lanes // THREADS), MOST_BLOCKS)

    def residual_parts(self, rows: int) -> int:
        """Parts of the rows of which each element of a Gram matrix in double-double arithmetic is summed."""
        return min(-(-rows // 64), max(1, MOST_BLOCKS // self.gram_elements))


@dataclass(frozen=True)
class Kernels:
    """The loaded kernels for one element type and rank.

    Examples
    --------
    >>> import simwarp
    >>> loaded(simwarp.Device(), np.dtype(np.float32), Grid(20)).fit.name
    'fit'
    """

    apply: Kernel
    weigh: Kernel
    normalise: Kernel
    sum_gram: Kernel
    invert: Kernel
    pseudo_invert: Kernel
    fit: Kernel


def ptx(source: str, dtype: np.dtype[Any], tile: int, arch: tuple[int, int]) -> Ptx:
    """A source of this folder, compiled.

    Examples
    --------
    >>> ptx("gram", np.dtype(np.float32), 16, (9, 0)).name, ptx("fit", np.dtype(np.float32), 16, (9, 0)).name
    ('cpd/gram.cu -DELEMENT=float -DTILE=16', 'cpd/fit.cu')
    """
    over_rows = source in ("apply", "gram")
    defines: dict[str, str | int] = {"ELEMENT": _C_TYPES[dtype.name], "TILE": tile} if over_rows else {}
    return compile_file(f"cpd/{source}.cu", defines, arch)


def residual_ptx(dtype: np.dtype[Any], order: int, arch: tuple[int, int]) -> Ptx:
    """The kernels of `gpu.cpd.residual`, compiled.

    Examples
    --------
    >>> residual_ptx(np.dtype(np.float64), 3, (9, 0)).name
    'cpd/residual.cu -DELEMENT=double -DORDER=3'
    """
    return compile_file("cpd/residual.cu", {"ELEMENT": _C_TYPES[dtype.name], "ORDER": order}, arch)


def loaded(device: Device, dtype: np.dtype[Any], grid: Grid) -> Kernels:
    """Compile and load all of them.

    Examples
    --------
    >>> import simwarp
    >>> loaded(simwarp.Device(), np.dtype(np.float64), Grid(3)).apply.name
    'apply'
    """
    sources = {"apply": ("apply", "weigh"), "gram": ("normalise", "sum_gram"), "solve": ("invert",)}
    sources |= {"eigen": ("pseudo_invert",), "fit": ("fit",)}
    kernels: dict[str, Kernel] = {}
    for source, names in sources.items():
        module = device.load(ptx(source, dtype, grid.tile, device.compute_capability).text)
        kernels |= {name: module.kernel(name) for name in names}
    return Kernels(**kernels)
