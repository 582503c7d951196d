"""From texture coordinates to texels, and the weights of the texels that a filter mixes.

The CUDA C++ Programming Guide ("Texture Fetching") gives the formulas, with 8 bits of fraction. How a chip
rounds on the way is measured (docs/textures.md): a normalised coordinate has 21 bits of fraction, a position
is rounded to 1/256 of a texel, halves up, and so is the weight of each texel of a square or cube.

>>> import numpy as np
>>> axis = Axis(4, "wrap", normalized=True)
>>> axis.nearest(np.array([0.5, 1.25, -0.1], np.float32)).tolist()
[2, 1, 3]
>>> axis.between(np.array([0.5], np.float32))
(array([1]), array([128]))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

ONE = 256
"""The weight of a texel that is read alone."""
_HALF = ONE // 2
_BITS, _LONG = 21, 8192
"""Bits of the fraction of a normalised coordinate, up to so many texels; beyond there is one more."""
_FAR = 1 << 38
"""Positions are kept within this distance from zero; it is past every texel."""


@dataclass(frozen=True)
class Axis:
    """One dimension of a texture: its size in texels, and the address mode for coordinates outside."""

    size: int
    mode: str
    normalized: bool

    @property
    def repeats(self) -> bool:
        """True if the texture repeats beyond its last texel, which needs normalised coordinates."""
        return self.normalized and self.mode in ("wrap", "mirror")

    @property
    def bits(self) -> int:
        """The fraction bits of a normalised coordinate in fixed point."""
        return _BITS + (self.size > _LONG)

    def nearest(self, coordinate: Array) -> Array:
        """The number of the texel nearest to a coordinate; it may be outside the texture."""
        if not self.normalized:
            return _integers(np.floor(coordinate.astype(np.float64)))
        return self._fixed(coordinate) * self.size >> self.bits

    def between(self, coordinate: Array) -> tuple[Array, Array]:
        """The number of the first of two texels to mix, and the weight of the second; 0 at an end."""
        position = self.position(coordinate)
        if not self.repeats and self.mode != "border":
            position = np.clip(position, 0, (self.size - 1) * ONE)
        return position >> 8, position & (ONE - 1)

    def position(self, coordinate: Array) -> Array:
        """The distance of a coordinate from the centre of texel 0, in 1/256 of a texel."""
        if not self.normalized:
            return _integers(np.floor(coordinate.astype(np.float64) * ONE + 0.5)) - _HALF
        half = 1 << (self.bits - 9)
        return (self._fixed(coordinate) * self.size + half >> (self.bits - 8)) - _HALF

    def _fixed(self, coordinate: Array) -> Array:
        """A normalised coordinate in fixed point, without whole repetitions."""
        scaled = np.floor(np.ldexp(coordinate.astype(np.float64), self.bits))
        period = 1 << (self.bits + (self.mode == "mirror"))
        if self.repeats:
            whole = np.where(np.isfinite(scaled), scaled, 0.0)
            return np.mod(whole, period).astype(np.int64)
        return np.clip(_integers(scaled), -(1 << self.bits), 2 << self.bits)

    def texel(self, number: Array) -> tuple[Array, Array]:
        """The texel for a number by the address mode, and whether it is inside (else the border colour)."""
        if self.repeats and self.mode == "wrap":
            return np.mod(number, self.size), np.ones(number.shape, np.bool_)
        if self.repeats:
            turn = np.mod(number, 2 * self.size)
            return np.minimum(turn, 2 * self.size - 1 - turn), np.ones(number.shape, np.bool_)
        inside = (number >= 0) & (number < self.size)
        return np.clip(number, 0, self.size - 1), inside if self.mode == "border" else np.ones_like(inside)


def _integers(values: Array) -> Array:
    """Whole floats as integers, clamped to ±2³⁸; NaN becomes 0."""
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=_FAR, neginf=-_FAR), -_FAR, _FAR).astype(np.int64)


class Tap(NamedTuple):
    """One texel that each lane reads, with its weight in the filter."""

    place: tuple[Array, Array, Array]  # (x, y, z) of a texel
    weight: Array  # weight of the texel, in 1/256
    read: Array  # whether the texel is read; true also if its weight was rounded to zero: a NaN shows up
    inside: Array  # false where the texel has the border's colour
    slice: int = 0  # 0 or 1: the square of four texels that the texel belongs to, on a cube map


def one_tap(axes: tuple[Axis, Axis, Axis], numbers: tuple[Array, Array, Array]) -> Tap:
    """The texels with these numbers along x, y and z, each with the whole weight of the filter."""
    found = [axis.texel(number) for axis, number in zip(axes, numbers, strict=True)]
    (x, in_x), (y, in_y), (z, in_z) = found
    inside = in_x & in_y & in_z
    return Tap((x, y, z), np.full(inside.shape, ONE), np.ones(inside.shape, np.bool_), inside)


def taps(
    axes: tuple[Axis, Axis, Axis], firsts: tuple[Array, Array, Array], fractions: tuple[Array, Array, Array]
) -> list[Tap]:
    """The up to eight texels around each position, z outermost; texels that no lane reads are left out."""
    x, y, z = fractions
    found: list[Tap] = []
    for k, of_slice in ((0, ONE - z), (1, z)):
        right = of_slice * x + _HALF >> 8
        left = of_slice - right
        upper_left, lower_right = left * (ONE - y) + _HALF >> 8, right * y + _HALF >> 8
        weights = {
            (0, 0): upper_left,
            (1, 0): right - lower_right,
            (0, 1): left - upper_left,
            (1, 1): lower_right,
        }
        for (i, j), weight in weights.items():
            read = ((x > 0) | (i == 0)) & ((y > 0) | (j == 0)) & ((z > 0) | (k == 0))
            if read.any():
                numbers = firsts[0] + i, firsts[1] + j, firsts[2] + k
                found.append(one_tap(axes, numbers)._replace(weight=weight, read=read, slice=k))
    return found
