"""Reads of textures in exact arithmetic, by the formulas of the CUDA C++ Programming Guide."""

import itertools
import math
from fractions import Fraction


def texel(index, size, mode, normalized):
    """The texel that stands for an index; None for the border."""
    if normalized and mode == "wrap":
        return index % size
    if normalized and mode == "mirror":
        turn, within = divmod(index, size)
        return size - 1 - within if turn % 2 else within
    if mode == "border" and not 0 <= index < size:
        return None
    return min(max(index, 0), size - 1)


def place(coordinate, size, mode, normalized):
    """A coordinate in texels, without whole repetitions."""
    exact = Fraction(float(coordinate))
    if not normalized:
        return exact
    return exact * size


def value(texels, sizes, places, border):
    """The value of a texel; ``texels`` is indexed outermost dimension first."""
    if None in places:
        return Fraction(border)
    for index in reversed(places):
        texels = texels[index]
    return Fraction(float(texels))


def point(texels, sizes, coordinates, modes, normalized, border=0):
    """The texel at a place: x first."""
    found = [
        texel(math.floor(place(c, n, mode, normalized)), n, mode, normalized)
        for c, n, mode in zip(coordinates, sizes, modes, strict=True)
    ]
    return value(texels, sizes, found, border)


def linear(texels, sizes, coordinates, modes, normalized, border=0):
    """The mean of the texels around a place, with exact weights."""
    total = Fraction(0)
    starts = [
        place(c, n, m, normalized) - Fraction(1, 2) for c, n, m in zip(coordinates, sizes, modes, strict=True)
    ]
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        weight, found = Fraction(1), []
        for start, step, size, mode in zip(starts, corner, sizes, modes, strict=True):
            fraction = start - math.floor(start)
            weight *= fraction if step else 1 - fraction
            found.append(texel(math.floor(start) + step, size, mode, normalized))
        total += weight * value(texels, sizes, found, border)
    return total
