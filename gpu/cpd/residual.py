"""The fit of a good model, of which the usual formula leaves few digits or none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpu.cpd.kernels import THREADS, Grid, residual_ptx
from gpu.cpd.model import Model
from gpu.device import Device
from gpu.mttkrp.formats.to_coo import columns_of
from gpu.mttkrp.kernels import pointers
from reference.types import SparseTensor


class Residual:
    """``‖X - model‖`` of a model on a device, in double-double arithmetic (106 bits).

    ``‖X‖² + ‖model‖² - 2 <X, model>`` again, but each term from the nonzeros and the factors as they are
    stored, good to some 2**-100 of the largest. Holds the tensor's coordinates and values on the device.

    Parameters
    ----------
    tensor : SparseTensor
        On the host, each place once.
    square : float
        The sum of the squares of its values.
    model : Model

    Examples
    --------
    A diagonal matrix and a model whose second weight is off by 2**-30, which squares as doubles do not see:

    >>> import simwarp
    >>> from reference.types import Coo
    >>> model = Model((2, 2), 2, np.dtype(np.float64), simwarp.Device())
    >>> for factor in model.factors:
    ...     factor.upload(np.eye(2))
    >>> model.weights.upload(np.array([3.0, 4.0 + 2**-30]))
    >>> tensor = Coo(np.array([[0, 1], [0, 1]], np.uint32), np.array([3.0, 4.0]), (2, 2))
    >>> round((1 - Residual(tensor, 25.0, model).fit()) * 5 * 2**30, 5)
    1.0
    """

    def __init__(self, tensor: SparseTensor, square: float, model: Model) -> None:
        coords, values = columns_of(tensor)
        device: Device = model.weights.device
        self._model, self._grid = model, Grid(model.rank)
        self._coords = device.upload(np.ascontiguousarray(coords, np.uint32), "coords")
        self._values = device.upload(np.ascontiguousarray(values), "values")
        self._scale = np.float64(math.ldexp(1.0, -math.frexp(math.sqrt(square))[1]))
        grid, shape = self._grid, model.shape
        blocks, elements = grid.residual_blocks(values.size), model.rank**2

        def doubled(count: int, name: str) -> Any:
            return device.allocate((count, 2), np.float64, name)

        self._sums, self._squares = doubled(blocks, "sums"), doubled(blocks, "squares")
        self._parts = doubled(grid.residual_parts(max(shape)) * elements, "parts")
        self._products = doubled(elements, "products")
        self._answer = device.allocate((1,), np.float64, "fit")
        text = residual_ptx(np.dtype(values.dtype), len(shape), device.compute_capability).text
        module = device.load(text)
        self._compare, self._gram = module.kernel("compare"), module.kernel("gram")
        self._multiply, self._finish = module.kernel("multiply"), module.kernel("finish")

    def fit(self) -> float:
        """``1 - ‖X - model‖ / ‖X‖`` of the model as it is now; waits for it."""
        model, grid, block = self._model, self._grid, (THREADS, 1, 1)
        rank, blocks = np.uint32(model.rank), self._sums.shape[0]
        self._compare(
            (blocks, 1, 1),
            block,
            pointers(*model.factors),
            model.weights,
            self._coords,
            self._values,
            np.uint64(self._values.shape[0]),
            rank,
            np.uint32(grid.lanes),
            self._scale,
            self._sums,
            self._squares,
        )
        for mode, factor in enumerate(model.factors):
            rows = model.shape[mode]
            parts = grid.residual_parts(rows)
            self._gram((grid.gram_elements, parts, 1), block, factor, self._parts, np.uint64(rows), rank)
            self._multiply(
                (grid.gram_elements, 1, 1),
                block,
                self._parts,
                model.weights,
                self._products,
                np.uint32(parts),
                rank,
                np.uint32(mode == 0),
                self._scale,
            )
        self._finish(
            (1, 1, 1), block, self._products, self._sums, self._squares, np.uint32(blocks), rank, self._answer
        )
        return float(self._answer.download()[0])
