"""Chains of normalisations and clamps: their thresholds against the chain itself, in exact numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reference import RangeError, integer_thresholds
from reference.bnn.chains import Clamp, Line, Normalise, chain_thresholds, fixed_point, linear, lines, slopes

RNG = np.random.default_rng(7)
GRID = np.arange(-400, 401)


def quarter(channels, low=-8, high=8):
    return tuple(Fraction(int(n), 4) for n in RNG.integers(low, high + 1, channels))


def normalise(channels):
    """A normalisation with rational roots."""
    roots = [Fraction(int(n), 2) for n in RNG.integers(1, 9, channels)]
    return Normalise(
        quarter(channels), quarter(channels), quarter(channels, -99, 99), tuple(r * r for r in roots)
    )


def evaluated(steps, j, x):
    """The chain at an integer, in rationals."""
    y = Fraction(int(x))
    for step in steps:
        if isinstance(step, Clamp):
            y = y if step.low is None else max(y, step.low)
            y = y if step.high is None else min(y, step.high)
        else:
            root = Fraction(float(step.square[j]) ** 0.5)
            assert root**2 == step.square[j]
            y = step.gamma[j] * (y - step.mean[j]) / root + step.beta[j]
    return y


def drawn_clamp():
    low, high = sorted(quarter(2, -30, 30))
    return Clamp(*[(low, high), (low, None), (None, high)][RNG.integers(3)])


@pytest.mark.parametrize("case", range(20))
def test_thresholds_are_those_of_the_chain(case):
    channels = 3
    steps = [normalise(channels) if RNG.random() < 0.6 else drawn_clamp() for _ in range(RNG.integers(1, 6))]
    rule = chain_thresholds(steps, channels)
    for j in range(channels):
        expected = [evaluated(steps, j, x) >= 0 for x in GRID]
        assert np.array_equal((rule.thresholds[j] <= GRID) ^ rule.flip[j], expected)


def test_one_normalisation_is_that_of_integer_thresholds():
    gamma, beta, mean = (RNG.standard_normal(64) for _ in range(3))
    gamma[:8], mean[8:20], beta[20:28] = 0, 1e12, 0
    variance = RNG.random(64)
    square = tuple(Fraction(v) + Fraction(1e-5) for v in variance.tolist())
    step = Normalise(*(tuple(map(Fraction, x.tolist())) for x in (gamma, beta, mean)), square)
    for relu in (False, True):
        steps = [Clamp(low=Fraction(0)), step] if relu else [step]
        expected = integer_thresholds(gamma, beta, mean, variance, 1e-5, relu=relu)
        found = chain_thresholds(steps, 64)
        probes = np.concatenate([expected.thresholds.astype(np.int64) + d for d in (-1, 0, 1)])
        probes = np.concatenate([probes, [-1, 0, 1, -(2**31), 2**31 - 1]]).clip(-(2**31), 2**31 - 1)[:, None]
        assert np.array_equal(
            (probes >= expected.thresholds) ^ expected.flip, (probes >= found.thresholds) ^ found.flip
        )


def test_irrational_roots_are_refined_until_they_decide():
    root = Fraction(2)  # sqrt(2) (x - 1) / sqrt(2): the bound lies at 10**30 and needs more than 64 digits
    far = Normalise((Fraction(1),), (-Fraction(10**30),), (Fraction(0),), (root,))
    near = Normalise((Fraction(10**30),), (Fraction(0),), (Fraction(5, 2),), (root,))
    # near: 10**30 (x - 2.5) / sqrt(2); far: near / sqrt(2) - 10**30 >= 0, so x >= 4.5
    assert chain_thresholds([near, far], 1).thresholds.tolist() == [5]


def test_a_bound_that_digits_do_not_decide_is_refused():
    both = Normalise((Fraction(1),), (Fraction(-1),), (Fraction(0),), (Fraction(2),))
    step = Normalise((Fraction(1),), (Fraction(0),), (Fraction(0),), (Fraction(2),))
    with pytest.raises(RangeError, match="merge the normalisations into one"):
        chain_thresholds([step, both], 1)  # x / 2 - 1 >= 0, by a root times itself


def test_slopes():
    steps = [linear([1, -1, 0]), Clamp(Fraction(0)), linear([-2, -2, 5])]
    assert slopes(steps, 3) == [-1, 1, 0]


def test_lines_and_fixed_point():
    step = Normalise((Fraction(3),), (Fraction(1, 2),), (Fraction(2),), (Fraction(4),))
    assert lines([step, linear([2], [1])], 1) == [(3, -4, True)]
    irrational = Normalise((Fraction(1),), (Fraction(0),), (Fraction(0),), (Fraction(2),))
    (line,) = lines([irrational], 1)
    assert not line.exact
    assert abs(line.scale - Fraction(0.5**0.5)) < 1e-15
    with pytest.raises(RangeError, match="square root"):
        fixed_point([[line]], [100])
    found = fixed_point([[line], [Line(Fraction(1), Fraction(1, 3), True)]], [100, 7], digits=10)
    assert found.unit == Fraction(1, 1024)
    assert [scale.tolist() for scale in found.scales] == [[724], [1024]]
    assert found.error == max(
        abs(line.scale * 100 - Fraction(72400, 1024)), Fraction(1, 3) - Fraction(341, 1024)
    )


def test_integers_that_need_no_scale_may_be_large():
    (scale,) = fixed_point([[Line(Fraction(1, 36), Fraction(0), True)]], [2**31], digits=4).scales
    assert scale.tolist() == [1]


def test_fixed_point_has_bounds():
    steep = [Line(Fraction(2**20), Fraction(1, 2**10), True)]
    with pytest.raises(RangeError, match="beyond int32"):
        fixed_point([steep], [100])
    with pytest.raises(RangeError, match="4 binary digits"):
        fixed_point([steep], [100], digits=4)
