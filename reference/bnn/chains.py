"""Chains of batch normalisations and clamps on an integer: exact thresholds, and fixed point.

A network of floats has chains of monotone functions between the integers of one layer and the next sign.
Their parameters are rational numbers here, and no root is rounded before the answer is decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import RangeError
from reference.threshold import IntegerThresholds

Numbers: TypeAlias = tuple[Fraction, ...]
Interval: TypeAlias = tuple[Fraction, Fraction]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
_BITS = (64, 256, 1024, 4096)
"""Binary digits of roots, until a threshold is decided."""
_LARGEST = 2**30
"""Integers that are scaled stay below it, so that two can be added."""


@dataclass(frozen=True)
class Normalise:
    """Per channel ``gamma * (x - mean) / sqrt(square) + beta``; ``square`` > 0 is variance plus epsilon."""

    gamma: Numbers
    beta: Numbers
    mean: Numbers
    square: Numbers

    def taken(self, order: Sequence[int]) -> Normalise:
        """The normalisation with its channels permuted."""
        names = ("gamma", "beta", "mean", "square")
        return replace(self, **{name: tuple(getattr(self, name)[i] for i in order) for name in names})


@dataclass(frozen=True)
class Clamp:
    """The step ``min(max(x, low), high)`` on each element."""

    low: Fraction | None = None
    high: Fraction | None = None


Step: TypeAlias = Normalise | Clamp


def linear(scale: Sequence[Fraction | int], shift: Sequence[Fraction | int] | None = None) -> Normalise:
    """The step ``scale * x + shift``, for each channel."""
    none, one = (tuple(Fraction(n) for _ in scale) for n in (0, 1))
    shifts = none if shift is None else tuple(map(Fraction, shift))
    return Normalise(tuple(map(Fraction, scale)), shifts, none, one)


def slopes(steps: Sequence[Step], channels: int) -> list[int]:
    """For each channel 1 where the chain never falls, -1 where it never rises, 0 where it is constant."""
    signs = [1] * channels
    for step in steps:
        if isinstance(step, Normalise):
            signs = [sign * ((g > 0) - (g < 0)) for sign, g in zip(signs, step.gamma, strict=True)]
    return signs


# --------------------------------------------------------------------------------------------------
# Thresholds
# --------------------------------------------------------------------------------------------------


def chain_thresholds(steps: Sequence[Step], channels: int) -> IntegerThresholds:
    """Thresholds and flips with ``(x >= t) ^ flip == chain(x) >= 0`` for every int32 x.

    For one normalisation they are those of `reference.integer_thresholds`.

    >>> half = linear([Fraction(-1, 2)], [3])
    >>> chain_thresholds([half, Clamp(low=Fraction(-1))], 1)
    IntegerThresholds(thresholds=array([7], dtype=int32), flip=array([ True]))
    """
    rules = [_rule(steps, j) for j in range(channels)]
    return IntegerThresholds(
        np.array([t for t, _ in rules], np.int32), np.array([flip for _, flip in rules], np.bool_)
    )


def _rule(steps: Sequence[Step], j: int) -> tuple[int, bool]:
    for bits in _BITS:
        rule = _rule_with(steps, j, bits)
        if rule is not None:
            return rule
    raise RangeError(
        f"channel {j}: {_BITS[-1]} binary digits do not decide which integers a chain of normalisations "
        "takes to 0 and above\nmerge the normalisations into one"
    )


def _rule_with(steps: Sequence[Step], j: int, bits: int) -> tuple[int, bool] | None:
    """The rule of a channel; None if square roots with this many digits do not decide it."""
    bound: Interval = (Fraction(0), Fraction(0))
    up = True  # True: the condition is "at least the bound"; False: "at most the bound"
    for step in reversed(steps):
        if isinstance(step, Clamp):
            always = _met_by_limits(step, bound, up)
            if always != "no":
                return None if always is None else _constant(always == "always")
        elif step.gamma[j] == 0:
            side = _side(step.beta[j], bound)
            return None if side is None else _constant(side >= 0 if up else side <= 0)
        else:
            factor = [root / step.gamma[j] for root in _root(step.square[j], bits)]
            ends = [(end - step.beta[j]) * f + step.mean[j] for end in bound for f in factor]
            bound, up = (min(ends), max(ends)), up == (step.gamma[j] > 0)
    low, high = (math.ceil(end) if up else math.floor(end) + 1 for end in bound)
    return _within_int32(low, not up) if low == high else None


def _met_by_limits(clamp: Clamp, bound: Interval, up: bool) -> str | None:
    """Whether a clamp's limits meet a bound: "always", "never", "no" (the input decides), None (unknown)."""
    near, far = (clamp.low, clamp.high) if up else (clamp.high, clamp.low)
    sign = 1 if up else -1
    sides = [None if limit is None else _side(limit, bound) for limit in (near, far)]
    for limit, side in zip((near, far), sides, strict=True):
        if limit is not None and side is None:
            return None
    if sides[0] is not None and sign * sides[0] >= 0:
        return "always"
    return "never" if sides[1] is not None and sign * sides[1] < 0 else "no"


def _side(number: Fraction, bound: Interval) -> int | None:
    """The sign of ``number - bound``; None if the bound's interval contains the number."""
    low, high = (((number > end) - (number < end)) for end in bound)
    return low if low == high else None


def _constant(value: bool) -> tuple[int, bool]:
    return INT32_MIN, not value


def _within_int32(t: int, flip: bool) -> tuple[int, bool]:
    if t > INT32_MAX:
        return INT32_MIN, not flip
    return max(t, INT32_MIN), flip


def _root(square: Fraction, bits: int) -> Interval:
    """An interval that contains √square; a single point if the root is rational."""
    n, d = square.numerator, square.denominator
    whole = math.isqrt(n), math.isqrt(d)
    if whole[0] ** 2 == n and whole[1] ** 2 == d:
        return Fraction(*whole), Fraction(*whole)
    low = math.isqrt(n * d << 2 * bits)
    return Fraction(low, d << bits), Fraction(low + 1, d << bits)


# --------------------------------------------------------------------------------------------------
# Scale and offset, and fixed point
# --------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """``scale * x + offset``, and whether both are exact."""

    scale: Fraction
    offset: Fraction
    exact: bool


def lines(steps: Sequence[Step], channels: int) -> list[Line]:
    """A chain without clamps, as one line for each channel; irrational roots have 256 binary digits."""
    return [_line(steps, j) for j in range(channels)]


def _line(steps: Sequence[Step], j: int) -> Line:
    scale, offset, exact = Fraction(1), Fraction(0), True
    for step in steps:
        assert isinstance(step, Normalise)
        low, high = _root(step.square[j], 256)
        factor = step.gamma[j] / low
        scale, offset = scale * factor, (offset - step.mean[j]) * factor + step.beta[j]
        exact = exact and (low == high or step.gamma[j] == 0)
    return Line(scale, offset, exact)


class FixedPoint(NamedTuple):
    """Lines as integers in a common unit.

    Attributes
    ----------
    unit : Fraction
    scales, offsets : list of arrays of int32
        One for each group of lines.
    error : Fraction
        The largest difference from a line, for integers up to the limits that were given.
    """

    unit: Fraction
    scales: list[npt.NDArray[np.int32]]
    offsets: list[npt.NDArray[np.int32]]
    error: Fraction


def fixed_point(
    groups: Sequence[Sequence[Line]],
    largest: Sequence[int],
    limits: Sequence[Fraction] = (),
    digits: int | None = None,
) -> FixedPoint:
    """Integers for groups of lines in one unit, exact if possible, else multiples of ``2**-digits``.

    ``largest`` has the largest absolute integer that a group is applied to; ``limits`` are numbers that are
    multiples of an exact unit too.

    >>> thirds = [Line(Fraction(2, 3), Fraction(1), True)]
    >>> unit, scales, offsets, error = fixed_point([thirds], [100])
    >>> unit, scales[0].tolist(), offsets[0].tolist()
    (Fraction(1, 3), [2], [3])
    """
    exact = all(line.exact for group in groups for line in group)
    if exact:
        numbers = [number for group in groups for line in group for number in line[:2]]
        unit = _divisor([*numbers, *limits])
        converted = _in_unit(groups, largest, unit)
        if converted is not None:
            return converted
    if digits is None:
        why = "integers beyond int32" if exact else "a square root that is not rational"
        raise RangeError(f"scale and offset of integers that flow on would need {why}")
    converted = _in_unit(groups, largest, Fraction(1, 2**digits))
    if converted is None:
        raise RangeError(f"with {digits} binary digits after the point, integers would leave int32")
    return converted


def _in_unit(groups: Sequence[Sequence[Line]], largest: Sequence[int], unit: Fraction) -> FixedPoint | None:
    """The lines rounded to multiples of a unit; None if integers may become too large."""
    scales: list[npt.NDArray[np.int32]] = []
    offsets: list[npt.NDArray[np.int32]] = []
    error = Fraction(0)
    for group, most in zip(groups, largest, strict=True):
        rounded = [(round(line.scale / unit), round(line.offset / unit)) for line in group]
        same = set(rounded) == {(1, 0)}
        if not same and any(abs(scale) * most + abs(offset) >= _LARGEST for scale, offset in rounded):
            return None
        for line, (scale, offset) in zip(group, rounded, strict=True):
            error = max(error, abs(line.scale - scale * unit) * most + abs(line.offset - offset * unit))
        scales.append(np.array([scale for scale, _ in rounded], np.int32))
        offsets.append(np.array([offset for _, offset in rounded], np.int32))
    return FixedPoint(unit, scales, offsets, error)


def _divisor(numbers: Sequence[Fraction]) -> Fraction:
    """The greatest number that all are multiples of; 1 if all are 0."""
    denominator = math.lcm(*(number.denominator for number in numbers))
    divisor = math.gcd(*(int(number * denominator) for number in numbers))
    return Fraction(divisor, denominator) if divisor else Fraction(1)


def rationals(vector: Any) -> Numbers:
    """Convert floats to the rational numbers that they exactly represent."""
    return tuple(Fraction(number) for number in vector.tolist())


def runs(steps: Sequence[Step]) -> Iterator[tuple[tuple[Normalise, ...], Clamp | None]]:
    """Split steps into runs: normalisations and the clamp after them, None after the last run."""
    run: list[Normalise] = []
    for step in steps:
        if isinstance(step, Clamp):
            yield tuple(run), step
            run = []
        else:
            run.append(step)
    yield tuple(run), None
