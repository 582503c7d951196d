"""Worked examples of floating-point, comparison and conversion instructions, each as a small kernel.

Operands and results are bit patterns, written as PTX does. Where the PTX ISA leaves a result open (a NaN's
bits) or an NVIDIA H200 deviates from it, the expected result is that of an H200.
"""

import math
import struct

import numpy as np
import pytest

import simwarp

BITS = {"pred": 32, "bf16": 16, "tf32": 32, "e4m3x2": 16, "e5m2x2": 16, "f16x2": 32, "bf16x2": 32}


def bits_of(kind):
    return BITS.get(kind) or max(16, int(kind[1:]))


def run(opcode, to, sources, *cases, wide=None):
    """The result of an instruction for each case, a tuple of operand words in the order of PTX.

    ``to`` and ``sources`` are types, separated by spaces; two destinations are written ``p|q``. ``wide``
    declares the destination's register.
    """
    to, sources = to.split(), sources.split()
    kinds = {f"%s{i}": kind for i, kind in enumerate(sources)} | {f"%d{i}": kind for i, kind in enumerate(to)}
    registers = {name: "pred" if kind == "pred" else f"b{bits_of(kind)}" for name, kind in kinds.items()}
    if wide:
        registers["%d0"] = wide
    lines = []
    for i, kind in enumerate(sources):
        lines.append(f"ld.global.b{bits_of(kind)} {'%w' if kind == 'pred' else f'%s{i}'}, [%in+{8 * i}];")
        if kind == "pred":
            lines.append(f"setp.ne.u32 %s{i}, %w, 0;")
    written = "|".join(f"%d{i}" for i in range(len(to)))
    lines.append(f"{opcode} {written}, {', '.join(f'%s{i}' for i in range(len(sources)))};")
    for i, kind in enumerate(to):
        if kind == "pred":
            lines.append(f"selp.b32 %w, 1, 0, %d{i};")
        width = 32 if kind == "pred" else int(registers[f"%d{i}"][1:])
        lines.append(f"st.global.b{width} [%out+{8 * i}], {'%w' if kind == 'pred' else f'%d{i}'};")
    declared = " ".join(f".reg .{kind} {name};" for name, kind in registers.items())
    text = f""".version 8.6
.target sm_90
.address_size 64
.visible .entry example(.param .u64 in, .param .u64 out) {{
    .reg .b32 %i, %w; .reg .b64 %in, %out, %at; {declared}
    mov.u32 %i, %tid.x; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mul.wide.u32 %at, %i, {8 * len(sources)}; add.u64 %in, %in, %at;
    mul.wide.u32 %at, %i, {8 * len(to)}; add.u64 %out, %out, %at;
    {" ".join(lines)}
    ret;
}}"""
    device = simwarp.Device()
    given = device.upload(np.array(cases, np.uint64))
    results = device.upload(np.zeros((len(cases), len(to)), np.uint64))
    device.load(text).kernel("example")((1, 1, 1), (len(cases), 1, 1), given, results)
    return [row[0] if len(row) == 1 else tuple(row) for row in results.download().tolist()]


def check(opcode, to, sources, examples, wide=None):
    """Run an instruction on ``examples``, {operand word or tuple of words: expected result}."""
    cases = [case if isinstance(case, tuple) else (case,) for case in examples]
    got = run(opcode, to, sources, *cases, wide=wide)
    differences = [
        f"{[hex(word) for word in case]}: {hex(a) if isinstance(a, int) else a}, expected {b!r}"
        for case, a, b in zip(cases, got, examples.values(), strict=True)
        if a != b
    ]
    assert differences == []


def f32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def f64(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


ONE, MINUS_ONE, HALF = f32(1), f32(-1), f32(0.5)
TINY, LEAST, LARGEST = 1, 0x00800000, 0x7F7FFFFF
INF, MINUS_INF, NAN, SNAN, MINUS_NAN = 0x7F800000, 0xFF800000, 0x7FC00005, 0x7F800001, 0xFFC00000
CANONICAL, MINUS_ZERO = 0x7FFFFFFF, 0x80000000
SIGN64, DEFAULT64 = 1 << 63, 0xFFF8000000000000


# ----------------------------------------------------------------------------------------- arithmetic


SUMS = {"add": ONE, "add.rn": ONE, "add.rz": ONE, "add.rm": ONE, "add.rp": ONE + 1}
DIFFERENCES = {"sub": ONE, "sub.rn": ONE, "sub.rz": ONE - 1, "sub.rm": ONE - 1, "sub.rp": ONE}


@pytest.mark.parametrize(("opcode", "result"), (SUMS | DIFFERENCES).items())
def test_a_sum_is_rounded_in_the_direction_of_the_opcode(opcode, result):
    check(f"{opcode}.f32", "f32", "f32 f32", {(ONE, TINY): result})


def test_an_exact_zero_sum_has_the_sign_of_the_rounding():
    check("add.rn.f32", "f32", "f32 f32", {(ONE, MINUS_ONE): 0, (MINUS_ZERO, MINUS_ZERO): MINUS_ZERO})
    check("add.rm.f32", "f32", "f32 f32", {(ONE, MINUS_ONE): MINUS_ZERO, (0, 0): 0})
    check("sub.rm.f64", "f64", "f64 f64", {(f64(1), f64(1)): SIGN64})


ROUNDINGS = ("rn", "rz", "rm", "rp")
ULP = ONE + 1  # 1 + 2^-23


@pytest.mark.parametrize(
    ("opcode", "types", "operands", "results"),
    [
        ("mul", "f32", (ULP, ULP), (ONE + 2, ONE + 2, ONE + 2, ONE + 3)),
        ("mul", "f32", (ULP, ULP | 1 << 31), tuple((ONE + n) | 1 << 31 for n in (2, 2, 3, 2))),
        ("mul", "f64", (f64(1) + 1, f64(1) + 1), tuple(f64(1) + n for n in (2, 2, 2, 3))),
        ("div", "f32", (ONE, f32(3)), (0x3EAAAAAB, 0x3EAAAAAA, 0x3EAAAAAA, 0x3EAAAAAB)),
        ("div", "f64", (f64(1), f64(3)), tuple(0x3FD5555555555555 + n for n in (0, 0, 0, 1))),
        ("rcp", "f32", (f32(-3),), (0xBEAAAAAB, 0xBEAAAAAA, 0xBEAAAAAB, 0xBEAAAAAA)),
        ("rcp", "f64", (f64(3),), tuple(0x3FD5555555555555 + n for n in (0, 0, 0, 1))),
        ("sqrt", "f32", (f32(2),), (0x3FB504F3, 0x3FB504F3, 0x3FB504F3, 0x3FB504F4)),
        ("sqrt", "f64", (f64(2),), tuple(0x3FF6A09E667F3BCC + n for n in (1, 0, 0, 1))),
        ("fma", "f32", (ULP, ULP, TINY), (ONE + 2, ONE + 2, ONE + 2, ONE + 3)),
        ("mad", "f32", (LARGEST, f32(2), ONE), (INF, LARGEST, LARGEST, INF)),
        ("fma", "f64", (f64(1), f64(1), SIGN64 | 1), (f64(1), f64(1) - 1, f64(1) - 1, f64(1))),
        ("mad", "f64", (f64(1), f64(1), 1), (f64(1), f64(1), f64(1), f64(1) + 1)),
    ],
)
def test_results_are_rounded_in_every_direction(opcode, types, operands, results):
    for rounding, result in zip(ROUNDINGS, results, strict=True):
        check(f"{opcode}.{rounding}.{types}", types, " ".join([types] * len(operands)), {operands: result})


def test_fma_rounds_once():
    square, error = f32((1 + 2.0**-23) ** 2), f32(2.0**-46)
    check("fma.rn.f32", "f32", "f32 f32 f32", {(ULP, ULP, square | 1 << 31): error})


def test_ftz_flushes_operands_and_results_to_zeros_of_their_sign():
    check("add.f32", "f32", "f32 f32", {(TINY, TINY): 2, (LEAST, 0x80000001): LEAST - 1})
    check(
        "add.ftz.f32",
        "f32",
        "f32 f32",
        {(TINY, LEAST): LEAST, (0x80000001, 0x80000001): MINUS_ZERO, (LEAST + 1, LEAST | 1 << 31): 0},
    )
    check("mul.ftz.f32", "f32", "f32 f32", {(LEAST, f32(-0.5)): MINUS_ZERO})


def test_ftz_flushes_subnormals_before_they_round_up_to_normal():
    """2^-126 (1 - 2^-24) stays below 2^-126 with an unbounded exponent range."""
    below_one = ONE - 1
    check("mul.rn.f32", "f32", "f32 f32", {(LEAST, below_one): LEAST})
    check("mul.rn.ftz.f32", "f32", "f32 f32", {(LEAST, below_one): 0, (LEAST, ONE): LEAST})
    check("fma.rn.ftz.f32", "f32", "f32 f32 f32", {(LEAST, below_one | 1 << 31, 0): MINUS_ZERO})
    check("div.rp.ftz.f32", "f32", "f32 f32", {(LEAST, ULP): 0})
    check("mul.ftz.f16", "f16", "f16 f16", {(0x0400, 0x3BFF): 0})
    # Nearer to 2^-14 than to any smaller number, for an unbounded exponent range:
    check("fma.rn.ftz.f16", "f16", "f16 f16 f16", {(0x8401, 0x0401, 0x0400): 0x0400})
    check("cvt.rn.ftz.f32.f64", "f32", "f64", {f64(2.0**-126 * (1 - 2.0**-24)): 0, f64(2.0**-126): LEAST})


def test_sat_clamps_to_0_and_1():
    check(
        "add.sat.f32",
        "f32",
        "f32 f32",
        {(ONE, ONE): ONE, (HALF, 0): HALF, (MINUS_ONE, 0): 0, (NAN, 0): 0, (MINUS_ZERO, MINUS_ZERO): 0},
    )
    check("fma.rz.ftz.sat.f32", "f32", "f32 f32 f32", {(INF, ONE, ONE): ONE, (TINY, ONE, HALF): HALF})


def test_f32_nan_results_are_canonical():
    check("add.f32", "f32", "f32 f32", {(INF, MINUS_INF): CANONICAL, (SNAN, ONE): CANONICAL})
    check("sqrt.rn.f32", "f32", "f32", {MINUS_ONE: CANONICAL, MINUS_ZERO: MINUS_ZERO})
    check("abs.f32", "f32", "f32", {MINUS_NAN: CANONICAL, MINUS_ONE: ONE, 0x80000001: TINY})
    check("neg.f32", "f32", "f32", {NAN: CANONICAL, 0: MINUS_ZERO})
    check("neg.ftz.f32", "f32", "f32", {TINY: MINUS_ZERO, ONE: MINUS_ONE})


def test_f64_nan_results_take_the_payload_of_an_operand():
    """Measured priority: last operand first; in fma b, c, a; in a division the dividend."""
    one, infinity, quiet = f64(1), 0x7FF0 << 48, 0x0008 << 48
    a, b, c = (0x7FF0 << 48 | n for n in (1, 2, 3))
    minus_b = SIGN64 | b
    check(
        "add.f64",
        "f64",
        "f64 f64",
        {
            (a, b): b | quiet,
            (a, one): a | quiet,
            (one, minus_b): minus_b | quiet,
            (infinity, SIGN64 | infinity): DEFAULT64,
        },
    )
    check("fma.rn.f64", "f64", "f64 f64 f64", {(a, b, c): b | quiet, (a, one, c): c | quiet})
    check("div.rn.f64", "f64", "f64 f64", {(a, b): a | quiet, (0, 0): DEFAULT64})
    check("max.f64", "f64", "f64 f64", {(a, b): b | quiet, (a, one): one})
    check("abs.f64", "f64", "f64", {SIGN64 | a: SIGN64 | a | quiet, SIGN64 | one: one})
    check("neg.f64", "f64", "f64", {a: a | quiet, one: SIGN64 | one})


def test_min_and_max_prefer_numbers_and_order_zeros():
    check(
        "min.f32",
        "f32",
        "f32 f32",
        {(ONE, MINUS_ONE): MINUS_ONE, (0, MINUS_ZERO): MINUS_ZERO, (NAN, ONE): ONE, (SNAN, NAN): CANONICAL},
    )
    check(
        "max.f32",
        "f32",
        "f32 f32",
        {(MINUS_ZERO, 0): 0, (MINUS_INF, MINUS_ONE): MINUS_ONE, (TINY, 0): TINY, (ONE, NAN): ONE},
    )
    check("max.ftz.f32", "f32", "f32 f32", {(TINY, MINUS_ZERO): 0, (TINY, MINUS_ONE): 0})
    check("min.NaN.f32", "f32", "f32 f32", {(ONE, SNAN): CANONICAL, (ONE, f32(2)): ONE})
    check("min.xorsign.abs.f32", "f32", "f32 f32", {(f32(-2), ONE): MINUS_ONE, (f32(-2), MINUS_ONE): ONE})
    check("max.bf16x2", "bf16x2", "bf16x2 bf16x2", {(0x3F80_8000, 0xBF80_0000): 0x3F80_0000})
    check("min.NaN.f16", "f16", "f16 f16", {(0x7C01, 0x3C00): 0x7FFF, (0x3C00, 0xBC00): 0xBC00})


@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        ("finite", (1, 1, 1, 0, 0)),
        ("infinite", (0, 0, 0, 1, 0)),
        ("number", (1, 1, 1, 1, 0)),
        ("notanumber", (0, 0, 0, 0, 1)),
        ("normal", (1, 1, 0, 0, 0)),
        ("subnormal", (0, 0, 1, 0, 0)),
    ],
)
def test_testp_classifies_floats(kind, holds):
    words = (MINUS_ZERO, LEAST, LEAST - 1, MINUS_INF, SNAN)
    check(f"testp.{kind}.f32", "pred", "f32", dict(zip(words, holds, strict=True)))
    words = (0, 1 << 52, 1, 0x7FF0 << 48, 0x7FF0 << 48 | 1)
    check(f"testp.{kind}.f64", "pred", "f64", dict(zip(words, holds, strict=True)))


def test_copysign_takes_its_sign_from_the_first_operand():
    check("copysign.f32", "f32", "f32 f32", {(MINUS_ZERO, ONE): MINUS_ONE, (0, MINUS_NAN): 0x7FC00000})
    check("copysign.f64", "f64", "f64 f64", {(f64(-1), 3): SIGN64 | 3})


# ----------------------------------------------------------------------------------------------- half


def test_half_arithmetic_rounds_once():
    check(
        "add.f16",
        "f16",
        "f16 f16",
        {(0x3C00, 0x1000): 0x3C00, (0x7BFF, 0x4C00): 0x7C00, (0x7C00, 0xFC00): 0x7FFF},
    )
    check("add.bf16", "bf16", "bf16 bf16", {(0x3F80, 0x3B80): 0x3F80, (0x3F81, 0x3B80): 0x3F82})
    check("mul.rn.bf16", "bf16", "bf16 bf16", {(0x3F81, 0x3F81): 0x3F82, (0x0080, 0x3F00): 0x0040})
    check("fma.rn.f16", "f16", "f16 f16 f16", {(0x3C01, 0x3C01, 0xBC02): 0x0010})
    check("fma.rn.relu.bf16", "bf16", "bf16 bf16 bf16", {(0x3F80, 0xBF80, 0x0000): 0, (0x7FC1, 0, 0): 0x7FFF})
    check("add.sat.f16", "f16", "f16 f16", {(0x3C00, 0x3C00): 0x3C00, (0x7E00, 0): 0, (0x8000, 0x8000): 0})


def test_packed_f16x2_and_bf16x2_operate_on_each_half():
    check("add.f16x2", "f16x2", "f16x2 f16x2", {(0x3C00_4000, 0x3C00_C000): 0x4000_0000})
    check("sub.bf16x2", "bf16x2", "bf16x2 bf16x2", {(0x4000_3F80, 0x3F80_3F80): 0x3F80_0000})
    check(
        "fma.rn.bf16x2",
        "bf16x2",
        "bf16x2 bf16x2 bf16x2",
        {(0x4000_4000, 0x4000_BF80, 0x3F80_0000): 0x40A0_C000},
    )
    check("neg.f16x2", "f16x2", "f16x2", {0x3C00_8000: 0xBC00_0000, 0x7C01_FE00: 0x7FFF_7FFF})
    check("abs.bf16", "bf16", "bf16", {0xBF80: 0x3F80, 0xFFC0: 0x7FFF})
    check("neg.ftz.f16", "f16", "f16", {0x0001: 0x8000})


# ----------------------------------------------------------------------------------------- comparison


COMPARISONS = {  # of 1 with 2, of equal numbers, of NaN with 1
    "eq": (0, 1, 0),
    "ne": (1, 0, 0),
    "lt": (1, 0, 0),
    "le": (1, 1, 0),
    "gt": (0, 0, 0),
    "ge": (0, 1, 0),
    "equ": (0, 1, 1),
    "neu": (1, 0, 1),
    "ltu": (1, 0, 1),
    "leu": (1, 1, 1),
    "gtu": (0, 0, 1),
    "geu": (0, 1, 1),
    "num": (1, 1, 0),
    "nan": (0, 0, 1),
}


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_of_every_float_type_handle_nan_and_zeros(compare):
    less, equal, unordered = COMPARISONS[compare]
    words = {"f16": (0x3C00, 0x4000, 0x7E01), "bf16": (0x3F80, 0x4000, 0xFFC1)}
    words |= {"f32": (ONE, f32(2), SNAN), "f64": (f64(1), f64(2), DEFAULT64)}
    for kind, (one, two, nan) in words.items():
        zeros = (0, 1 << bits_of(kind) - 1)
        expected = {(one, two): less, (one, one): equal, zeros: equal, (nan, one): unordered}
        check(f"setp.{compare}.{kind}", "pred", f"{kind} {kind}", expected)
        ones = {case: 0xFFFFFFFF * holds for case, holds in expected.items()}
        check(f"set.{compare}.u32.{kind}", "u32", f"{kind} {kind}", ones)


def test_setp_on_f16x2_writes_the_low_half_to_the_first_predicate():
    types = "f16x2 f16x2"
    check("setp.lt.f16x2", "pred pred", types, {(0x3C00_3C00, 0x3C00_4000): (1, 0)})
    check("setp.lt.and.bf16x2", "pred pred", "bf16x2 bf16x2 pred", {(0, 0x3F80_3F80, 0): (0, 0)})
    check("setp.lt.xor.f32", "pred pred", "f32 f32 pred", {(0, ONE, 1): (0, 1), (0, ONE, 0): (1, 0)})
    check("setp.eq.ftz.f16x2", "pred pred", types, {(0x0001_0001, 0x8000_0000): (1, 1)})


def test_set_writes_1_for_float_and_all_ones_for_integer_results():
    check("set.gt.f16x2.f16x2", "f16x2", "f16x2 f16x2", {(0x4000_3C00, 0x3C00_3C00): 0x3C00_0000})
    check("set.gt.u32.f16x2", "u32", "f16x2 f16x2", {(0x4000_3C00, 0x3C00_3C00): 0xFFFF_0000})
    check("set.le.bf16x2.bf16x2", "bf16x2", "bf16x2 bf16x2", {(0x3F80_4000, 0x3F80_3F80): 0x3F80_0000})
    check("set.eq.f16.f16", "f16", "f16 f16", {(0, 0x8000): 0x3C00, (0x7E00, 0x7E00): 0})
    check("set.nan.s16.bf16", "s16", "bf16 bf16", {(0x7FFF, 0): 0xFFFF, (0, 0): 0})
    check("set.lt.and.f32.s32", "f32", "s32 s32 pred", {(0xFFFFFFFF, 0, 1): ONE, (0xFFFFFFFF, 0, 0): 0})
    check("set.hi.u32.u64", "u32", "u64 u64", {(1 << 63, 1): 0xFFFFFFFF})
    check("set.ne.bf16.b16", "bf16", "b16 b16", {(1, 2): 0x3F80, (2, 2): 0})
    check("set.gtu.ftz.f32.f32", "f32", "f32 f32", {(TINY, 0): 0, (NAN, 0): ONE})


def test_slct_selects_by_the_sign_of_c():
    check("slct.b64.s32", "b64", "b64 b64 s32", {(1, 2, 0): 1, (1, 2, 0xFFFFFFFF): 2})
    check(
        "slct.f32.f32",
        "f32",
        "f32 f32 f32",
        {(SNAN, 2, MINUS_ZERO): SNAN, (1, 2, NAN): 2, (1, 2, 0x80000001): 2},
    )
    check("slct.ftz.u16.f32", "u16", "u16 u16 f32", {(1, 2, 0x80000001): 1})


# ----------------------------------------------------------------------------------------- conversion


@pytest.mark.parametrize(
    ("mode", "results"),
    [("rni", (2, 2, -2, 0)), ("rzi", (1, 2, -1, 0)), ("rmi", (1, 2, -2, -1)), ("rpi", (2, 3, -1, 0))],
)
def test_cvt_rounds_floats_to_integers_in_every_mode(mode, results):
    numbers = (1.5, 2.5, -1.5, -0.25)
    words = [result & 0xFFFFFFFF for result in results]
    check(f"cvt.{mode}.s32.f32", "s32", "f32", dict(zip(map(f32, numbers), words, strict=True)))
    check(f"cvt.{mode}.s32.f64", "s32", "f64", dict(zip(map(f64, numbers), words, strict=True)))
    check(
        f"cvt.{mode}.s32.f16", "s32", "f16", dict(zip((0x3E00, 0x4100, 0xBE00, 0xB400), words, strict=True))
    )
    whole = [f32(math.copysign(abs(r), x)) for r, x in zip(results, numbers, strict=True)]
    check(f"cvt.{mode}.f32.f32", "f32", "f32", dict(zip(map(f32, numbers), whole, strict=True)))


def test_cvt_to_integer_clamps_and_converts_nan_as_an_h200():
    check("cvt.rzi.u8.f32", "u8", "f32", {f32(300): 255, MINUS_ONE: 0, NAN: 0})
    check("cvt.rzi.s32.f32", "s32", "f32", {INF: 0x7FFFFFFF, MINUS_INF: 0x80000000, MINUS_NAN: 0})
    check("cvt.rzi.s64.f32", "s64", "f32", {INF: (1 << 63) - 1, NAN: 1 << 63})
    check("cvt.rni.u64.f16", "u64", "f16", {0x7C00: (1 << 64) - 1, 0x7FFF: 1 << 63})
    check("cvt.rni.u32.f64", "u32", "f64", {f64(2.0**40): 0xFFFFFFFF, DEFAULT64: 1 << 31})
    check("cvt.rzi.s8.bf16", "s8", "bf16", {0x42FE: 127, 0x4380: 127, 0xBF80: 0xFF, 0x7FC0: 0}, wide="b8")
    check("cvt.sat.u8.s32", "u8", "s32", {300: 255, 0xFFFFFFFF: 0, 7: 7})
    check("cvt.sat.s16.u64", "s16", "u64", {1 << 63: 0x7FFF, 5: 5})


def test_cvt_rounds_integers_to_floats():
    check("cvt.rn.f32.s32", "f32", "s32", {0x7FFFFFFF: f32(2.0**31), 0xFFFFFFFF: MINUS_ONE})
    check("cvt.rz.f32.u64", "f32", "u64", {(1 << 64) - 1: 0x5F7FFFFF})
    check("cvt.rp.f64.s64", "f64", "s64", {(1 << 53) + 1: f64(2.0**53) + 1})
    check("cvt.rm.f64.s64", "f64", "s64", {(1 << 53) + 1: f64(2.0**53)})
    check("cvt.rn.f16.s32", "f16", "s32", {65519: 0x7BFF, 65520: 0x7C00, 2049: 0x6800, 2051: 0x6802})
    check("cvt.rn.bf16.s64", "bf16", "s64", {(0x8080 << 47) + 1: 0x5E81, 0x8080 << 47: 0x5E80})
    check("cvt.rn.sat.f32.s32", "f32", "s32", {5: ONE, 0xFFFFFFFF: 0})


def test_cvt_narrows_floats():
    check(
        "cvt.rn.f16.f32",
        "f16",
        "f32",
        {f32(65520): 0x7C00, f32(65519): 0x7BFF, f32(2.0**-25): 0, SNAN: 0x7FFF},
    )
    check("cvt.rp.f16.f32", "f16", "f32", {f32(2.0**-25): 1, TINY: 1})
    check("cvt.rz.bf16.f32", "bf16", "f32", {0x3F80FFFF: 0x3F80, LARGEST: 0x7F7F})
    check("cvt.rn.bf16.f32", "bf16", "f32", {0x3F808000: 0x3F80, 0x3F818000: 0x3F82, LARGEST: 0x7F80})
    check("cvt.rn.relu.f16.f32", "f16", "f32", {MINUS_ONE: 0, MINUS_ZERO: 0, ONE: 0x3C00, MINUS_NAN: 0x7FFF})
    check("cvt.rn.satfinite.bf16.f32", "bf16", "f32", {MINUS_INF: 0xFF7F, NAN: 0x7FFF})
    check("cvt.rn.f32.f64", "f32", "f64", {f64(1 + 2.0**-24): ONE, f64(1e300): INF})
    check("cvt.rn.f16.f64", "f16", "f64", {f64(1 + 2.0**-11 + 2.0**-40): 0x3C01})
    check("cvt.rn.f16.bf16", "f16", "bf16", {0x4780: 0x7C00, 0x3F81: 0x3C08})


def test_cvt_widens_floats():
    check("cvt.f32.f16", "f32", "f16", {0x0001: f32(2.0**-24), 0x7C01: CANONICAL})
    check("cvt.f32.bf16", "f32", "bf16", {0x0001: 0x00010000, 0x7F81: 0x7F810000})
    check("cvt.ftz.f32.bf16", "f32", "bf16", {0x0001: 0, 0x7F81: CANONICAL})
    check("cvt.f64.f32", "f64", "f32", {TINY: f64(2.0**-149), 0xFF800001: 0xFFF8000020000000})
    check("cvt.ftz.f64.f32", "f64", "f32", {TINY: 0, SNAN: 0x7FFFFFFFE0000000})
    check("cvt.f64.bf16", "f64", "bf16", {0xBF80: f64(-1)})


def test_cvt_to_the_same_type_saturates_and_flushes():
    check("cvt.sat.f32.f32", "f32", "f32", {f32(1.5): ONE, MINUS_ONE: 0, NAN: 0, HALF: HALF})
    check("cvt.f32.f32", "f32", "f32", {SNAN: SNAN, TINY: TINY})
    check("cvt.ftz.f32.f32", "f32", "f32", {SNAN: CANONICAL, 0x80000001: MINUS_ZERO})
    check("cvt.rmi.bf16.bf16", "bf16", "bf16", {0xBF00: 0xBF80, 0x3F00: 0})


def test_packed_cvt_puts_the_first_operand_in_the_upper_half():
    check("cvt.rn.f16x2.f32", "f16x2", "f32 f32", {(ONE, f32(2)): 0x3C00_4000})
    check("cvt.rn.relu.bf16x2.f32", "bf16x2", "f32 f32", {(MINUS_ONE, ONE): 0x0000_3F80})
    check("cvt.rz.satfinite.f16x2.f32", "f16x2", "f32 f32", {(INF, MINUS_INF): 0x7BFF_FBFF})
    check(
        "cvt.rn.satfinite.e4m3x2.f32", "e4m3x2", "f32 f32", {(f32(1000), NAN): 0x7E7F, (ONE, f32(-2)): 0x38C0}
    )
    check("cvt.rn.satfinite.e5m2x2.f32", "e5m2x2", "f32 f32", {(INF, f32(1.125)): 0x7B3C})
    check("cvt.rn.satfinite.relu.e4m3x2.f16x2", "e4m3x2", "f16x2", {0xBC00_4000: 0x0040})
    check("cvt.rn.f16x2.e4m3x2", "f16x2", "e4m3x2", {0x7E01: 0x5F00_1800, 0xFF80: 0x7FFF_8000})
    check("cvt.rn.relu.f16x2.e5m2x2", "f16x2", "e5m2x2", {0xFC7C: 0x0000_7C00})


def test_cvt_to_tf32_rounds_as_an_h200():
    check("cvt.rna.tf32.f32", "tf32", "f32", {0x3F801000: 0x3F802000, 0x3F800FFF: ONE, LARGEST: INF})
    check("cvt.rn.tf32.f32", "tf32", "f32", {0x3F801000: ONE, 0x3F803000: 0x3F804000, NAN: 0x7FFFE000})
    check("cvt.rz.relu.tf32.f32", "tf32", "f32", {0x3F801FFF: ONE, MINUS_ONE: 0})
    # On silicon, unlike the ISA, a NaN is truncated, which can give an infinity, or decremented.
    check("cvt.rna.tf32.f32", "tf32", "f32", {SNAN: INF, CANONICAL: 0x7FFFE000})
    check("cvt.rna.satfinite.tf32.f32", "tf32", "f32", {INF: 0x7F7FE000, NAN: 0x7FBFE000})


def test_cvt_into_a_wider_register_extends_by_sign_or_zero():
    check("cvt.rzi.s8.f32", "s8", "f32", {MINUS_ONE: 0xFFFFFFFF}, wide="b32")
    check("cvt.rzi.u16.f32", "u16", "f32", {f32(65535): 65535}, wide="b64")
    check("cvt.rn.f16.f32", "f16", "f32", {MINUS_ONE: 0xBC00}, wide="b32")
    check("cvt.rn.f32.f64", "f32", "f64", {f64(-1): MINUS_ONE}, wide="b64")


# ---------------------------------------------------------------------------------------- approximate


@pytest.mark.parametrize(
    ("opcode", "examples"),
    [
        ("rcp.approx.f32", {MINUS_ZERO: MINUS_INF, INF: 0, f32(4): f32(0.25), f32(-(2.0**127)): 0x80400000}),
        ("rcp.approx.ftz.f32", {0x80000001: MINUS_INF, f32(2.0**127): 0}),
        ("sqrt.approx.f32", {f32(9): f32(3), MINUS_ZERO: MINUS_ZERO, MINUS_ONE: CANONICAL}),
        ("rsqrt.approx.f32", {f32(4): HALF, MINUS_ZERO: MINUS_INF, INF: 0, MINUS_ONE: CANONICAL}),
        ("sin.approx.f32", {MINUS_ZERO: MINUS_ZERO, INF: CANONICAL}),
        ("cos.approx.f32", {0: ONE, MINUS_INF: CANONICAL}),
        ("lg2.approx.f32", {f32(8): f32(3), 0: MINUS_INF, INF: INF, MINUS_ONE: CANONICAL}),
        ("lg2.approx.ftz.f32", {TINY: MINUS_INF}),
        ("ex2.approx.f32", {f32(-1): HALF, MINUS_INF: 0, INF: INF, f32(-140): 1 << 9, SNAN: CANONICAL}),
        ("ex2.approx.ftz.f32", {f32(-140): 0, TINY: ONE}),
        ("tanh.approx.f32", {INF: ONE, MINUS_ZERO: MINUS_ZERO}),
    ],
)
def test_approximations_handle_special_values(opcode, examples):
    check(opcode, "f32", "f32", examples)


def test_approximate_division_handles_special_and_huge_operands():
    huge = f32(2.0**127)
    examples = {(ONE, f32(4)): f32(0.25), (MINUS_ONE, 0): MINUS_INF, (0, 0): CANONICAL, (INF, INF): CANONICAL}
    check("div.full.f32", "f32", "f32 f32", examples | {(huge, huge): ONE})
    check("div.approx.f32", "f32", "f32 f32", examples | {(huge, huge): 0, (INF, huge): CANONICAL})
    check("div.approx.ftz.f32", "f32", "f32 f32", {(TINY, f32(0.25)): 0})


def test_f64_approximations_read_the_upper_32_bits():
    infinity = 0x7FF0 << 48
    check(
        "rcp.approx.ftz.f64",
        "f64",
        "f64",
        {
            f64(2): f64(0.5),
            f64(3): 0x3FD55555 << 32,
            1: infinity,
            infinity | 1: 0,
            DEFAULT64: 0x7FFFFFFF << 32,
        },
    )
    check(
        "rsqrt.approx.ftz.f64",
        "f64",
        "f64",
        {f64(4): f64(0.5), f64(-1): 0x7FFFFFFF << 32, SIGN64: SIGN64 | infinity},
    )
    check("rsqrt.approx.f64", "f64", "f64", {f64(0.25): f64(2), f64(-1): DEFAULT64})


def test_approximations_of_f16_and_bf16_equal_an_h200():
    check("ex2.approx.f16", "f16", "f16", {0x3C00: 0x4000, 0xFC00: 0, 0x7C01: 0x7FFF})
    check("ex2.approx.f16x2", "f16x2", "f16x2", {0x4000_BC00: 0x4400_3800})
    check("ex2.approx.ftz.bf16", "bf16", "bf16", {0xC2FC: 0x0080, 0xC2FE: 0, 0xC300: 0, 0x0001: 0x3F80})
    check("tanh.approx.f16x2", "f16x2", "f16x2", {0x7C00_8000: 0x3C00_8000})
    check("tanh.approx.bf16", "bf16", "bf16", {0xFF80: 0xBF80, 0: 0})
