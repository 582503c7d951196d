"""The model of a CP decomposition on a device: its arrays, and the steps of an iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cpd.kernels import BLOCK, MOST_WARPS, SHARED_BYTES, THREADS, Grid, kernels_of_model
from gpu.device import ONE, Array, Device

Matrix = npt.NDArray[np.floating[Any]]


class Model:
    """The factors, weights and Gram matrices of a decomposition, in a device's memory.

    Device arrays: ``factors`` (dimension, rank) each; ``weights`` (rank,) float64; ``grams`` (order, rank,
    rank) float64, the dot products of each factor's columns; ``inverse`` (1, rank, rank) float64, of the last
    step's V; ``singular`` (1,) int32, 1 if that is the pseudo-inverse, else 0. Methods launch kernels and
    return at once, except `fit`, which downloads its result. Source: MM-CSF (SC'19), section 2.2 and
    algorithm 1.
    """

    def __init__(self, shape: tuple[int, ...], rank: int, dtype: np.dtype[Any], device: Device) -> None:
        self.shape, self.rank = shape, rank
        self._grid = grid = Grid(rank)
        self._kernels = kernels_of_model(device, dtype, grid)
        apply_blocks, gram_blocks = grid.apply_blocks(max(shape)), grid.gram_blocks(max(shape))
        even = rank + rank % 2  # the eigenvalue kernel pads matrices to an even size

        def floats(name: str, *shape: int) -> Array:
            return device.allocate(shape, np.float64, name)

        self.factors: tuple[Array, ...] = tuple(
            device.allocate((dimension, rank), dtype, f"factor {n}") for n, dimension in enumerate(shape)
        )
        self.weights = floats("weights", rank)
        self.grams = floats("grams", len(shape), rank, rank)
        self.inverse = floats("inverse", 1, rank, rank)
        self.singular: Array = device.allocate((1,), np.int32, "singular")
        self._scratch, self._vectors = floats("scratch", 1, even, even), floats("vectors", 1, even, even)
        self._unscaled: Array = device.allocate((max(shape), rank), dtype, "unscaled")
        self._ones: Array = device.upload(np.ones(rank), "ones")
        self._scale, self._products = floats("scale", rank), floats("products", rank)
        self._sums = floats("sums", apply_blocks, 2, rank)
        self._partial = floats("partial", grid.gram_tiles, gram_blocks, grid.tile, grid.tile)
        self._fit = floats("fit", 2)
        self._smallest = float(rank * np.finfo(dtype).eps)

    def start(self, mode: int, factor: Matrix) -> None:
        """Set the factor of a mode to an initial value."""
        self._unscaled.view(factor.shape).upload(factor)
        self._normalise(mode, self._ones)

    def solve(self, mode: int) -> None:
        """Solve for the new factor of a mode, and update its weights and Gram matrix."""
        self._invert(mode)
        self._apply(mode)
        self._normalise(mode, self._scale)

    def fit(self, square: float) -> tuple[float, float]:
        """The fit after the last mode's step, and the share ``left`` of its terms after cancellation; waits.

        ``square`` is the sum of the squares of the tensor's values. If the terms of ``‖X - model‖²`` have a
        relative error ``u``, their sum has the relative error ``u / left``.
        """
        sizes = len(self.shape), self.rank, square
        self._kernels["fit"](ONE, BLOCK, self.grams, self.weights, self._products, *sizes, self._fit)
        fit, left = self._fit.download().tolist()
        return fit, left

    def _invert(self, mode: int) -> None:
        """Compute `inverse` from the Gram matrices of the other modes."""
        sizes = len(self.shape), mode, self.rank, self._smallest
        lines, matrix = 16 * self.rank, 8 * self.rank**2
        in_shared = lines + matrix <= SHARED_BYTES
        block = (32 * min(self.rank, MOST_WARPS), 1, 1)
        shared = lines + matrix if in_shared else lines
        results = self.inverse, self.singular
        invert, pseudo_invert = self._kernels["invert"], self._kernels["pseudo_invert"]
        invert(ONE, block, self.grams, *sizes, int(in_shared), self._scratch, *results, shared=shared)
        scratch, shared = (self._scratch, self._vectors), 8 * (self.rank + self.rank % 2)
        pseudo_invert(ONE, block, self.grams, *sizes, *scratch, *results, shared=shared)

    def _apply(self, mode: int) -> None:
        """Multiply the mode's MTTKRP by `inverse`, and compute the norms of the product's columns."""
        rows, rank = self.shape[mode], self.rank
        blocks = self._grid.apply_blocks(rows)
        matrices = self.factors[mode], self.inverse, self._unscaled
        self._kernels["apply"]((blocks, self._grid.tiles, 1), BLOCK, *matrices, self._sums, rows, rank)
        sums = self._sums, self.weights, self._scale, self._products
        self._kernels["weigh"]((-(-32 * rank // THREADS), 1, 1), BLOCK, *sums, blocks, rank)

    def _normalise(self, mode: int, scale: Array) -> None:
        """Scale the columns of the mode's new factor, and compute its Gram matrix."""
        rows, rank, grid = self.shape[mode], self.rank, self._grid
        blocks, tiles = grid.gram_blocks(rows), grid.gram_tiles
        matrices = self._unscaled, scale, self.factors[mode], self._partial
        self._kernels["normalise"]((blocks, tiles, 1), BLOCK, *matrices, rows, rank)
        shape = (grid.tile**2 // 32, tiles, 1), (32, 32, 1)
        self._kernels["sum_gram"](*shape, self._partial, self.grams, blocks, rank, mode)
