"""A decomposition on a device: its arrays, and the steps that improve it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cpd.kernels import BLOCK, MOST_WARPS, SHARED_BYTES, THREADS, Grid, loaded
from gpu.device import ONE, Array, Device

Matrix = npt.NDArray[np.floating[Any]]


class Model:
    """Factors with their weights and Gram matrices, in a device's memory.

    Methods launch and return at once, except `fit`, which downloads its result.
    Matrices of size (rank, rank), weights and sums are float64.

    Attributes
    ----------
    factors : tuple of (dimension, rank) device arrays
    weights : (rank,) device array of float64
    grams : (order, rank, rank) device array of float64
        Of each factor the products of its columns.
    inverse : (1, rank, rank) device array of float64
        The last step's V^-1, or pseudo-inverse.
    singular : (1,) device array of int32
        Which it was: 1 for the pseudo-inverse.

    Source: MM-CSF (SC'19), section 2.2 and algorithm 1.
    """

    def __init__(self, shape: tuple[int, ...], rank: int, dtype: np.dtype[Any], device: Device) -> None:
        self.shape, self.rank = shape, rank
        self._order_and_rank = np.uint32(len(shape)), np.uint32(rank)
        self._grid = grid = Grid(rank)
        self._kernels = loaded(device, dtype, grid)
        apply_blocks, gram_blocks = grid.apply_blocks(max(shape)), grid.gram_blocks(max(shape))
        even = rank + rank % 2  # what the eigenvalues' kernel works on

        def matrices(number: int, name: str, size: int = rank) -> Array:
            return device.allocate((number, size, size), np.float64, name)

        self.factors: tuple[Array, ...] = tuple(
            device.allocate((dimension, rank), dtype, f"factor {n}") for n, dimension in enumerate(shape)
        )
        self.weights: Array = device.allocate((rank,), np.float64, "weights")
        self.grams = matrices(len(shape), "grams")
        self.inverse = matrices(1, "inverse")
        self.singular: Array = device.allocate((1,), np.int32, "singular")
        self._scratch, self._vectors = matrices(1, "scratch", even), matrices(1, "vectors", even)
        self._unscaled: Array = device.allocate((max(shape), rank), dtype, "unscaled")
        self._ones: Array = device.upload(np.ones(rank), "ones")
        self._scale: Array = device.allocate((rank,), np.float64, "scale")
        self._products: Array = device.allocate((rank,), np.float64, "products")
        self._sums: Array = device.allocate((apply_blocks, 2, rank), np.float64, "sums")
        self._partial: Array = device.allocate(
            (grid.gram_tiles, gram_blocks, grid.tile, grid.tile), np.float64, "partial"
        )
        self._fit: Array = device.allocate((2,), np.float64, "fit")
        self._smallest = np.float64(rank * np.finfo(dtype).eps)

    def start(self, mode: int, factor: Matrix) -> None:
        """Begin with this factor of a mode, as it is."""
        self._unscaled.view(factor.shape).upload(factor)
        self._normalise(mode, self._ones)

    def solve(self, mode: int) -> None:
        """From the mode's MTTKRP, in its factor's place, to its factor, weights and Gram matrix."""
        self._invert(mode)
        self._apply(mode)
        self._normalise(mode, self._scale)

    def fit(self, square: float) -> tuple[float, float]:
        """The fit after the last mode's step, and the share ``left`` of the terms after they cancel; waits.

        ``square`` is the sum of the squares of the tensor's values. Where the terms of ``‖X - model‖²`` are
        good to a relative ``u``, their sum is good to ``u / left``.
        """
        sizes = *self._order_and_rank, np.float64(square)
        self._kernels["fit"](ONE, BLOCK, self.grams, self.weights, self._products, *sizes, self._fit)
        fit, left = self._fit.download().tolist()
        return fit, left

    def _invert(self, mode: int) -> None:
        """`inverse` from the other modes' Gram matrices."""
        order, rank = self._order_and_rank
        sizes = order, np.uint32(mode), rank, self._smallest
        lines, matrix = 16 * self.rank, 8 * self.rank**2
        in_shared = lines + matrix <= SHARED_BYTES
        block = (32 * min(self.rank, MOST_WARPS), 1, 1)
        shared = lines + matrix if in_shared else lines
        found = self.inverse, self.singular
        invert, pseudo_invert = self._kernels["invert"], self._kernels["pseudo_invert"]
        invert(ONE, block, self.grams, *sizes, np.uint32(in_shared), self._scratch, *found, shared=shared)
        scratch = self._scratch, self._vectors
        pseudo_invert(
            ONE, block, self.grams, *sizes, *scratch, *found, shared=8 * (self.rank + self.rank % 2)
        )

    def _apply(self, mode: int) -> None:
        """MTTKRP times `inverse`, and its columns' norms."""
        rows, (_, rank) = self.shape[mode], self._order_and_rank
        blocks = self._grid.apply_blocks(rows)
        matrices = self.factors[mode], self.inverse, self._unscaled
        grid = (blocks, self._grid.tiles, 1)
        self._kernels["apply"](grid, BLOCK, *matrices, self._sums, np.uint64(rows), rank)
        sums = self._sums, self.weights, self._scale, self._products
        self._kernels["weigh"]((-(-32 * self.rank // THREADS), 1, 1), BLOCK, *sums, np.uint32(blocks), rank)

    def _normalise(self, mode: int, scale: Array) -> None:
        """The mode's factor with scaled columns, and its Gram matrix."""
        rows, grid, (_, rank) = self.shape[mode], self._grid, self._order_and_rank
        blocks, tiles = grid.gram_blocks(rows), grid.gram_tiles
        matrices = self._unscaled, scale, self.factors[mode], self._partial
        self._kernels["normalise"]((blocks, tiles, 1), BLOCK, *matrices, np.uint64(rows), rank)
        sizes = np.uint32(blocks), rank, np.uint32(mode)
        shape = (grid.tile**2 // 32, tiles, 1), (32, 32, 1)
        self._kernels["sum_gram"](*shape, self._partial, self.grams, *sizes)
