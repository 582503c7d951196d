"""Thresholds equal equations 1, 3 and 5, evaluated in rational numbers and in 60 decimal digits."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from reference import (
    DtypeError,
    NotANumberError,
    SchemeError,
    ShapeError,
    bmm,
    integer_thresholds,
    threshold,
    unpack,
)
from support.offenders import every_case

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
FORMATS = list(itertools.product(("row", "column"), (32, 64), ("msb", "lsb")))


def bit_in_fractions(x, gamma, beta, mean, variance, epsilon, relu):
    """The sign of gamma * (x - mean) + beta * sqrt(variance + epsilon), decided by squaring both terms."""
    x = max(x, 0) if relu else x
    u = Fraction(gamma) * (x - Fraction(mean))
    v_squared = Fraction(beta) ** 2 * (Fraction(variance) + Fraction(epsilon))
    if u >= 0:
        return beta >= 0 or u**2 >= v_squared
    return beta >= 0 and v_squared >= u**2


def value_in_decimals(x, gamma, beta, mean, variance, epsilon, relu):
    """Equation 3 to 60 digits: the value, and its largest term."""
    with localcontext() as context:
        context.prec = 60
        x = Decimal(max(x, 0) if relu else x)
        scaled = (x - Decimal(mean)) / (Decimal(variance) + Decimal(epsilon)).sqrt() * Decimal(gamma)
        return scaled + Decimal(beta), max(abs(scaled), abs(Decimal(beta)))


def rule(channel, epsilon=0.0, relu=False):
    """Threshold and flip of one channel (gamma, beta, mean, variance)."""
    t, flip = integer_thresholds(*([p] for p in channel), epsilon, relu=relu)
    assert (t.dtype, t.shape, flip.dtype, flip.shape) == (np.int32, (1,), np.bool_, (1,))
    return int(t[0]), bool(flip[0])


def dots_near(t):
    """Dot products that reveal a wrong rule: near the threshold, near 0, at both ends of int32."""
    near = {t + d for d in (-2, -1, 0, 1, 2)} | {-2, -1, 0, 1, 2} | {INT32_MIN, -INT32_MAX, INT32_MAX}
    return [x for x in sorted(near) if INT32_MIN <= x <= INT32_MAX]


def check(channel, epsilon=0.0):
    tau = None
    if channel[0] != 0:  # also around where floats put the threshold, however wrong they are
        with np.errstate(all="ignore"):
            gamma, beta, mean, variance = (np.float64(p) for p in channel)
            tau = float(mean - beta * np.sqrt(variance + np.float64(epsilon)) / gamma)
    around = dots_near(round(tau)) if tau is not None and math.isfinite(tau) else []
    for relu in (False, True):
        t, flip = rule(channel, epsilon, relu)
        for x in (*dots_near(t), *around):
            assert ((x >= t) ^ flip) == bit_in_fractions(x, *channel, epsilon, relu), (x, t, flip, relu)


# --------------------------------------------------------------------------------------------------
# integer_thresholds
# --------------------------------------------------------------------------------------------------

FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-100, 100),
    st.integers(-1000, 1000).map(float),
    st.floats(-100, 100, width=16),
)
VARIANCES = FLOATS.map(abs)


@pytest.mark.gate
@settings(max_examples=600)
@given(st.tuples(FLOATS, FLOATS, FLOATS, VARIANCES), st.sampled_from((0.0, 1e-5, 1e-3, 5e-324)))
@example((1e-300, 1.0, 0.0, 1.0), 0.0)
@example((5e-324, -5e-324, 0.5, 1.0), 0.0)
@example((-5e-324, 1.7e308, -1.7e308, 1.7e308), 1.7e308)
def test_integer_thresholds_equal_exact_arithmetic(channel, epsilon):
    assume(channel[3] + Fraction(epsilon) > 0)
    check(channel, epsilon)


@pytest.mark.slow
def test_thresholds_decide_every_dot_product_of_a_range():
    generator = np.random.default_rng(3)
    for _ in range(300):
        channel = (*generator.normal(0, (1, 1, 8)).tolist(), float(generator.gamma(2.0, 9.0)))
        for relu in (False, True):
            t, flip = rule(channel, 1e-5, relu)
            for x in range(-40, 41):
                value, size = value_in_decimals(x, *channel, 1e-5, relu)
                assert abs(value) > size * Decimal("1e-50")  # 60 digits decide
                assert ((x >= t) ^ flip) == (value >= 0)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.integers(INT32_MIN + 4, INT32_MAX - 4),
    st.integers(-(2**20), 2**20).filter(bool),
    st.integers(-1000, 1000),
    st.integers(1, 1000),
)
def test_thresholds_at_and_beside_an_integer_are_exact(tau, gamma, c, root):
    """With beta = c * gamma and variance = root², τ = mean - c * root, or slightly beside it."""
    mean = float(tau + c * root)
    channel = (float(gamma), float(c * gamma), mean, float(root**2))
    assert rule(channel) == ((tau, False) if gamma > 0 else (tau + 1, True))
    above, below = (
        (channel[0], channel[1], math.nextafter(mean, side), channel[3]) for side in (math.inf, -math.inf)
    )
    assert rule(above) == (tau + 1, gamma < 0)
    assert rule(below) == (tau, gamma < 0)
    for each in (channel, above, below):
        check(each)


def test_thresholds_are_exact_where_float64_rounds_wrongly():
    """Cases where equation 4 in float64 rounds across an integer."""
    generator = np.random.default_rng(5)
    wrong = 0
    for _ in range(400):
        gamma, variance = generator.uniform(0.5, 2), float(generator.integers(2, 50))
        x = int(generator.integers(-30, 30))
        mean = x + float(generator.integers(1, 9)) / 8
        beta = (mean - x) * gamma / math.sqrt(variance)  # puts τ at x, except for rounding
        channel = (gamma, beta, mean, variance)
        check(channel)
        wrong += rule(channel)[0] != math.ceil(mean - beta * math.sqrt(variance) / gamma)
    assert wrong > 10


@every_case(
    ("channel", "relu", "expected"),
    [
        # gamma of 0: the sign of beta, -0.0 included
        ((0.0, 1.0, 3.0, 1.0), False, (INT32_MIN, False)),
        ((0.0, 0.0, 3.0, 1.0), False, (INT32_MIN, False)),
        ((-0.0, -0.0, 3.0, 1.0), True, (INT32_MIN, False)),
        ((0.0, -5e-324, 3.0, 1.0), False, (INT32_MIN, True)),
        # tiny gamma: the threshold leaves int32 on either side
        ((1e-300, -1.0, 0.0, 1.0), False, (INT32_MIN, True)),
        ((1e-300, 1.0, 0.0, 1.0), False, (INT32_MIN, False)),
        ((-1e-300, -1.0, 0.0, 1.0), False, (INT32_MIN, True)),
        ((-1e-300, 1.0, 0.0, 1.0), False, (INT32_MIN, False)),
        # the ends of int32
        ((1.0, 0.0, float(INT32_MAX), 1.0), False, (INT32_MAX, False)),
        ((1.0, 0.0, INT32_MAX + 0.5, 1.0), False, (INT32_MIN, True)),
        ((1.0, 0.0, float(INT32_MIN), 1.0), False, (INT32_MIN, False)),
        ((1.0, 0.0, INT32_MIN + 0.5, 1.0), False, (INT32_MIN + 1, False)),
        ((-1.0, 0.0, float(INT32_MAX), 1.0), False, (INT32_MIN, False)),
        ((-1.0, 0.0, INT32_MAX - 0.5, 1.0), False, (INT32_MAX, True)),
        ((-1.0, 0.0, INT32_MIN - 0.5, 1.0), False, (INT32_MIN, True)),
        ((-1.0, 0.0, float(INT32_MIN), 1.0), False, (INT32_MIN + 1, True)),
        # after a ReLU, a threshold of at most 0 is always reached
        ((1.0, 0.0, 0.0, 1.0), True, (INT32_MIN, False)),
        ((1.0, 0.0, -7.0, 1.0), True, (INT32_MIN, False)),
        ((1.0, 0.0, 0.25, 1.0), True, (1, False)),
        ((-1.0, 0.0, -1.0, 1.0), True, (INT32_MIN, True)),
        ((-1.0, 0.0, -0.5, 1.0), True, (INT32_MIN, True)),
        ((-1.0, 0.0, 0.0, 1.0), True, (1, True)),
        ((-1.0, 0.0, 7.0, 1.0), True, (8, True)),
    ],
)
def test_special_parameters_have_their_threshold(channel, relu, expected):
    assert rule(channel, relu=relu) == expected
    check(channel)


def test_thresholds_are_computed_per_channel():
    gamma, beta = np.float32([1.5, -1.5, 0]), np.float16([0.5, 0.5, -1])
    rules = integer_thresholds(gamma, beta, [3, 3, 3], np.array([4, 9, 1], np.int8), np.float32(0.25))
    for j in range(3):
        channel = (float(gamma[j]), float(beta[j]), 3, (4, 9, 1)[j])
        assert (rules.thresholds[j], rules.flip[j]) == rule(channel, 0.25)


def test_parameters_count_at_their_own_precision():
    """The float32 next to 1/9 lies above it, the float64 below; the threshold differs."""
    assert rule((1.0, -3.0, 0.0, float(np.float32(1 / 9)))) == (2, False)
    assert rule((1.0, -3.0, 0.0, 1 / 9)) == (1, False)


ONES = [1.0, 1.0]


@pytest.mark.parametrize("name", ["gamma", "beta", "mean", "variance"])
def test_unsuitable_parameters_are_refused(name):
    arguments = dict.fromkeys(("gamma", "beta", "mean", "variance"), ONES)
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(NotANumberError, match=rf"{name}\[1\] is -?(nan|inf)"):
            integer_thresholds(**{**arguments, name: [1.0, value]})
    for bad in (np.array(["1", "2"]), np.ones(2, bool), np.ones(2, complex), np.ones(2, np.longdouble)):
        with pytest.raises(DtypeError, match=name):
            integer_thresholds(**{**arguments, name: bad})
    for bad in (1.0, np.ones((2, 1)), np.ones(0), [[1.0], [1.0, 2.0]]):
        with pytest.raises(ShapeError, match=name):
            integer_thresholds(**{**arguments, name: bad})
    with pytest.raises(ShapeError, match=rf"{name} 3"):
        integer_thresholds(**{**arguments, name: np.ones(3)})


def test_a_variance_without_a_positive_root_is_refused():
    for variance, epsilon in ((-1.0, 0.0), (-1e-9, 1.0), (0.0, 0.0), (-0.0, -0.0)):
        with pytest.raises(NotANumberError, match=r"variance\[1\]"):
            integer_thresholds(ONES, ONES, ONES, [1.0, variance], epsilon)
    with pytest.raises(NotANumberError, match=r"epsilon -1e-09"):
        integer_thresholds(ONES, ONES, ONES, ONES, -1e-9)
    assert rule((1.0, 1.0, 0.0, 0.0), 4.0) == (-2, False)
    with pytest.raises(NotANumberError, match="epsilon"):
        integer_thresholds(ONES, ONES, ONES, ONES, math.nan)
    with pytest.raises(ShapeError, match="epsilon"):
        integer_thresholds(ONES, ONES, ONES, ONES, ONES)


# --------------------------------------------------------------------------------------------------
# threshold
# --------------------------------------------------------------------------------------------------


@every_case(("layout", "word", "first"), FORMATS)
@every_case("shape", [(1, 1), (3, 65), (40, 7), (33, 32)])
def test_threshold_equals_a_loop_over_elements(shape, layout, word, first):
    generator = np.random.default_rng(shape)
    dots = generator.integers(-5, 6, shape, dtype=np.int32)
    limits = generator.integers(-5, 6, shape[1], dtype=np.int32)
    flip = generator.integers(0, 2, shape[1]).astype(bool)
    for flips in (None, flip):
        packed = threshold(dots, limits, flips, layout=layout, word=word, first=first)
        assert (packed.shape, packed.layout, packed.word, packed.first) == (shape, layout, word, first)
        assert unpack(packed).tolist() == [
            [
                int((dot >= t) != (flips is not None and f))
                for dot, t, f in zip(row, limits, flip, strict=True)
            ]
            for row in dots.tolist()
        ]


def test_the_defaults_feed_the_next_product():
    dots = np.array([[3, -1], [1, 5]], np.int32)
    packed = threshold(dots, [2, 2])
    assert (packed.layout, packed.word, packed.first) == ("column", 32, "msb")
    assert bmm(packed, [[1.0], [1.0]]).tolist() == [[0], [0]]


def test_thresholds_give_the_bits_of_a_batch_normalised_layer():
    """Bits of a ±1 layer with batch normalisation and ReLU, in floats and by thresholds."""
    generator = np.random.default_rng(11)
    a, b = generator.normal(size=(9, 37)), generator.normal(size=(37, 21))
    gamma, beta, mean = generator.normal(size=(3, 21))
    variance = generator.gamma(2.0, size=21)
    dots = bmm(a, b)
    for relu in (False, True):
        x = np.maximum(dots, 0) if relu else dots
        y = (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta
        assert np.abs(y).min() > 1e-9  # far enough from 0 for floats
        packed = threshold(dots, *integer_thresholds(gamma, beta, mean, variance, 1e-5, relu=relu))
        np.testing.assert_array_equal(unpack(packed), y >= 0)


def test_thresholds_at_the_ends_of_int32_are_exact():
    dots = np.array([[INT32_MIN], [-1], [INT32_MAX]], np.int32)
    for limit, bits in ((INT32_MIN, [1, 1, 1]), (INT32_MAX, [0, 0, 1]), (np.int64(0), [0, 0, 1])):
        assert unpack(threshold(dots, np.array([limit])))[:, 0].tolist() == bits
        assert unpack(threshold(dots, [limit], [True]))[:, 0].tolist() == [1 - bit for bit in bits]


def test_threshold_refuses_unsuitable_arguments():
    dots = np.zeros((3, 2), np.int32)
    for bad in (np.zeros(2), np.zeros(2, np.float32)):
        with pytest.raises(DtypeError, match=r"thresholds .*float.*integer_thresholds"):
            threshold(dots, bad)
    with pytest.raises(DtypeError, match=r"thresholds has .*beyond int32.*integer_thresholds"):
        threshold(dots, [0, 2**31])
    for bad in (
        dots.astype(np.float32),
        dots.astype(bool),
        dots + np.int64(2**31),
        dots.astype(np.uint64) - 1,
    ):
        with pytest.raises(DtypeError, match="dots has"):
            threshold(bad, [0, 0])
    for bad in ([0, 1], [0.0, 1.0]):
        with pytest.raises(DtypeError, match=r"flip .*give bool"):
            threshold(dots, [0, 0], bad)
    for bad in (np.zeros(2, np.int32), np.zeros((0, 2), np.int32), np.zeros((2, 0), np.int32)):
        with pytest.raises(ShapeError, match=r"dots has shape"):
            threshold(bad, [0, 0])
    with pytest.raises(ShapeError, match="same length"):
        threshold([[1], [1, 2]], [0])
    for bad in ([0], [0, 0, 0], [[0, 0]], 0):
        with pytest.raises(ShapeError, match=r"thresholds has shape .*\(2,\)"):
            threshold(dots, bad)
    with pytest.raises(ShapeError, match=r"flip has shape \(1,\)"):
        threshold(dots, [0, 0], [True])
    for options in ({"layout": "tile"}, {"word": 16}, {"first": "middle"}):
        with pytest.raises(SchemeError, match=next(iter(options))):
            threshold(dots, [0, 0], **options)
