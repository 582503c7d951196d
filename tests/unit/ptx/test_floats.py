"""`simwarp.floats` against hand-computed values, its shapes and errors; and the twins against Python.

`tests/property/test_floats_properties.py` compares with the twins in `tests/oracles/scalar_floats.py`.
"""

import inspect
import math
import struct
import warnings
from fractions import Fraction

import numpy as np
import pytest

from oracles import scalar_floats as twins
from reference.errors import DtypeError, SchemeError, ShapeError
from simwarp import floats

ROUNDINGS = ("rn", "rz", "rm", "rp")
TINY = {np.float32: 2.0**-149, np.float64: 2.0**-1074}
both = pytest.mark.parametrize("number", [np.float32, np.float64], ids=["f32", "f64"])


def hexes(values):
    return [float(value).hex() for value in np.ravel(values)]


def in_every_rounding(function, *operands):
    return [float(function(*operands, rounding)) for rounding in ROUNDINGS]


# -------------------------------------------------------------------------------------- the twins


def test_every_public_function_has_a_twin():
    public = [name for name in floats.__all__ if inspect.isfunction(getattr(floats, name))]
    assert len(public) >= 16
    with_others = {"widen": "convert", "narrow": "convert", "half": "fma"}
    assert [name for name in public if not callable(getattr(twins, with_others.get(name, name), None))] == []


@pytest.mark.parametrize(("format", "code"), [("f16", "e"), ("f32", "f"), ("f64", "d")])
def test_the_twins_encode_words_as_struct(format, code):
    bits = twins.FORMATS[format][0]
    rng = np.random.default_rng(1)
    for word in [
        0,
        1,
        1 << (bits - 2),
        *(int.from_bytes(rng.bytes(bits // 8), "little") for _ in range(300)),
    ]:
        (value,) = struct.unpack(f"<{code}", word.to_bytes(bits // 8, "little"))
        number = twins.decode(format, word)
        if math.isnan(value):
            assert number == twins.NAN
        elif math.isinf(value) or value == 0:
            assert number == {"inf": "inf", "-inf": "-inf", "0.0": 0, "-0.0": "-0"}[str(value)]
        else:
            assert number == Fraction(value)
        if number != twins.NAN:
            assert twins.encode(format, number) == word


def test_the_twins_equal_python_in_float64():
    rng = np.random.default_rng(2)
    for _ in range(500):
        x, y = (
            math.ldexp(m, e)
            for m, e in zip(rng.uniform(-2, 2, 2), rng.integers(-500, 500, 2).tolist(), strict=True)
        )
        a, b = (struct.unpack("<Q", struct.pack("<d", value))[0] for value in (x, y))
        for twin, value in (
            (twins.add, x + y),
            (twins.sub, x - y),
            (twins.mul, x * y),
            (twins.div, x / y),
        ):
            assert twin("f64", a, b) == struct.unpack("<Q", struct.pack("<d", value))[0]
        root = struct.unpack("<Q", struct.pack("<d", math.sqrt(abs(x))))[0]
        assert twins.sqrt("f64", a & (2**63 - 1)) == root


def test_the_twins_round_in_every_direction_and_saturate():
    third = Fraction(1, 3)
    words = [twins.round_to("f16", third, rounding) for rounding in ("rm", "rz", "rn", "rna", "rp")]
    assert words == [0x3555, 0x3555, 0x3555, 0x3555, 0x3556]
    assert [twins.round_to("e4m3", Fraction(464), mode) for mode in ("rn", "rna", "rz")] == [
        0x7E,
        "nan",
        0x7E,
    ]
    assert twins.round_to("e4m3", Fraction(10**6), "rn", saturate=True) == 0x7E
    assert [twins.round_to("e5m2", Fraction(-(10**6)), mode) for mode in ROUNDINGS] == [
        0xFC,
        0xFB,
        0xFC,
        0xFB,
    ]


# --------------------------------------------------------------------------------- known values


@both
def test_fma_rounds_once(number):
    """x² = 1 + 2u + u²: only a fused operation keeps the last term."""
    u = float(np.finfo(number).eps)
    x = number(1 + u)
    assert float(floats.fma(x, x, number(-1 - 2 * u))) == u * u
    assert float(x * x + number(-1 - 2 * u)) == 0


def test_fma_of_float32_avoids_double_rounding_in_float64():
    """4097² lies halfway between two float32; adding 2^-100 in float64 is lost."""
    x = np.float32(4097)
    signed = [np.float32(sign * 2.0**-100) for sign in (-1, 0, 1)]
    assert [float(floats.fma(x, x, c)) for c in signed] == [16785408, 16785408, 16785410]
    assert [float(floats.fma(x, -x, c)) for c in signed] == [-16785410, -16785408, -16785408]


def test_fma_of_float64_avoids_double_rounding_of_its_error():
    """1 + 2^-53 is a tie; the error of the product, at most 2^-106, decides it."""
    a, b = np.float64(1 + 2.0**-52), np.float64(2.0**-53 - 2.0**-106)
    below = Fraction(float(a)) * Fraction(float(b)) - Fraction(2) ** -53
    assert 0 < below < Fraction(2) ** -104
    assert float(floats.fma(a, b, np.float64(1))) == 1 + 2.0**-52
    b = np.float64(2.0**-53 - 2.0**-105)
    assert Fraction(float(a)) * Fraction(float(b)) < Fraction(2) ** -53
    assert float(floats.fma(a, b, np.float64(1))) == 1


@both
def test_overflow_follows_the_rounding_direction(number):
    largest = np.finfo(number).max
    big = float(largest)
    assert in_every_rounding(floats.mul, largest, number(2)) == [math.inf, big, big, math.inf]
    assert in_every_rounding(floats.mul, largest, number(-2)) == [-math.inf, -big, -math.inf, -big]
    assert in_every_rounding(floats.add, largest, largest) == [math.inf, big, big, math.inf]
    assert in_every_rounding(floats.fma, largest, number(-2), largest) == [-big] * 4
    assert in_every_rounding(floats.div, largest, number(0.5)) == [math.inf, big, big, math.inf]
    assert in_every_rounding(floats.add, largest, number(1)) == [big, big, big, math.inf]


@both
def test_underflow_follows_the_rounding_direction(number):
    tiny = number(TINY[number])
    least = float(tiny)
    assert in_every_rounding(floats.mul, tiny, tiny) == [0, 0, 0, least]
    assert in_every_rounding(floats.mul, tiny, -tiny) == [0, 0, -least, 0]
    assert hexes(in_every_rounding(floats.mul, tiny, -tiny)) == [
        "-0x0.0p+0",
        "-0x0.0p+0",
        (-least).hex(),
        "-0x0.0p+0",
    ]
    assert in_every_rounding(floats.fma, tiny, number(0.5), tiny) == [2 * least, least, least, 2 * least]
    assert in_every_rounding(floats.div, tiny, number(2)) == [0, 0, 0, least]
    assert in_every_rounding(floats.mul, tiny, number(1.5)) == [2 * least, least, least, 2 * least]


@both
def test_the_sign_of_a_zero_sum_follows_the_rounding(number):
    one, plus, minus = number(1), number(0), number(-0.0)
    differ = ["0x0.0p+0", "0x0.0p+0", "-0x0.0p+0", "0x0.0p+0"]
    for a, b in ((one, -one), (plus, minus), (minus, plus)):
        assert hexes(in_every_rounding(floats.add, a, b)) == differ
        assert hexes(in_every_rounding(floats.fma, a, one, b)) == differ
        assert hexes(in_every_rounding(floats.sub, a, -b)) == differ
    assert hexes(in_every_rounding(floats.add, plus, plus)) == ["0x0.0p+0"] * 4
    assert hexes(in_every_rounding(floats.add, minus, minus)) == ["-0x0.0p+0"] * 4
    assert hexes(in_every_rounding(floats.fma, minus, one, minus)) == ["-0x0.0p+0"] * 4
    assert hexes(in_every_rounding(floats.mul, minus, one)) == ["-0x0.0p+0"] * 4


@both
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_invalid_operations_give_nan_and_infinities_are_kept(number, rounding):
    inf, nan, zero, one, largest = (number(x) for x in (np.inf, np.nan, 0, 1, np.finfo(number).max))
    for a, b, c in ((inf, zero, one), (zero, inf, nan), (inf, one, -inf), (one, nan, one), (one, one, nan)):
        assert np.isnan(floats.fma(a, b, c, rounding))
    assert np.isnan(floats.add(inf, -inf, rounding))
    assert np.isnan(floats.div(zero, zero, rounding))
    assert np.isnan(floats.div(inf, inf, rounding))
    assert np.isnan(floats.sqrt(-one, rounding))
    # The product alone would overflow, and inf - inf is NaN.
    assert floats.fma(largest, largest, -inf, rounding) == -inf
    assert floats.div(-one, zero, rounding) == -inf
    assert floats.rcp(number(-0.0), rounding) == -inf
    assert hexes(floats.sqrt(number(-0.0), rounding)) == ["-0x0.0p+0"]
    assert floats.sqrt(inf, rounding) == inf


def test_saturate_clamps_and_flush_zeroes_subnormals():
    x = np.float32([np.nan, -np.inf, -0.0, 1e-40, 0.25, 1.0, 1.5, np.inf])
    assert hexes(floats.saturate(x)) == hexes([0, 0, 0, x[3], 0.25, 1, 1, 1])
    subnormal, least = np.float32(-(2.0**-127)), np.finfo(np.float32).tiny
    assert hexes(floats.flush(np.float32([subnormal, -subnormal, least, -0.0]))) == hexes(
        [-0.0, 0.0, least, -0.0]
    )
    assert np.isnan(floats.flush(np.float32(np.nan)))
    assert float(floats.flush(np.float64(1e-40))) == 1e-40


def test_to_integer_clamps_and_converts_nan_to_0():
    x = np.float32([np.nan, -np.inf, np.inf, -1.5, 2.5, 3e9])
    assert floats.to_integer(x, np.int32, "rn").tolist() == [0, -(2**31), 2**31 - 1, -2, 2, 2**31 - 1]
    assert floats.to_integer(x, np.uint8, "rp").tolist() == [0, 0, 255, 0, 3, 255]
    assert floats.to_integer(np.float64(2.0**63), np.int64, "rz") == 2**63 - 1
    assert floats.to_integer(np.float64(2.0**63), np.uint64, "rz") == 2**63
    assert floats.to_integer(np.float64(2.0**64), np.uint64, "rz") == 2**64 - 1


def test_from_integer_rounds_64_bits():
    i = np.uint64(2**64 - 1)
    assert in_every_rounding(lambda i, mode: floats.from_integer(i, np.float64, mode), i) == [
        2.0**64,
        2.0**64 - 2.0**11,
        2.0**64 - 2.0**11,
        2.0**64,
    ]
    assert float(floats.from_integer(np.int64(-(2**24) - 1), np.float32, "rm")) == -(2**24) - 2


def test_small_formats_saturate_or_overflow():
    assert hex(floats.narrow(np.float32(65520), "f16")) == "0x7c00"
    assert hex(floats.narrow(np.float32(65520), "f16", "rz")) == "0x7bff"
    assert hex(floats.narrow(np.float32(-1e6), "f16", "rn", saturate_finite=True)) == "0xfbff"
    assert hex(floats.narrow(np.float32(3.4e38), "bf16")) == "0x7f80"
    assert hex(floats.narrow(np.float32(464), "e4m3")) == "0x7e"  # a tie, to even
    assert hex(floats.narrow(np.float32(465), "e4m3")) == "0x7f"
    assert hex(floats.narrow(np.float32(-np.inf), "e4m3", saturate_finite=True)) == "0xfe"
    assert hex(floats.narrow(np.float32(-np.inf), "e5m2", "rz")) == "0xfc"
    tie = np.float32(1 + 2.0**-11)
    assert [hex(floats.narrow(tie, "tf32", mode)) for mode in ("rn", "rna")] == ["0x3f800000", "0x3f802000"]
    assert hex(floats.narrow(np.float32(2.0**-149), "tf32", "rp")) == "0x2000"
    nan = np.float32([np.nan, -np.nan])
    for format, word in (
        ("f16", 0x7FFF),
        ("bf16", 0x7FFF),
        ("tf32", 0x7FFFE000),
        ("e4m3", 0x7F),
        ("e5m2", 0x7F),
    ):
        for saturate in (False, True):
            assert floats.narrow(nan, format, "rn", saturate).tolist() == [word, word]
    assert floats.widen(np.uint8([0x7F, 0xFF, 0xFE, 0x01, 0x80]), "e4m3").tolist()[2:] == [-448, 2.0**-9, 0]
    assert np.isnan(floats.widen(np.uint8([0x7F, 0xFF]), "e4m3")).all()


def test_half_fma_rounds_once():
    """2050 + (1 + 2^-10)(1 - 2^-10) lies below the tie 2051, to which float32 would round it."""
    a, b, c = (np.uint16(word) for word in (0x3C01, 0x3BFE, 0x6801))
    assert hex(floats.half("fma", a, b, c, format="f16")) == "0x6801"
    assert hex(floats.half("fma", a, b, c, format="f16", rounding="rp")) == "0x6802"
    one, least = np.uint16(0x3F80), np.uint16(0x0001)
    assert hex(floats.half("fma", least, least, one, format="bf16", rounding="rp")) == "0x3f81"
    assert hex(floats.half("mul", least, one, format="bf16", rounding="rn")) == "0x1"


# ------------------------------------------------------------------------------ arrays and errors


@pytest.mark.at_most(2)
@both
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_results_of_arrays_equal_results_of_their_elements(number, rounding):
    """Several blocks with special elements give the same words as single elements."""
    rng = np.random.default_rng(5)
    a, b, c = (rng.standard_normal((700, 32)).astype(number) for _ in range(3))
    hard = [np.nan, np.inf, -np.inf, 0, -0.0, np.finfo(number).max, np.finfo(number).tiny / 4, TINY[number]]
    for x in (a, b, c):
        x.flat[rng.choice(x.size, 200, replace=False)] = rng.choice(np.array(hard, number), 200)
    chosen = rng.choice(a.size, 300, replace=False)
    special = ~(np.abs(a) < 10) | (np.abs(b) < 1e-30)
    chosen = np.union1d(chosen, np.flatnonzero(special)[:300])
    for function, operands in (
        (floats.fma, (a, b, c)),
        (floats.add, (a, c)),
        (floats.mul, (a, b)),
        (floats.div, (a, b)),
        (floats.sqrt, (a,)),
    ):
        whole = function(*operands, rounding)
        assert whole.shape == a.shape
        assert whole.dtype == number
        for i in chosen:
            one = function(*(x.flat[i] for x in operands), rounding)
            assert np.array_equal(one, whole.flat[i], equal_nan=True)
            assert np.signbit(one) == np.signbit(whole.flat[i]) or np.isnan(one)


@both
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_operands_broadcast_and_are_not_modified(number, rounding):
    column, row, one = np.ones((600, 1), number) / 3, np.arange(32, dtype=number)[::-1], number(0.1)
    before = column.copy(), row.copy()
    result = floats.fma(column, row, one, rounding)
    assert result.shape == (600, 32)
    assert result.flags.writeable
    full = [np.ascontiguousarray(x) for x in np.broadcast_arrays(column, row, one)]
    assert np.array_equal(result, floats.fma(*full, rounding))
    assert np.array_equal(
        floats.add(row, one, rounding), floats.add(*np.broadcast_arrays(row, one), rounding)
    )
    assert np.array_equal(column, before[0])
    assert np.array_equal(row, before[1])
    strided = full[0][::3, ::2]
    assert np.array_equal(
        floats.mul(strided, strided, rounding), floats.mul(strided.copy(), strided.copy(), rounding)
    )


@both
def test_results_are_new_arrays(number):
    x = np.ones(4, number)
    for result in (
        floats.flush(x),
        floats.saturate(x),
        floats.round_integral(x, "rn"),
        floats.convert(x, number),
        floats.add(x, np.zeros(4, number), "rz"),
    ):
        assert not np.shares_memory(result, x)
    words = np.zeros(4, np.uint32)
    assert not np.shares_memory(floats.widen(words, "tf32"), words)


@pytest.mark.parametrize("shape", [(0,), (0, 32), (), (1,), (3, 1, 2)])
def test_results_have_the_shape_of_the_operands(shape):
    x = np.ones(shape, np.float32)
    for rounding in ROUNDINGS:
        for number in (np.float32, np.float64):
            y = x.astype(number)
            assert np.shape(floats.fma(y, y, y, rounding)) == shape
            assert np.shape(floats.sqrt(y, rounding)) == shape
        assert np.shape(floats.to_integer(x, np.int64, rounding)) == shape
        assert np.shape(floats.from_integer(x.astype(np.int64), np.float32, rounding)) == shape
        assert np.shape(floats.narrow(x, "e4m3", rounding)) == shape
        words = x.astype(np.uint16)
        assert np.shape(floats.half("add", words, words, format="bf16", rounding=rounding)) == shape
    assert np.shape(floats.widen(x.astype(np.uint8), "e4m3")) == shape
    assert np.shape(floats.saturate(x)) == shape


def test_extreme_operands_raise_no_numpy_warning():
    extreme = np.array([0, 1e-45, 3e38, np.inf, -np.inf, np.nan, -1, 1e-300, 1e300])
    single = np.array([0, 1, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FA00000, 0xBF800000], np.uint32)
    single = single.view(np.float32)  # the sixth is a signalling NaN
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        for x in (extreme, single):
            for rounding in ROUNDINGS:
                for function in (floats.add, floats.sub, floats.mul, floats.div):
                    function(x[:, None], x, rounding)
                floats.fma(x[:, None, None], x[:, None], x, rounding)
                floats.sqrt(x, rounding)
                floats.rcp(x, rounding)
                floats.round_integral(x, rounding)
                floats.to_integer(x, np.int16, rounding)
                floats.convert(x, np.float32, rounding)
                for format in ("f16", "bf16", "tf32", "e4m3", "e5m2"):
                    floats.narrow(x, format, rounding)
            floats.flush(x)
            floats.saturate(x)
        every_half = np.arange(0, 2**16, 97).astype(np.uint16)
        for format in ("f16", "bf16"):
            floats.widen(every_half, format)
            for operation in ("add", "sub", "mul"):
                floats.half(operation, every_half, every_half[::-1], format=format)


def test_unsupported_types_are_refused():
    single, double = np.ones(2, np.float32), np.ones(2)
    with pytest.raises(
        DtypeError,
        match="float32, float64\nfloats of one type are needed\npass NumPy values",
    ):
        floats.add(single, double)
    with pytest.raises(DtypeError, match="float32, float32, int"):
        floats.fma(single, single, 1)
    for refused in (
        lambda: floats.mul(single.astype(np.float16), single.astype(np.float16)),
        lambda: floats.sqrt(np.ones(2, np.int32)),
        lambda: floats.sqrt(2.0),
        lambda: floats.convert(double, np.float16),
        lambda: floats.to_integer(single, np.float32, "rn"),
        lambda: floats.from_integer(single, np.float32, "rn"),
        lambda: floats.from_integer(np.int32(1), np.int64, "rn"),
        lambda: floats.narrow(np.float16(1), "bf16"),
    ):
        with pytest.raises(DtypeError):
            refused()


def test_unknown_roundings_and_formats_are_refused():
    x, words = np.float32(1), np.uint16(1)
    for function, operands in (
        (floats.add, (x, x)),
        (floats.mul, (x, x)),
        (floats.div, (x, x)),
        (floats.fma, (x, x, x)),
        (floats.sqrt, (x,)),
        (floats.rcp, (x,)),
        (floats.round_integral, (x,)),
        (lambda x, rounding: floats.convert(x, np.float32, rounding), (x,)),
        (lambda x, rounding: floats.to_integer(x, np.int32, rounding), (x,)),
        (lambda x, rounding: floats.half("add", words, words, format="f16", rounding=rounding), (x,)),
    ):
        with pytest.raises(SchemeError, match="unknown rounding 'rna'\nchoose one of rn, rz, rm, rp"):
            function(*operands, "rna")
    with pytest.raises(SchemeError, match="choose one of f16, bf16, tf32, e4m3, e5m2"):
        floats.narrow(x, "f32")
    with pytest.raises(SchemeError, match="'fp8'"):
        floats.widen(words, "fp8")
    with pytest.raises(SchemeError, match="choose one of add, sub, mul, fma"):
        floats.half("div", words, words, format="f16")
    with pytest.raises(SchemeError, match="choose f16 or bf16"):
        floats.half("add", words, words, format="tf32")
    with pytest.raises(ShapeError, match="fma of 2 operands\npass 3"):
        floats.half("fma", words, words, format="f16")
