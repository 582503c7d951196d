"""`simwarp.products`: tiles with hand-computed results, and planted wrong rules."""

from dataclasses import replace

import numpy as np
import pytest

from reference.errors import DtypeError, SchemeError, ShapeError
from simwarp.products import bits, doubles, floats, integers, rule_of
from support.offenders import every_case

HOPPER, AMPERE, ADA, TURING = (9, 0), (8, 0), (8, 9), (7, 5)
F16 = ("f32", "f16", "f16", "f32")
BF16 = ("f32", "bf16", "bf16", "f32")
TF32 = ("f32", "tf32", "tf32", "f32")
FP8 = ("f32", "e4m3", "e5m2", "f32")
K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32}
WORD = {
    "f16": np.uint16,
    "bf16": np.uint16,
    "tf32": np.uint32,
    "f32": np.uint32,
    "e4m3": np.uint8,
    "e5m2": np.uint8,
}


def words(type, values):
    """Words of representable numbers; an integer stands for the word itself."""
    if type in ("bf16", "tf32", "f32"):
        whole = np.asarray(values, np.float32).view(np.uint32)
        return (whole >> 16).astype(np.uint16) if type == "bf16" else whole
    half = np.asarray(values, np.float16).view(np.uint16)
    return half if type == "f16" else (half >> 8).astype(np.uint8)  # e5m2


def dot(types, pairs, c, rule=None, cc=HOPPER, shape=None):
    """The word of one element of D: pairs of factors in the first k, then zeros."""
    _, a, b, c_type = types
    k = K[a]
    row, column = np.zeros((1, k), WORD[a]), np.zeros((k, 1), WORD[b])
    for i, (x, y) in enumerate(pairs):
        row[0, i], column[i, 0] = words(a, x), words(b, y)
    if rule is None:
        rule = rule_of(cc, types, shape or (16, 8, k))
    return int(floats(row, column, words(c_type, [[c]]), types, rule).item())


def value(word):
    return float(np.uint32(word).view(np.float32))


# -------------------------------------------------------------------------------------------- bits


@pytest.mark.parametrize(("operation", "expected"), [("and", 256), ("xor", 0)])
def test_the_largest_bit_product_counts_all_bits(operation, expected):
    ones = np.full((2, 16, 8), 0xFFFFFFFF, np.uint32)
    d = bits(ones, ones[:, :8], np.zeros((2, 16, 8), np.int32), operation)
    assert d.dtype == np.int32
    assert (d == expected).all()


def test_bit_counts_wrap_around_in_the_accumulator():
    ones = np.full((1, 1), 0xFFFFFFFF, np.uint32)
    assert bits(ones, ones, np.array([[2**31 - 1]], np.int32), "and").item() == -(2**31) + 31


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 8])
def test_every_word_of_k_counts(count):
    a, b = np.zeros((1, count), np.uint32), np.zeros((count, 1), np.uint32)
    zero = np.zeros((1, 1), np.int32)
    for word in range(count):
        a[0, word], b[word, 0] = 1 << word, 3 << word
        assert bits(a, b, zero, "and").item() == word + 1
        assert bits(a, b, zero, "xor").item() == word + 1


def test_xor_and_and_products_differ():
    a, b = np.array([[0b1100]], np.uint32), np.array([[0b0100]], np.uint32)
    zero = np.zeros((1, 1), np.int32)
    a[0, 0] = 0b1110
    assert (bits(a, b, zero, "and").item(), bits(a, b, zero, "xor").item()) == (1, 2)


def test_an_unknown_operation_on_bits_is_refused():
    word = np.zeros((1, 1), np.uint32)
    with pytest.raises(SchemeError, match="operation is 'or'\nchoose one of and, xor"):
        bits(word, word, word.view(np.int32), "or")


# ---------------------------------------------------------------------------------------- integers


@pytest.mark.parametrize(
    ("a", "b", "c", "wrapped", "saturated"),
    [
        (127, 127, 2**31 - 1, -(2**31) + 16128, 2**31 - 1),
        (-128, 127, -(2**31), 2**31 - 16256, -(2**31)),
        (-128, -128, 5, 16389, 16389),
    ],
)
def test_integers_wrap_or_saturate(a, b, c, wrapped, saturated):
    operands = np.int8([[a]]), np.int8([[b]]), np.int32([[c]])
    assert integers(*operands).item() == wrapped
    assert integers(*operands, saturate=True).item() == saturated


def test_unsigned_and_signed_bytes_are_multiplied():
    a, b, zero = (
        np.full((16, 64), 255, np.uint8),
        np.full((64, 8), -128, np.int8),
        np.zeros((16, 8), np.int32),
    )
    assert (integers(a, b, zero) == 64 * 255 * -128).all()
    assert (integers(a, b.view(np.uint8), zero) == 64 * 255 * 128).all()


def test_a_long_sum_of_bytes_is_exact():
    a, b = np.full((1, 1001), 255, np.uint8), np.full((1001, 1), 255, np.uint8)
    assert integers(a, b, np.ones((1, 1), np.int32)).item() == 1001 * 255 * 255 + 1


def test_saturation_applies_to_the_final_sum():
    """A partial sum may leave the range and come back."""
    a, b = np.int8([[127, -127]]), np.int8([[127], [127]])
    assert integers(a, b, np.int32([[2**31 - 1]]), saturate=True).item() == 2**31 - 1
    assert integers(a, b, np.int32([[7]]), saturate=True).item() == 7


# ---------------------------------------------------------------------------------- float: the sum


def test_hopper_keeps_25_bits_below_the_largest_exponent():
    kept = [(1, 2.0**-12), (2.0**-12, 2.0**-13)]
    assert value(dot(F16, [(1, 1), (2.0**-12, 2.0**-13)], -1)) == 2.0**-25
    assert value(dot(F16, [(1, 1), (2.0**-13, 2.0**-13)], -1)) == 0
    assert value(dot(F16, kept, 0)) == 2.0**-12 + 2.0**-25


def test_addends_are_truncated_one_by_one():
    """Sixteen addends of 1.75 units each are truncated to 1 unit, in both signs."""
    unit = 2.0**-25
    for sign in (1, -1):
        pairs = [(1, 1)] + [(1.75 * 2.0**-12, sign * 2.0**-13)] * 14 + [(-1, 1)]
        assert value(dot(F16, pairs, 0)) == sign * 14 * unit


def test_the_accumulator_is_truncated_like_the_products():
    c = np.float32(1 + 2.0**-23)
    assert value(dot(F16, [(4, 1), (-4, 1)], c)) == float(c)  # 2^-23 is 25 bits below 4
    assert value(dot(F16, [(8, 1), (-8, 1)], c)) == 1


def test_the_largest_exponent_is_computed_from_the_factors():
    """The product 1.5 * 1.5 = 2.25 has exponent 0, which keeps one bit more of the others."""
    pairs = [(1.5, 1.5), (-1.5, 1.5), (2.0**-12, 2.0**-13)]
    assert value(dot(F16, pairs, 0)) == 2.0**-25


def test_a_sum_is_rounded_toward_zero_to_f32():
    for sign in (1, -1):
        pairs = [(sign, 1), (sign * 2.0**-12, 1.5 * 2.0**-11)]
        assert value(dot(F16, pairs, 0)) == sign * (1 + 2.0**-23)


def test_a_sum_is_rounded_to_nearest_even_to_f16():
    types = ("f16", "f16", "f16", "f16")
    one = 0x3C00
    assert dot(types, [(1, 1), (2.0**-5, 2.0**-6)], 0) == one
    assert dot(types, [(1, 1), (2.0**-5, 2.0**-6), (2.0**-10, 2.0**-10)], 0) == one + 1
    assert dot(types, [(1, 1), (2.0**-5, 3 * 2.0**-6)], 0) == one + 2
    assert dot(types, [(255, 255), (510, 1)], 15.5) == 0x7C00  # 65535 + 15.5 is beyond the last tie


def test_subnormal_operands_and_results_are_kept():
    assert value(dot(F16, [(2.0**-24, 2.0**-24)], 0)) == 2.0**-48
    assert value(dot(BF16, [(2.0**-74, 2.0**-75)], 0)) == 2.0**-149
    assert value(dot(BF16, [(2.0**-133, 1)], 2.0**-149)) == 2.0**-133 + 2.0**-149
    assert dot(BF16, [(2.0**-75, 1.5 * 2.0**-75)], 0) == 0


@pytest.mark.parametrize(
    ("low", "result"),
    [([2.0**-46], 2.0**-24), ([2.0**-47], 0.0), ([2.0**-47] * 5, 0.0)],
)
def test_the_largest_exponent_of_an_f16_sum_is_at_least_minus_21(low, result):
    """Otherwise the tie 2^-25 between 0 and the smallest subnormal would round up."""
    pairs = [(2.0**-12, 2.0**-13)] + [(x * 2.0**23, 2.0**-23) for x in low]
    word = dot(("f16", "f16", "f16", "f16"), pairs, 0)
    assert float(np.uint16(word).view(np.float16)) == result


def test_the_largest_exponent_of_an_f32_sum_is_at_least_minus_133():
    last = (1 + 2.0**-10) * 2.0**-74
    pairs = [(2.0**-70, 2.0**-71), (-(2.0**-70), 2.0**-71), (2.0**-73, 2.0**-74), (-last, 2.0**-75)]
    # The 2^-159 of the last product is lost; else the result would be one unit, 2^-149, less.
    assert value(dot(TF32, pairs, 0)) == 2.0**-147 - 2.0**-149


def test_low_bits_of_tf32_operands_are_ignored():
    row = np.array([[0x3F801FFF] + [0] * 7], np.uint32)
    rule = rule_of(HOPPER, TF32, (16, 8, 8))
    d = floats(row, np.ascontiguousarray(row.T), np.zeros((1, 1), np.uint32), TF32, rule)
    assert d.item() == 0x3F800000


@pytest.mark.parametrize("types", [F16, BF16, TF32], ids=lambda types: types[1])
def test_an_exact_zero_sum_is_plus_zero(types):
    assert dot(types, [(0, 1)], 0) == 0
    assert dot(types, [(1, 1), (-1, 1)], 0) == 0


# ------------------------------------------------------------------------- float: infinity and NaN

INF = float("inf")
NAN = 0x7FFFFFFF


@every_case(
    ("pairs", "c", "expected"),
    [
        ([(INF, 1)], 0, 0x7F800000),
        ([(INF, -2)], 5, 0xFF800000),
        ([(1, 1)], -INF, 0xFF800000),
        ([(INF, 1), (INF, 1)], INF, 0x7F800000),
        ([(INF, 1), (INF, -1)], 0, NAN),
        ([(INF, 1)], -INF, NAN),
        ([(INF, 0)], 1, NAN),
        ([(float("nan"), 0)], 1, NAN),
        ([(1, 1)], float("nan"), NAN),
        ([(1, 1)], -float("nan"), NAN),
    ],
)
@every_case("types", [F16, BF16, TF32])
def test_infinities_and_nan_follow_ieee(types, pairs, c, expected):
    assert dot(types, pairs, c) == expected


def test_a_special_element_affects_only_its_own_sums():
    a, b = words("f16", np.ones((40, 16, 16))), words("f16", np.ones((40, 16, 8)))
    a[3, 5, 2], b[7, 1, 6] = 0x7C00, 0xFE00
    rule = rule_of(HOPPER, F16, (16, 8, 16))
    d = floats(a, b, np.zeros((40, 16, 8), np.uint32), F16, rule).view(np.float32)
    assert np.isposinf(d[3, 5]).all()
    assert np.isnan(d[7, :, 6]).all()
    assert (np.delete(d[3], 5, axis=0) == 16).all()
    assert (np.delete(d[7], 6, axis=1) == 16).all()
    assert (np.delete(d, [3, 7], axis=0) == 16).all()


def test_a_sum_beyond_the_f32_range_is_infinite():
    assert dot(BF16, [(2.0**64, 2.0**64)], 0) == 0x7F800000
    assert dot(BF16, [(2.0**64, -(2.0**64))], 0) == 0xFF800000
    largest = (2 - 2.0**-7) * 2.0**127
    assert dot(BF16, [(largest, 1), (largest, 1), (-largest, 1)], 0) == int(words("f32", largest))


# ----------------------------------------------------------------------------------- float: fp8, f64


def test_hopper_adds_the_accumulator_to_fp8_products_last():
    """Two HMMA over k % 4 in {0, 1} and {2, 3}; c does not truncate the products."""
    rule = rule_of(HOPPER, FP8, (16, 8, 32))
    assert rule.addend == "last"
    assert [group[:4] for group in rule.groups] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    a, b = np.zeros((1, 32), np.uint8), np.zeros((32, 1), np.uint8)
    a[0, :2], b[:2, 0] = 0x38, words("e5m2", [1, 2.0**-14])
    c = words("f32", [[-1.0]])
    assert floats(a, b, c, FP8, rule).view(np.float32).item() == 2.0**-14


def test_e4m3_has_one_nan_and_no_infinity():
    rule = rule_of(HOPPER, FP8, (16, 8, 32))
    a, b = np.zeros((1, 32), np.uint8), np.zeros((32, 1), np.uint8)
    a[0, 0], b[0, 0], zero = 0xFE, words("e5m2", 1.0), np.zeros((1, 1), np.uint32)
    assert floats(a, b, zero, FP8, rule).view(np.float32).item() == -448
    a[0, 0] = 0xFF
    assert floats(a, b, zero, FP8, rule).item() == NAN


def test_ada_keeps_13_bits_of_fp8_products():
    rule = rule_of(ADA, FP8, (16, 8, 32))
    assert (rule.fraction_bits, rule.output_bits, len(rule.groups)) == (13, 13, 2)


@pytest.mark.parametrize(("rounding", "expected"), [("rn", 0.0), ("rp", 2.0**-52), ("rm", 0.0), ("rz", 0.0)])
def test_double_products_round_after_every_addition(rounding, expected):
    a, b = np.array([[2.0**-60, -1.0]]), np.ones((2, 1))
    assert doubles(a, b, np.array([[1.0]]), rounding).item() == expected


def test_double_products_are_exact_before_the_addition():
    x = 1 + 2.0**-52
    assert doubles(np.array([[x]]), np.array([[x]]), np.array([[-x * x]])).item() == 2.0**-104


# ------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("cc", "types", "shape", "bits_kept", "groups"),
    [
        ((7, 0), F16, (8, 8, 4), 23, 1),
        (TURING, F16, (16, 8, 8), 24, 1),
        (TURING, F16, (16, 16, 16), 24, 2),
        (AMPERE, F16, (16, 8, 8), 24, 1),
        (AMPERE, BF16, (16, 8, 16), 24, 2),
        (ADA, TF32, (16, 8, 8), 24, 2),
        (HOPPER, F16, (16, 8, 16), 25, 1),
        (HOPPER, TF32, (16, 8, 8), 25, 1),
        (HOPPER, TF32, (16, 16, 8), 25, 2),
        ((10, 0), F16, (16, 8, 16), 25, 1),
        ((12, 0), FP8, (16, 8, 32), 25, 1),
        (HOPPER, FP8, (64, 128, 32), 13, 1),
    ],
)
def test_rules_have_the_bits_and_groups_of_the_architecture(cc, types, shape, bits_kept, groups):
    rule = rule_of(cc, types, shape)
    assert (rule.fraction_bits, len(rule.groups)) == (bits_kept, groups)
    assert sorted(k for group in rule.groups for k in group) == list(range(shape[2]))
    assert rule.source


def test_only_hopper_rules_are_confirmed():
    chips = ((7, 0), TURING, AMPERE, ADA, (10, 0), (12, 0))
    for shape in ((16, 8, 16), (8, 8, 4)):
        assert rule_of(HOPPER, F16, shape).confirmed
        assert not any(rule_of(cc, F16, shape).confirmed for cc in chips)


def test_a_chip_without_tensor_cores_is_refused():
    with pytest.raises(SchemeError, match=r"capability 6\.1 does not have tensor cores"):
        rule_of((6, 1), F16, (16, 8, 16))


@pytest.mark.parametrize(
    "types", [("f16", "bf16", "bf16", "f32"), ("f32", "f16", "bf16", "f32"), ("f32", "e4m3", "f16", "f32")]
)
def test_unsupported_type_combinations_are_refused(types):
    with pytest.raises(SchemeError, match="there is no product with d"):
        rule_of(HOPPER, types, (16, 8, 16))


RULE = rule_of(HOPPER, F16, (16, 8, 16))
TINY = [(1, 1), (2.0**-12, 2.0**-13), (-1, 1)]
"""Its 2^-25 is lost where 24 bits are kept, and where each half of k has a sum of its own it is not."""


@pytest.mark.parametrize(
    ("planted", "pairs", "c"),
    [
        pytest.param({"fraction_bits": 24}, TINY, 0, id="24 bits"),
        pytest.param({"fraction_bits": 26}, [(1, 1), (2.0**-13, 2.0**-13), (-1, 1)], 0, id="26 bits"),
        pytest.param({"rounding": "rn"}, [(1, 1), (2.0**-12, 1.5 * 2.0**-11)], 0, id="to nearest"),
        pytest.param({"output_bits": 13}, [(1, 1), (2.0**-7, 2.0**-7)], 0, id="13 bits of the result"),
        pytest.param({"addend": "last"}, [(2.0**-12, 1.5 * 2.0**-12)], 1.0, id="c last"),
        pytest.param(
            {"groups": (tuple(range(8)), tuple(range(8, 16)))},
            [(2.0**-13, 2.0**-13)] * 8 + [(1, 1)],
            0,
            id="split k",
        ),
        pytest.param({"accumulator": "f16", "output_bits": 10}, [(1, 1), (2.0**-7, 2.0**-7)], 0, id="f16"),
    ],
)
def test_a_planted_rule_differs_on_a_tile_built_for_it(planted, pairs, c):
    assert dot(F16, pairs, c) != dot(F16, pairs, c, replace(RULE, **planted))


# ------------------------------------------------------------------------------------------ shapes


def test_leading_axes_are_broadcast():
    a, b = words("f16", np.ones((3, 1, 16, 16))), words("f16", np.ones((5, 16, 8)))
    d = floats(a, b, np.zeros((16, 8), np.uint32), F16, RULE)
    assert d.shape == (3, 5, 16, 8)
    assert (d.view(np.float32) == 16).all()


def test_zero_warps_give_an_empty_array():
    a, b, c = (
        np.zeros((0, 16, 16), np.uint16),
        np.zeros((0, 16, 8), np.uint16),
        np.zeros((0, 16, 8), np.uint32),
    )
    assert floats(a, b, c, F16, RULE).shape == (0, 16, 8)


@pytest.mark.parametrize("shape", [(15, 8), (16, 9), (2, 15, 8), (8,)])
def test_tiles_of_wrong_shapes_are_refused(shape):
    with pytest.raises(ShapeError, match=r"do not multiply\npass a \(…, m, k\)"):
        floats(
            np.zeros((16, 16), np.uint16), np.zeros(shape, np.uint16), np.zeros((16, 8), np.uint32), F16, RULE
        )
    with pytest.raises(ShapeError, match="do not multiply"):
        bits(np.zeros((16, 16), np.uint32), np.zeros(shape, np.uint32), np.zeros((16, 8), np.int32), "and")
    with pytest.raises(ShapeError, match="do not multiply"):
        integers(np.zeros((16, 16), np.int8), np.zeros(shape, np.int8), np.zeros((16, 8), np.int32))


def test_elements_of_another_type_are_refused():
    zero = np.zeros((16, 16))
    with pytest.raises(DtypeError, match="a has elements of float64\nconvert a to int8 or uint8"):
        integers(zero, zero, zero)
    with pytest.raises(DtypeError, match="convert a to uint32"):
        bits(zero, zero, zero, "and")
    with pytest.raises(DtypeError, match="a has elements of float32"):
        doubles(zero.astype(np.float32), zero, zero)
    with pytest.raises(DtypeError, match="c has elements of uint16\nconvert c to uint32"):
        floats(*(zero.astype(np.uint16) for _ in range(3)), F16, RULE)
