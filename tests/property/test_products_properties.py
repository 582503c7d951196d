"""`simwarp.products` against exact rationals: every rule, on operands of every kind.

The models are written from the text of the rules, with `fractions.Fraction` and the twins of IEEE 754 in
`tests/oracles/scalar_floats.py`; a wrong model must differ somewhere, too.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import scalar_floats as ieee
from simwarp.products import bits, doubles, floats, integers, rule_of

WORD = {"f16": "u2", "bf16": "u2", "tf32": "u4", "f32": "u4", "e4m3": "u1", "e5m2": "u1"}
NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}
M, N = 3, 2
"""Rows of a and columns of b: NumPy sees other strides for each, the tiles need no more."""

FORMS = [  # cc, (d, a, b, c), (m, n, k)
    ((9, 0), ("f32", "f16", "f16", "f32"), (16, 8, 16)),
    ((9, 0), ("f32", "f16", "f16", "f32"), (16, 8, 8)),
    ((9, 0), ("f16", "f16", "f16", "f16"), (16, 8, 16)),
    ((9, 0), ("f32", "f16", "f16", "f16"), (16, 16, 16)),
    ((9, 0), ("f16", "f16", "f16", "f32"), (32, 8, 16)),
    ((9, 0), ("f32", "f16", "f16", "f32"), (8, 8, 4)),
    ((9, 0), ("f32", "f16", "f16", "f16"), (8, 8, 4)),
    ((9, 0), ("f16", "f16", "f16", "f16"), (8, 8, 4)),
    ((9, 0), ("f32", "bf16", "bf16", "f32"), (16, 8, 16)),
    ((9, 0), ("f32", "tf32", "tf32", "f32"), (16, 8, 8)),
    ((9, 0), ("f32", "tf32", "tf32", "f32"), (16, 16, 8)),
    ((9, 0), ("f32", "e4m3", "e5m2", "f32"), (16, 8, 32)),
    ((9, 0), ("f16", "e4m3", "e4m3", "f16"), (16, 8, 16)),
    ((9, 0), ("f32", "e5m2", "e4m3", "f32"), (64, 8, 32)),
    ((7, 5), ("f32", "f16", "f16", "f32"), (16, 8, 8)),
    ((8, 0), ("f32", "f16", "f16", "f32"), (16, 8, 16)),
    ((8, 0), ("f16", "f16", "f16", "f16"), (16, 8, 16)),
    ((8, 6), ("f32", "tf32", "tf32", "f32"), (16, 8, 8)),
    ((8, 9), ("f32", "e4m3", "e5m2", "f32"), (16, 8, 32)),
    ((8, 9), ("f16", "e5m2", "e5m2", "f16"), (16, 8, 32)),
    ((12, 0), ("f32", "bf16", "bf16", "f32"), (16, 8, 16)),
]
every_form = pytest.mark.parametrize(("cc", "types", "shape"), FORMS, ids=lambda x: ".".join(map(str, x)))

# ------------------------------------------------------------------------------------------ models


def is_finite(number):
    return not isinstance(number, str) or number == "-0"


def exponent_of(format, number):
    """Stored exponent of a number; subnormals have the smallest exponent of the format."""
    least = 2 - 2 ** (ieee.FORMATS[format][1] - 1)
    return max(ieee.binade(abs(number)), least)


def special_sum(products, c):
    """The IEEE result for infinities and NaN among the addends; None if there are none."""
    addends = [times(x, y) for x, y in products] + [c]
    if "nan" in addends or {"inf", "-inf"} <= set(addends):
        return "nan"
    return next((x for x in addends if x in ("inf", "-inf")), None)


def times(x, y):
    """The product as infinity or NaN, or 0 if it is finite."""
    if "nan" in (x, y):
        return "nan"
    infinite = ieee.is_infinite(x) or ieee.is_infinite(y)
    if not infinite:
        return Fraction(0)
    if ieee.is_zero(x) or ieee.is_zero(y):
        return "nan"
    return "inf" if ieee.sign_of(x) == ieee.sign_of(y) else "-inf"


def plain(number):
    return Fraction(0) if number == "-0" else number


def fused(formats, products, c, bits_kept, cut="rz"):
    """The exact sum of the truncated addends, or infinity or NaN."""
    special = special_sum(products, c)
    if special:
        return special
    a, b, accumulator = formats
    addends = [
        (plain(x) * plain(y), exponent_of(a, plain(x)) + exponent_of(b, plain(y)))
        for x, y in products
        if plain(x) * plain(y)
    ]
    if plain(c):
        addends.append((plain(c), exponent_of(accumulator, plain(c))))
    if not addends:
        return Fraction(0)
    floor = {"f32": -133, "f16": -21}[accumulator]
    unit = ieee.two_to(max(floor, *(exponent for _, exponent in addends)) - bits_kept)
    return sum(ieee.round_whole(value / unit, cut) * unit for value, _ in addends)


def to_word(format, number, rounding, output_bits):
    """Final rounding: toward zero, to infinity from 2^128 on, and never to -0."""
    if number == "nan":
        return NAN[format]
    if isinstance(number, str):
        return ieee.encode(format, number)
    if rounding == "rz" and abs(number) >= ieee.two_to(128):
        return ieee.encode(format, "inf" if number > 0 else "-inf")
    word = ieee.round_to(format, number, rounding)
    word &= ~((1 << (ieee.FORMATS[format][2] - output_bits)) - 1)
    return 0 if ieee.is_zero(ieee.decode(format, word)) else word


def add_words(format, x, y):
    word = ieee.add(format, x, y, "rn")
    return NAN[format] if word == "nan" else word


def convert_word(source, target, word):
    number = ieee.decode(source, word)
    if number == "nan":
        return NAN[target]
    if isinstance(number, str):
        return ieee.encode(target, number)
    return ieee.round_to(target, number, "rn")


def element(types, rule, row, column, c, cut="rz"):
    """One element of d, computed by a rule."""
    d, a, b, c_type = types
    products = [(ieee.decode(a, x), ieee.decode(b, y)) for x, y in zip(row, column, strict=True)]
    accumulator = rule.accumulator
    c = convert_word(c_type, accumulator, c) if c_type != accumulator else c
    formats = (rule.operands or a, rule.operands or b, accumulator)
    total = c if rule.addend == "first" else 0
    for group in rule.groups:
        before = ieee.decode(accumulator, total)
        number = fused(formats, [products[k] for k in group], before, rule.fraction_bits, cut)
        total = to_word(accumulator, number, rule.rounding, rule.output_bits)
    if rule.addend == "last":
        total = add_words(accumulator, c, total)
    return total if d == accumulator else convert_word(accumulator, d, total)


def chains(types, rule, row, column, c):
    """m8n8k4 without tensor cores: chains of fma, one from +0 or two that start with a product."""
    total = convert_word("f16", "f32", c) if types[3] == "f16" else c
    left, right = ([convert_word("f16", "f32", word) for word in words] for words in (row, column))
    for group in rule.groups:
        chain = None if len(rule.groups) > 1 else 0
        for k in group:
            chain = (
                ieee.mul("f32", left[k], right[k], "rn")
                if chain is None
                else ieee.fma("f32", left[k], right[k], chain, "rn")
            )
            chain = NAN["f32"] if chain == "nan" else chain
        total = add_words("f32", total, chain)
    return total if types[0] == "f32" else convert_word("f32", "f16", total)


def model(types, rule, a, b, c, cut="rz"):
    of_element = chains if rule.fraction_bits == 0 else lambda *x: element(*x, cut)
    rows, columns = a.tolist(), b.T.tolist()
    result = [
        [of_element(types, rule, row, column, int(c[i, j])) for j, column in enumerate(columns)]
        for i, row in enumerate(rows)
    ]
    return np.array(result, WORD[types[0]])


# ---------------------------------------------------------------------------------------- operands


def any_words(format, shape, rng):
    bits_of_word = ieee.FORMATS[format][0]
    return rng.integers(0, 2**bits_of_word, shape, dtype=np.uint64).astype(WORD[format])


def near_words(format, shape, rng, spread=4):
    """Words with similar exponents, so that the addends interact."""
    bits_of_word, exponent_bits, fraction_bits, padding = ieee.FORMATS[format]
    bias = 2 ** (exponent_bits - 1) - 1
    field = np.clip(bias + rng.integers(-spread, spread + 1, shape), 0, 2 * bias)
    fraction = rng.integers(0, 2 ** (fraction_bits + padding), shape)
    sign = rng.integers(0, 2, shape)
    return ((sign << (bits_of_word - 1)) | (field << (fraction_bits + padding)) | fraction).astype(
        WORD[format]
    )


def small_words(format, shape, rng):
    """Words of subnormals, the smallest normal numbers, and zeros."""
    bits_of_word, _, fraction_bits, padding = ieee.FORMATS[format]
    magnitude = rng.integers(0, 3 * 2 ** (fraction_bits + padding), shape) * rng.integers(0, 2, shape)
    return (magnitude | rng.integers(0, 2, shape) << (bits_of_word - 1)).astype(WORD[format])


def large_words(format, shape, rng):
    """Words of the largest exponents, infinity and NaN."""
    bits_of_word, exponent_bits, fraction_bits, padding = ieee.FORMATS[format]
    end = 1 << (exponent_bits + fraction_bits + padding)
    magnitude = end - 1 - rng.integers(0, 3 * 2 ** (fraction_bits + padding), shape)
    return (magnitude | rng.integers(0, 2, shape) << (bits_of_word - 1)).astype(WORD[format])


def mixed_words(format, shape, rng):
    near, small, large = (f(format, shape, rng) for f in (near_words, small_words, large_words))
    kind = rng.integers(0, 40, shape)
    return np.where(kind == 0, large, np.where(kind < 20, small, near))


KINDS = [any_words, near_words, small_words, large_words, mixed_words]


def draw(types, shape, kind, rng, warps):
    k = shape[2]
    return tuple(
        kind(format, (warps, *sizes), rng)
        for format, sizes in zip(types[1:], ((M, k), (k, N), (M, N)), strict=True)
    )


def cancel(a, b, c, types, rng):
    """Make each second product the negative of its predecessor, sometimes off by the last bit of b."""
    sign, last = 1 << (ieee.FORMATS[types[1]][0] - 1), 1 << ieee.FORMATS[types[2]][3]
    a[..., 1::2] = a[..., 0::2] ^ a.dtype.type(sign)
    change = rng.integers(0, 4, b[..., 0::2, :].shape) == 0
    b[..., 1::2, :] = b[..., 0::2, :] ^ np.where(change, last, 0).astype(b.dtype)
    return a, b, c


# ------------------------------------------------------------------------------------------- tests


@pytest.mark.at_most(13)
@every_form
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_float_products_equal_the_model(cc, types, shape, kind):
    rng = np.random.default_rng(len(str((cc, types, shape, kind.__name__))))
    rule = rule_of(cc, types, shape)
    a, b, c = draw(types, shape, kind, rng, 4)
    compare(types, rule, a, b, c)
    compare(types, rule, *cancel(a, b, c, types, rng))


def compare(types, rule, a, b, c):
    d = floats(a, b, c, types, rule)
    for warp in range(len(a)):
        expected = model(types, rule, a[warp], b[warp], c[warp])
        wrong = np.argwhere(d[warp] != expected)
        assert wrong.size == 0, (wrong[0], hex(d[warp][tuple(wrong[0])]), hex(expected[tuple(wrong[0])]))


@pytest.mark.slow
@given(st.sampled_from(FORMS), st.sampled_from(KINDS), st.integers(0, 2**32))
def test_float_tiles_of_any_class_equal_the_model(form, kind, seed):
    cc, types, shape = form
    rule = rule_of(cc, types, shape)
    compare(types, rule, *draw(types, shape, kind, np.random.default_rng(seed), 1))


CUT = [form for form in FORMS if rule_of(*form).fraction_bits]


@pytest.mark.parametrize(("cc", "types", "shape"), CUT, ids=lambda x: ".".join(map(str, x)))
@pytest.mark.parametrize("cut", ["rn", "rm"])
def test_a_model_with_other_truncation_differs(cc, types, shape, cut):
    rng, rule = np.random.default_rng(7), rule_of(cc, types, shape)
    zero = np.zeros((M, N), WORD[types[3]])

    def differs():
        sizes = (types[1], (M, shape[2])), (types[2], (shape[2], N))
        a, b, c = cancel(*(near_words(*size, rng, 12) for size in sizes), zero, types, rng)
        return bool((floats(a, b, c, types, rule) != model(types, rule, a, b, c, cut)).any())

    assert any(differs() for _ in range(60))


@given(st.integers(1, 40), st.integers(0, 2**32))
@pytest.mark.slow
def test_one_warp_gives_the_result_of_many(warps, seed):
    rng = np.random.default_rng(seed)
    cc, types, shape = FORMS[seed % len(FORMS)]
    rule = rule_of(cc, types, shape)
    a, b, c = draw(types, shape, mixed_words, rng, warps)
    together = floats(a, b, c, types, rule)
    alone = [floats(a[i], b[i], c[i], types, rule) for i in range(warps)]
    assert np.array_equal(together, alone)


@pytest.mark.slow
@given(st.integers(1, 9), st.sampled_from(["and", "xor"]), st.integers(0, 2**32))
def test_bit_products_count_matching_bits(words, operation, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 2**32, size, dtype=np.uint32) for size in ((2, M, words), (2, words, N)))
    c = rng.integers(-(2**31), 2**31, (2, M, N)).astype(np.int32)
    d = bits(a, b, c, operation)
    for w, i, j in np.ndindex(d.shape):
        pairs = zip(a[w, i].tolist(), b[w, :, j].tolist(), strict=True)
        total = int(c[w, i, j]) + sum((x & y if operation == "and" else x ^ y).bit_count() for x, y in pairs)
        assert int(d[w, i, j]) == (total + 2**31) % 2**32 - 2**31


BYTES = [np.int8, np.uint8]


@given(
    st.sampled_from(BYTES), st.sampled_from(BYTES), st.integers(1, 70), st.booleans(), st.integers(0, 2**32)
)
def test_integers_wrap_or_saturate(of_a, of_b, k, saturate, seed):
    rng = np.random.default_rng(seed)
    a, b = (
        rng.choice(ends(dtype), size).astype(dtype) for dtype, size in ((of_a, (2, M, k)), (of_b, (2, k, N)))
    )
    c = rng.choice([-(2**31), -(2**31) + 9999, 0, 2**31 - 9999, 2**31 - 1], (2, M, N)).astype(np.int32)
    d = integers(a, b, c, saturate)
    for w, i, j in np.ndindex(d.shape):
        total = int(c[w, i, j]) + sum(
            x * y for x, y in zip(a[w, i].tolist(), b[w, :, j].tolist(), strict=True)
        )
        if saturate:
            expected = min(max(total, -(2**31)), 2**31 - 1)
        else:
            expected = (total + 2**31) % 2**32 - 2**31
        assert int(d[w, i, j]) == expected


def ends(dtype):
    limits = np.iinfo(dtype)
    return [limits.min, limits.max, limits.max, 0, 1, 77]


@pytest.mark.slow
@given(
    st.sampled_from(["rn", "rz", "rm", "rp"]), st.sampled_from([4, 8]), st.booleans(), st.integers(0, 2**32)
)
def test_double_products_are_chains_of_fma(rounding, k, special, seed):
    rng = np.random.default_rng(seed)
    a, b, c = (
        rng.standard_normal(size) * 2.0 ** rng.integers(-30, 30, size) for size in ((M, k), (k, N), (M, N))
    )
    b[k // 2 :] = -b[: k // 2]
    if special:
        for x in (a, b, c):
            words = rng.choice(
                [0x7FF0000000000000, 0xFFF0000000000000, 0x7FF0000000000123, 0xFFFABCDEF1234567], x.shape
            )
            np.copyto(x, words.astype(np.uint64).view(np.float64), where=rng.integers(0, 8, x.shape) == 0)
    d = doubles(a, b, c, rounding)
    for i, j in np.ndindex(d.shape):
        total = word_of(c[i, j])
        for x, y in zip(a[i], b[:, j], strict=True):
            total = link(word_of(x), word_of(y), total, rounding)
        assert word_of(d[i, j]) == total


def word_of(x):
    return int(x.view(np.uint64))


def link(a, b, c, rounding):
    """One fma of the f64 tensor core; a NaN result is the first NaN of b, c and a, made quiet."""
    for word in (b, c, a):
        if ieee.decode("f64", word) == "nan":
            return word | 1 << 51
    result = ieee.fma("f64", a, b, c, rounding)
    return 0xFFF8000000000000 if result == "nan" else result
