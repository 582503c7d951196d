"""`simwarp.floats` against exact rationals: edge operands crossed, constructed ties, and Hypothesis.

The twins are in `tests/oracles/scalar_floats.py`. Everything is compared as words; all NaN are one.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import scalar_floats as twins
from simwarp import floats
from support.offenders import every_case

ROUNDINGS = ("rn", "rz", "rm", "rp")
FLOATS = {"f32": np.float32, "f64": np.float64}
WORDS = {"f64": "u8", "f32": "u4", "tf32": "u4", "f16": "u2", "bf16": "u2", "e4m3": "u1", "e5m2": "u1"}
SMALL = ("f16", "bf16", "tf32", "e4m3", "e5m2")
INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
HALF_OPERATIONS = ("add", "sub", "mul", "fma")
OPERANDS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "sqrt": 1, "rcp": 1}

both_floats = pytest.mark.parametrize("format", FLOATS)
every_rounding = pytest.mark.parametrize("rounding", ROUNDINGS)
every_operation = pytest.mark.parametrize("operation", OPERANDS)
every_small = pytest.mark.parametrize("small", SMALL)

# ----------------------------------------------------------------------------------------- words


def both_signs(format, magnitudes):
    sign = 1 << (twins.FORMATS[format][0] - 1)
    return [word for magnitude in magnitudes for word in (magnitude, magnitude | sign)]


def edges(format):
    """Ends of the ranges, 1 and its neighbours, halves, and powers of two whose results tie or underflow."""
    _, exponent_bits, fraction_bits, padding = twins.FORMATS[format]
    binade = 1 << fraction_bits
    one, infinity = ((1 << (exponent_bits - 1)) - 1) * binade, ((1 << exponent_bits) - 1) * binade
    ends = [0, 1, 2, 3, binade - 1, binade, binade + 1, infinity - 1, infinity, infinity + binade // 2]
    ones = [one - 1, one, one + 1, one + binade // 2, one + binade, one + 3 * binade // 2]
    far = [one - binade * (fraction_bits + 1), one + binade * (fraction_bits + 1)]
    roots = [one // 2, one // 2 + 1, one + infinity // 4]
    words = [word << padding for word in (*ends, *ones, *far, *roots) if 0 <= word <= infinity + binade // 2]
    return both_signs(format, dict.fromkeys(words))


def words(format):
    """Random words: any word, one near 1 so that sums interact, or one of few bits so that ties occur."""
    bits, exponent_bits, fraction_bits, padding = twins.FORMATS[format]
    bias = (1 << (exponent_bits - 1)) - 1
    reach = min(bias - 1, fraction_bits + 3)
    few = st.lists(st.integers(0, fraction_bits - 1), max_size=3).map(lambda n: sum(1 << i for i in set(n)))
    many = st.integers(0, (1 << fraction_bits) - 1)
    near = st.builds(
        lambda sign, exponent, fraction: (
            (sign << (bits - 1)) | (((bias + exponent) << fraction_bits) | fraction) << padding
        ),
        st.integers(0, 1),
        st.integers(-reach, reach),
        few | few.map(lambda n: (1 << fraction_bits) - 1 - n) | many,
    )
    anything = st.integers(0, (1 << (bits - padding)) - 1).map(lambda word: word << padding)
    return st.sampled_from(edges(format)) | near | anything


def array(format, column):
    return np.array(column, WORDS[format]).view(FLOATS[format])


def assert_same(format, got, expected, operands, operation=""):
    """Compare ``got``, an array of words, with ``expected``, integers or the string of a NaN."""
    assert got.dtype == WORDS[format]
    for word, right, row in zip(got.tolist(), expected, operands, strict=True):
        where = f"{operation} {format} of {list(map(hex, row))}: {word:#x}"
        if right == twins.NAN:
            assert twins.decode(format, word) == twins.NAN, f"{where} is no NaN"
        else:
            assert word == right, f"{where} instead of {right:#x}"


def agree(operation, format, rows, rounding):
    """Compare the library with its twin for one operation on rows of operand words."""
    columns = [array(format, column) for column in zip(*rows, strict=True)]
    got = getattr(floats, operation)(*columns, rounding).view(WORDS[format])
    twin = getattr(twins, operation)
    assert_same(format, got, [twin(format, *row, rounding) for row in rows], rows, operation)


# ------------------------------------------------------------------------------------- arithmetic


@pytest.mark.at_most(7)
@both_floats
@every_rounding
@every_operation
def test_edge_operands_equal_the_twin(operation, rounding, format):
    count = OPERANDS[operation]
    rows = list(itertools.product(edges(format), repeat=count))
    if count == 3:
        chosen = np.random.default_rng(3).choice(len(rows), 1000, replace=False)
        rows = [rows[i] for i in chosen]
    agree(operation, format, rows, rounding)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("f32", "f64")
@both_floats
@given(data=st.data(), rounding=st.sampled_from(ROUNDINGS))
def test_any_operands_equal_the_twin(format, data, rounding):
    rows = data.draw(st.lists(st.tuples(*[words(format)] * 3), min_size=1, max_size=8))
    for operation, count in OPERANDS.items():
        agree(operation, format, [row[:count] for row in rows], rounding)


@pytest.mark.at_most(1)
@pytest.mark.slow
@both_floats
@given(data=st.data(), rounding=st.sampled_from(ROUNDINGS))
def test_fma_equals_the_twin_under_cancellation(format, data, rounding):
    """The addend is -a·b, a few units from it, or overlaps only its last bits."""
    fraction_bits = twins.FORMATS[format][2]
    operands = data.draw(st.lists(st.tuples(words(format), words(format)), min_size=1, max_size=8))
    rows = []
    for a, b in operands:
        product = twins.mul(format, a, b)
        if product == twins.NAN:
            continue
        shift = data.draw(st.integers(-2 * fraction_bits - 4, fraction_bits + 4) | st.just(0))
        exact = twins.decode(format, product)
        if isinstance(exact, Fraction):
            product = twins.round_to(format, -exact * twins.two_to(shift), "rz")
        units = data.draw(st.integers(-2, 2))
        power = data.draw(st.booleans())  # a power of two: half an ulp of the other addend
        c = (product >> fraction_bits << fraction_bits) if power else max(product + units, 0)
        rows.append((a, b, c))
    if rows:
        agree("fma", format, rows, rounding)


def test_float32_sums_halfway_in_float64_are_rounded_once():
    """a·b lies halfway between two float32; c, too small to change it in float64, decides."""
    halfway = [(1 << 12) + 1, ((1 << 12) + 1) * 3, (1 << 12) - 1]  # squares with bit 0 set, 25 bits long
    rows = []
    for a, exponent, sign in itertools.product(halfway, (-60, -100, -140), (-1, 1)):
        x = twins.encode("f32", Fraction(a))
        tiny = twins.encode("f32", sign * twins.two_to(exponent))
        rows += [(x, x, tiny), (x, x | 1 << 31, tiny)]
    for rounding in ROUNDINGS:
        agree("fma", "f32", rows, rounding)


@pytest.mark.at_most(2)
@every_rounding
def test_results_at_the_ends_of_the_float64_range_equal_the_twin(rounding):
    """Products near underflow and overflow, with addends that decide the last bit."""
    rng = np.random.default_rng(8)
    rows = []
    for total in (-1140, -1076, -1074, -1073, -1060, -1022, -970, 1020, 1023, 1024):
        for _ in range(25):
            split = int(rng.integers(max(total - 1000, -1000), min(total + 1000, 1000)))
            a, b = (
                (1 + int(rng.integers(0, 2**52)) * twins.two_to(-52)) * twins.two_to(e)
                for e in (split, total - split)
            )
            c = int(rng.integers(-3, 4)) * twins.two_to(
                int(rng.choice([-1074, -1073, -1022, 970, 971, 1021]))
            )
            rows.append(tuple(twins.round_to("f64", x, "rz") for x in (a, b, c)))
    agree("fma", "f64", rows, rounding)
    agree("mul", "f64", [row[:2] for row in rows], rounding)
    agree("div", "f64", [row[:2] for row in rows], rounding)
    agree("sqrt", "f64", [row[:1] for row in rows], rounding)


# ---------------------------------------------------------------------------- modifiers, integral


@pytest.mark.at_most(1)
@both_floats
@given(data=st.data())
def test_flush_and_saturate_equal_the_twin(format, data):
    column = data.draw(st.lists(words(format), min_size=1, max_size=20))
    for name in ("flush", "saturate"):
        got = getattr(floats, name)(array(format, column)).view(WORDS[format])
        rows = [(word,) for word in column]
        assert_same(format, got, [getattr(twins, name)(format, word) for word in column], rows)


def around_integers(format):
    """Halves, integers and their neighbours, and the ends of every integer type."""
    values = [Fraction(n, 2) for n in range(-9, 10)] + [Fraction(n, 4) for n in (-3, -1, 1, 3)]
    for bits in (7, 8, 15, 16, 31, 32, 63, 64):
        values += [sign * (2**bits + Fraction(n, 2)) for n in range(-3, 4) for sign in (-1, 1)]
    at = dict.fromkeys(
        twins.round_to(format, value, rounding) for value in values for rounding in ("rm", "rp")
    )
    neighbours = [word + n for word in at for n in (-1, 0, 1) if word + n >= 0]
    return list(dict.fromkeys([*neighbours, *edges(format)]))


@both_floats
@every_rounding
def test_round_integral_equals_the_twin(format, rounding):
    column = around_integers(format)
    got = floats.round_integral(array(format, column), rounding).view(WORDS[format])
    expected = [twins.round_integral(format, word, rounding) for word in column]
    assert_same(format, got, expected, [(word,) for word in column])


@pytest.mark.at_most(4)
@both_floats
@every_rounding
@every_case("integer", INTEGERS)
def test_to_integer_equals_the_twin(format, rounding, integer):
    column = around_integers(format)
    ends = np.iinfo(integer)
    got = floats.to_integer(array(format, column), integer, rounding)
    assert got.dtype == integer
    expected = [twins.to_integer(format, word, ends.min, ends.max, rounding) for word in column]
    assert list(map(int, got)) == expected


@both_floats
@every_rounding
@every_case("integer", INTEGERS)
def test_from_integer_equals_the_twin(format, rounding, integer):
    ends = np.iinfo(integer)
    near = {sign * ((1 << n) + k) for n in range(64) for k in (-3, -1, 0, 1, 3) for sign in (-1, 1)}
    near |= {
        (1 << n) + (1 << m) + k for n in range(24, 64) for m in (n - 24, n - 53) if m >= 0 for k in (-1, 0, 1)
    }
    column = [i for i in (*sorted(near), ends.min, ends.max, ends.max - 1) if ends.min <= i <= ends.max]
    got = floats.from_integer(np.array(column, integer), FLOATS[format], rounding).view(WORDS[format])
    expected = [twins.from_integer(i, format, rounding) for i in column]
    assert_same(format, got, expected, [(i,) for i in column])


@both_floats
@given(
    i=st.integers(-(2**63), 2**63 - 1),
    unsigned=st.integers(0, 2**64 - 1),
    rounding=st.sampled_from(ROUNDINGS),
)
def test_conversions_of_any_integer_equal_the_twin(format, i, unsigned, rounding):
    for value in (np.int64(i), np.uint64(unsigned)):
        got = floats.from_integer(value, FLOATS[format], rounding).view(WORDS[format])
        assert int(got) == twins.from_integer(value, format, rounding)


# -------------------------------------------------------------------------------- between formats


def test_convert_is_exact_to_float64_and_rounds_to_float32():
    ties = [
        twins.encode("f64", 1 + k * twins.two_to(-24) + s * twins.two_to(-50))
        for k in range(4)
        for s in (-1, 0, 1)
    ]
    low = [twins.encode("f64", k * twins.two_to(-151)) for k in range(1, 12)]
    high = [twins.encode("f64", twins.largest("f32") + k * twins.two_to(102)) for k in range(-3, 5)]
    column = edges("f64") + both_signs("f64", [*ties, *low, *high])
    for rounding in ROUNDINGS:
        got = floats.convert(array("f64", column), np.float32, rounding)
        expected = [twins.convert("f64", word, "f32", rounding) for word in column]
        assert_same("f32", got.view("u4"), expected, [(word,) for word in column])
        wide = floats.convert(array("f32", edges("f32")), np.float64, rounding)
        expected = [twins.convert("f32", word, "f64") for word in edges("f32")]
        assert_same("f64", wide.view("u8"), expected, [(word,) for word in edges("f32")])


@pytest.mark.at_most(2)
@every_small
def test_widen_equals_the_twin(small):
    bits, _, _, padding = twins.FORMATS[small]
    step = {8: 1, 16: 13, 19: 101}[bits - padding]
    column = [word << padding for word in range(0, 1 << (bits - padding), step)] + edges(small)
    got = floats.widen(np.array(column, WORDS[small]), small)
    assert got.dtype == np.float32
    expected = [twins.convert(small, word, "f32") for word in column]
    assert_same("f32", got.view("u4"), expected, [(word,) for word in column])


def around_small(format, small):
    """The values of ``small``, the midpoints between them and their neighbours, as words of ``format``."""
    bits, exponent_bits, fraction_bits, padding = twins.FORMATS[small]
    if bits == 8:
        magnitudes = range(0x7C if small == "e5m2" else 0x7F)
    else:
        ends = {word & ~(1 << (bits - 1)) for word in edges(small)}
        magnitudes = [w >> padding for w in ends if twins.decode(small, w) not in (twins.INF, twins.NAN)]
    middles = []
    for magnitude in magnitudes:
        value = twins.decode(small, magnitude << padding)
        at = twins.binade(value) if value else -10000
        quantum = twins.two_to(max(at, 2 - 2 ** (exponent_bits - 1)) - fraction_bits)
        middles += [value, value + quantum / 2]
    exact = dict.fromkeys(
        twins.round_to(format, value, rounding) for value in middles for rounding in ("rm", "rp")
    )
    return both_signs(format, dict.fromkeys(w + n for w in exact for n in (-1, 0, 1) if w + n >= 0)) + edges(
        format
    )


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("e5m2-f32")
@both_floats
@every_small
def test_narrow_equals_the_twin(format, small):
    column = around_small(format, small)
    for rounding, saturate in [*((mode, False) for mode in (*ROUNDINGS, "rna")), ("rn", True), ("rm", True)]:
        got = floats.narrow(array(format, column), small, rounding, saturate)
        expected = [twins.convert(format, word, small, rounding, saturate) for word in column]
        assert_same(small, got, expected, [(word,) for word in column])


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("f32", "f64")
@both_floats
@given(data=st.data(), rounding=st.sampled_from((*ROUNDINGS, "rna")), saturate=st.booleans())
def test_narrow_of_any_word_equals_the_twin(format, data, rounding, saturate):
    column = data.draw(st.lists(words(format), min_size=1, max_size=12))
    for small in SMALL:
        got = floats.narrow(array(format, column), small, rounding, saturate)
        expected = [twins.convert(format, word, small, rounding, saturate) for word in column]
        assert_same(small, got, expected, [(word,) for word in column])


@every_small
def test_narrow_undoes_widen_in_every_rounding(small):
    bits, _, _, padding = twins.FORMATS[small]
    column = np.arange(0, 1 << (bits - padding), 7 if bits > 8 else 1).astype(WORDS[small]) << padding
    values = floats.widen(column, small)
    for rounding in (*ROUNDINGS, "rna"):
        again = floats.narrow(values, small, rounding)
        assert np.array_equal(again[~np.isnan(values)], column[~np.isnan(values)])
        assert np.isnan(floats.widen(again, small)[np.isnan(values)]).all()


# ------------------------------------------------------------------------------------------- half


both_halves = pytest.mark.parametrize("format", ["f16", "bf16"])


def agree_in_half(operation, format, rows, rounding):
    columns = [np.array(column, np.uint16) for column in zip(*rows, strict=True)]
    got = floats.half(operation, *columns, format=format, rounding=rounding)
    twin = getattr(twins, operation)
    assert_same(format, got, [twin(format, *row, rounding) for row in rows], rows, operation)


@pytest.mark.at_most(17)
@every_rounding
@both_halves
@pytest.mark.parametrize("operation", HALF_OPERATIONS)
def test_half_arithmetic_on_edges_equals_the_twin(operation, format, rounding):
    rows = list(itertools.product(edges(format), repeat=OPERANDS[operation]))
    if len(rows) > 1000:
        rows = [rows[i] for i in np.random.default_rng(16).choice(len(rows), 1000, replace=False)]
    agree_in_half(operation, format, rows, rounding)


@pytest.mark.at_most(1)
@pytest.mark.slow
@both_halves
@given(data=st.data(), rounding=st.sampled_from(ROUNDINGS))
def test_half_arithmetic_on_any_words_equals_the_twin(format, data, rounding):
    rows = data.draw(st.lists(st.tuples(*[words(format)] * 3), min_size=1, max_size=12))
    for operation in HALF_OPERATIONS:
        agree_in_half(operation, format, [row[: OPERANDS[operation]] for row in rows], rounding)
