"""The fit in double-double arithmetic, for a model that is almost equal to its tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpu.cpd.kernels import BLOCK, Grid, loaded
from gpu.cpd.model import Model
from gpu.device import ONE, Device
from gpu.mttkrp.formats.to_coo import columns_of
from gpu.mttkrp.kernels import C_TYPES, pointers
from reference.types import SparseTensor


class Residual:
    """Computes ``‖X - model‖`` of a model on a device in double-double arithmetic (106 bits).

    The terms of ``‖X‖² + ‖model‖² - 2 <X, model>`` are computed from the nonzeros and the stored factors, to
    about 2**-100 of the largest term. The tensor's coordinates and values are kept on the device.
    """

    def __init__(self, tensor: SparseTensor, square: float, model: Model) -> None:
        coords, values = columns_of(tensor)
        device: Device = model.weights.device
        self._model, self._grid = model, Grid(model.rank)
        self._coords = device.upload(np.ascontiguousarray(coords, np.uint32), "coords")
        self._values = device.upload(np.ascontiguousarray(values), "values")
        self._scale = math.ldexp(1.0, -math.frexp(math.sqrt(square))[1])
        grid, shape = self._grid, model.shape
        blocks, elements = grid.residual_blocks(values.size), model.rank**2

        def doubled(count: int, name: str) -> Any:
            return device.allocate((count, 2), np.float64, name)

        self._sums, self._squares = doubled(blocks, "sums"), doubled(blocks, "squares")
        self._parts = doubled(grid.residual_parts(max(shape)) * elements, "parts")
        self._products = doubled(elements, "products")
        self._answer = device.allocate((1,), np.float64, "fit")
        defines = {"ELEMENT": C_TYPES[values.dtype.name], "ORDER": len(shape)}
        self._kernels = loaded(device, "residual", defines, "compare", "gram", "multiply", "finish")

    def fit(self) -> float:
        """The model's present fit, ``1 - ‖X - model‖ / ‖X‖``; waits for it."""
        model, grid, rank = self._model, self._grid, self._model.rank
        blocks, nonzeros = self._sums.shape[0], self._values.shape[0]
        tensor = model.weights, self._coords, self._values, nonzeros, rank, grid.lanes
        sums = self._sums, self._squares
        self._kernels["compare"]((blocks, 1, 1), BLOCK, pointers(*model.factors), *tensor, self._scale, *sums)
        for mode, factor in enumerate(model.factors):
            rows = model.shape[mode]
            parts = grid.residual_parts(rows)
            self._kernels["gram"]((grid.gram_elements, parts, 1), BLOCK, factor, self._parts, rows, rank)
            sizes = parts, rank, int(mode == 0), self._scale
            grams = self._parts, model.weights, self._products
            self._kernels["multiply"]((grid.gram_elements, 1, 1), BLOCK, *grams, *sizes)
        self._kernels["finish"](ONE, BLOCK, self._products, *sums, blocks, rank, self._answer)
        return float(self._answer.download()[0])
