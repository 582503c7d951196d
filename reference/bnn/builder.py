"""A builder of networks, layer by layer: a source gives the parameters and estimates moments.

Each value carries an estimate of its mean in each channel and of its variance. A source of random parameters
sets its batch normalisations by it, as training would: no layer's bits are all equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bits import pack
from reference.tensors import pack_tensor
from reference.types.layers import Affine, Conv, Dense, Flatten, Layer, PadChannels, Pool, Residual, Threshold
from reference.types.network import Input

Array: TypeAlias = npt.NDArray[Any]

_OR_MEAN = 0.8
"""The mean of the OR of four neighbours in ±1: they agree more often than random ones, whose OR has 0.875."""
_MAX_MEAN, _MAX_VARIANCE = 1.03, 0.49
"""Mean and variance of the largest of four normal numbers."""


class Source(Protocol):
    """A source of a network's parameters, asked layer by layer in order."""

    one: int
    """The integer that the input makes of 1.0."""

    def input(self, shape: tuple[int, int, int], kind: str) -> tuple[Input, float, float]:
        """The input layer, and the mean and the variance of its output."""
        ...

    def weights(self, *shape: int) -> Array:
        """An array of numbers whose signs are the layer's weights."""
        ...

    def threshold(self, mean: Array, variance: float, unit: int) -> Threshold:
        """A batch normalisation and a sign, of sums in units of 1 / ``unit``."""
        ...

    def affine(self, mean: Array, variance: float) -> Affine:
        """The scale and offset of a batch normalisation, in fixed point."""
        ...

    def logits(self, mean: Array, variance: float) -> tuple[Array, Array]:
        """The scale and offset of each class, which turn the last layer's sums into logits."""
        ...


class Builder:
    """Layers, added one by one to a value that starts as the input's or a branch's."""

    def __init__(
        self, source: Source, shape: tuple[int, int, int], mean: Array, variance: float, unit: int
    ) -> None:
        self.source, self.shape, self.mean, self.variance = source, shape, mean, variance
        self.unit = unit
        self.layers: list[Layer] = []

    def conv(self, filters: int, size: int, stride: int = 1, *, padded: bool = True) -> None:
        """Add a convolution padded with half a filter on each side, as in the programs of both papers.

        Without padding it takes the whole windows alone.
        """
        height, width, channels = self.shape
        weights = self.source.weights(size, size, channels, filters)
        pad = size // 2 if padded else 0
        lost = 0 if padded else size - 1
        self._append(
            Conv(pack_tensor(weights, layout="HWOI"), (stride, stride), ((pad, pad), (pad, pad))),
            (-(-(height - lost) // stride), -(-(width - lost) // stride), filters),
            self._dots(weights),
            size * size * channels * self.variance,
        )

    def threshold(self) -> None:
        """Add a batch normalisation followed by the sign, as a threshold layer."""
        layer = self.source.threshold(self.mean, self.variance, self.unit)
        self.unit = 1
        self._append(layer, self.shape, np.zeros_like(self.mean), 1.0)

    def affine(self) -> None:
        """Add a batch normalisation that gives integers, not signs."""
        layer = self.source.affine(self.mean, self.variance)
        self._scaled(layer, layer.scale.astype(np.float64), layer.offset)

    def pool(self, kind: Literal["or", "max", "sum"] = "or") -> None:
        """Add a pooling layer with windows of 2×2."""
        height, width, channels = self.shape
        mean, variance = {
            "or": (np.full_like(self.mean, _OR_MEAN), 1 - _OR_MEAN**2),
            "max": (self.mean + _MAX_MEAN * self.variance**0.5, _MAX_VARIANCE * self.variance),
            "sum": (4 * self.mean, 4 * self.variance),
        }[kind]
        self._append(Pool(kind), (height // 2, width // 2, channels), mean, variance)

    def flatten(self) -> None:
        """Add a layer that flattens pixels to a vector."""
        height, width, channels = self.shape
        self._append(Flatten(), (1, 1, height * width * channels), self.mean, self.variance)

    def dense(self, outputs: int) -> None:
        """Add a fully connected layer."""
        features = self.shape[2]
        weights = self.source.weights(features, outputs)
        self._append(
            Dense(pack(weights, layout="row")),
            (1, 1, outputs),
            self._dots(weights),
            features * self.variance,
        )

    def residual(self, body: Callable[[Builder], None], shortcut: Callable[[Builder], None]) -> None:
        """Add a residual layer, the sum of two branches."""
        ways = [self._branch(fill) for fill in (body, shortcut)]
        self._append(
            Residual(tuple(ways[0].layers), tuple(ways[1].layers)),
            ways[0].shape,
            ways[0].mean + ways[1].mean,
            ways[0].variance + ways[1].variance,
        )

    def in_unit(self, unit: int) -> None:
        """Sums of bits in units of 1 / ``unit``, to be added to those of the input."""
        if unit != 1:
            channels = self.shape[2]
            scale, offset = np.full(channels, unit, np.int32), np.zeros(channels, np.int32)
            self._scaled(Affine(scale, offset), scale, offset)
        self.unit = unit

    def pad_channels(self, after: int) -> None:
        """Add a layer that appends channels of zeros."""
        height, width, channels = self.shape
        mean = np.concatenate([self.mean, np.zeros(after)])
        self._append(PadChannels(0, after), (height, width, channels + after), mean, self.variance)

    def _dots(self, weights: Array) -> Array:
        """The mean of the products with each column of weights; a vector's mean repeats with its pixels."""
        signs = np.where(weights >= 0, np.int8(1), np.int8(-1))
        return self.mean @ signs.reshape(-1, self.mean.size, weights.shape[-1]).sum(0)

    def _branch(self, fill: Callable[[Builder], None]) -> Builder:
        branch = Builder(self.source, self.shape, self.mean, self.variance, self.unit)
        fill(branch)
        return branch

    def _scaled(self, layer: Affine, scale: Array, offset: Array) -> None:
        variance = float(np.mean(np.square(scale, dtype=np.float64))) * self.variance
        self._append(layer, self.shape, scale * self.mean + offset, variance)

    def _append(self, layer: Layer, shape: tuple[int, int, int], mean: Array, variance: float) -> None:
        self.layers.append(layer)
        self.shape, self.mean, self.variance = shape, mean, variance
