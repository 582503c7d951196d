"""A decomposition on a device: its arrays, and the steps that improve it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cpd.kernels import MOST_WARPS, SHARED_BYTES, THREADS, Grid, loaded
from gpu.device import Array, Device

Matrix = npt.NDArray[np.floating[Any]]


class Model:
    """Factors with their weights and Gram matrices, in a device's memory.

    Everything is launched, nothing waited for or copied back, but by `fit` and by whoever downloads.
    Matrices of size (rank, rank), weights and sums are float64.

    Parameters
    ----------
    shape : tuple of int
        Of the tensor.
    rank : int
    dtype : float32 or float64
        Of the factors.
    device : Device

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

    Notes
    -----
    Source: MM-CSF (SC'19), section 2.2 and algorithm 1.

    Examples
    --------
    A matrix of rank 1 and the second of its factors, from which one step finds the first:

    >>> import simwarp
    >>> model = Model((2, 2), 1, np.dtype(np.float64), simwarp.Device())
    >>> model.start(1, np.array([[1.0], [2.0]]))
    >>> model.factors[0].upload(np.array([[3.0], [4.0]]) * 5)  # what MTTKRP gives for (3, 4) times (1, 2)
    >>> model.solve(0)
    >>> model.factors[0].download().round(6).tolist(), model.weights.download().round(6).tolist()
    ([[0.6], [0.8]], [5.0])
    """

    def __init__(self, shape: tuple[int, ...], rank: int, dtype: np.dtype[Any], device: Device) -> None:
        self.shape, self.rank = shape, rank
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
        """How well the model fits, after the last mode's step, and how far its terms cancel; waits for it.

        Parameters
        ----------
        square : float
            The sum of the squares of the tensor's values.

        Returns
        -------
        fit : float
        left : float
            Which share is left of the terms of which ``‖X - model‖²`` is the sum: where the terms are good to
            a relative ``u``, that is good to ``u / left``.
        """
        self._kernels.fit(
            (1, 1, 1),
            (THREADS, 1, 1),
            self.grams,
            self.weights,
            self._products,
            np.uint32(len(self.shape)),
            np.uint32(self.rank),
            np.float64(square),
            self._fit,
        )
        fit, left = self._fit.download().tolist()
        return fit, left

    def _invert(self, mode: int) -> None:
        """`inverse` from the other modes' Gram matrices."""
        rank, even = self.rank, self.rank + self.rank % 2
        sizes = (np.uint32(len(self.shape)), np.uint32(mode), np.uint32(rank), self._smallest)
        lines, matrix = 16 * rank, 8 * rank * rank
        in_shared = lines + matrix <= SHARED_BYTES
        block = (32 * min(rank, MOST_WARPS), 1, 1)
        self._kernels.invert(
            (1, 1, 1),
            block,
            self.grams,
            *sizes,
            np.uint32(in_shared),
            self._scratch,
            self.inverse,
            self.singular,
            shared=lines + matrix if in_shared else lines,
        )
        self._kernels.pseudo_invert(
            (1, 1, 1),
            block,
            self.grams,
            *sizes,
            self._scratch,
            self._vectors,
            self.inverse,
            self.singular,
            shared=8 * even,
        )

    def _apply(self, mode: int) -> None:
        """MTTKRP times `inverse`, and its columns' norms."""
        rows, rank = self.shape[mode], self.rank
        blocks = self._grid.apply_blocks(rows)
        self._kernels.apply(
            (blocks, self._grid.tiles, 1),
            (THREADS, 1, 1),
            self.factors[mode],
            self.inverse,
            self._unscaled,
            self._sums,
            np.uint64(rows),
            np.uint32(rank),
        )
        self._kernels.weigh(
            (-(-32 * rank // THREADS), 1, 1),
            (THREADS, 1, 1),
            self._sums,
            self.weights,
            self._scale,
            self._products,
            np.uint32(blocks),
            np.uint32(rank),
        )

    def _normalise(self, mode: int, scale: Array) -> None:
        """The mode's factor with scaled columns, and its Gram matrix."""
        rows, grid = self.shape[mode], self._grid
        blocks = grid.gram_blocks(rows)
        self._kernels.normalise(
            (blocks, grid.gram_tiles, 1),
            (THREADS, 1, 1),
            self._unscaled,
            scale,
            self.factors[mode],
            self._partial,
            np.uint64(rows),
            np.uint32(self.rank),
        )
        self._kernels.sum_gram(
            (grid.tile**2 // 32, grid.gram_tiles, 1),
            (32, 32, 1),
            self._partial,
            self.grams,
            np.uint32(blocks),
            np.uint32(self.rank),
            np.uint32(mode),
        )
