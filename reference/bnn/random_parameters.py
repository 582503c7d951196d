"""Random weights and batch normalisations that leave no layer's bits all equal."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.threshold import integer_thresholds
from reference.types.layers import Affine, Threshold
from reference.types.network import Input, Pixels, Signs

Array: TypeAlias = npt.NDArray[Any]

_FRACTION = 14
"""Binary digits after the point of a batch normalisation in fixed point."""


class RandomParameters:
    """Parameters drawn from a seed; see `reference.bnn.builder.Source`."""

    one = 1

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def input(self, shape: tuple[int, int, int], kind: str) -> tuple[Input, float, float]:
        """Bits of bytes, or bytes less 128, of images whose bytes are equally likely."""
        channels = shape[2]
        if kind == "signs":
            return Signs(shape, np.full(channels, 128, np.float32)), 0.0, 1.0
        scale, offset = np.ones(channels, np.int32), np.full(channels, -128, np.int32)
        return Pixels(shape, scale, offset), -0.5, 256**2 / 12

    def weights(self, *shape: int) -> Array:
        """Draw weights of -1 and 1 with equal probability."""
        return 2 * self._rng.integers(0, 2, shape, np.int8) - np.int8(1)

    def threshold(self, mean: Array, variance: float, unit: int) -> Threshold:
        """Draw a batch normalisation near the sums' mean and variance, as integer thresholds."""
        gamma, beta, middle = self._normalisation(mean, variance)
        return Threshold(*integer_thresholds(gamma, beta, middle, np.full(mean.size, variance * unit**2)))

    def affine(self, mean: Array, variance: float) -> Affine:
        """Draw a batch normalisation, and round it to fixed point."""
        gamma, beta, middle = self._normalisation(mean, variance)
        scale = np.rint(2**_FRACTION * gamma / variance**0.5)
        offset = np.rint(2**_FRACTION * beta - scale * middle)
        return Affine(scale.astype(np.int32), offset.astype(np.int32))

    def logits(self, mean: Array, variance: float) -> tuple[Array, Array]:
        """Draw the scale and offset of each class in float32."""
        gamma, beta, middle = self._normalisation(mean, variance)
        scale = gamma / variance**0.5
        return scale.astype(np.float32), (beta - scale * middle).astype(np.float32)

    def _normalisation(self, mean: Array, variance: float) -> tuple[Array, Array, Array]:
        """Draw γ, β and E of a batch normalisation."""
        rng, channels = self._rng, mean.size
        gamma = rng.uniform(0.5, 1.5, channels) * rng.choice([-1.0, 1.0], channels)
        beta = rng.normal(0, 0.3, channels)
        return gamma, beta, mean + rng.normal(0, 0.2, channels) * variance**0.5
