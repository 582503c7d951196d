"""Worked examples of integer, carry, bit, video and warp instructions, with extreme operands."""

import random
import struct

import numpy as np
import pytest

import simwarp
from simwarp.faults import MemberMaskFault, UninitialisedRegister
from simwarp.ptx.instructions import ROWS, TABLE

ONES = 0xFFFFFFFF
WORDS = {"b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "pred": np.uint32}
SCRATCH = ".reg .pred %q<9>; .reg .b16 %h<9>; .reg .b32 %i, %word, %r<9>; .reg .b64 %at, %to;"


def execute(body, outputs, inputs=None, lanes=32):
    """The words that PTX lines leave in registers: {name: list with one word per lane}.

    ``inputs`` are {name: (type, words)}, ``outputs`` {name: type}; a predicate is 0 or 1.
    """
    inputs = inputs or {}
    lines, arguments, device = [], [], simwarp.Device(checks={"division": "off"})
    for k, (name, (kind, words)) in enumerate(inputs.items()):
        lanes = len(words)
        host = np.array(words, WORDS[kind])
        arguments.append(device.upload(host))
        lines += [f".reg .{kind} {name};", *_locate(k, host.itemsize)]
        if kind == "pred":
            lines += ["ld.global.b32 %word, [%to];", f"setp.ne.u32 {name}, %word, 0;"]
        else:
            lines.append(f"ld.global.{kind} {name}, [%to];")
    lines += [f".reg .{kind} {name};" for name, kind in outputs.items()]
    lines.append(body)
    results = {}
    for k, (name, kind) in enumerate(outputs.items(), len(inputs)):
        results[name] = device.upload(np.zeros(lanes, WORDS[kind]))
        arguments.append(results[name])
        lines += _locate(k, results[name].nbytes // lanes)
        if kind == "pred":
            lines.append(f"selp.b32 %word, 1, 0, {name};")
        lines.append(f"st.global.{kind} [%to], {name};" if kind != "pred" else "st.global.b32 [%to], %word;")
    parameters = ", ".join(f".param .u64 p{k}" for k in range(len(arguments)))
    head = f".version 8.6 .target sm_90a .address_size 64 .visible .entry k({parameters}) {{"
    text = "\n".join([head, SCRATCH, "mov.u32 %i, %tid.x;", *lines, "ret; }"])
    device.load(text).kernel("k")((1, 1, 1), (lanes, 1, 1), *arguments)
    return {name: array.download().tolist() for name, array in results.items()}


def _locate(parameter, size):
    return [
        f"ld.param.u64 %at, [p{parameter}];",
        f"mul.wide.u32 %to, %i, {size};",
        "add.u64 %to, %to, %at;",
    ]


def answers(opcode, kinds, cases):
    """The result of one instruction for each case; ``kinds`` are the types of d and of the sources."""
    kind, *sources = kinds.split()
    columns = {f"%s{k}": (t, [case[k] for case in cases]) for k, t in enumerate(sources)}
    return execute(f"{opcode} %d, {', '.join(columns)};", {"%d": kind}, columns)["%d"]


def word(number, bits=32):
    """The two's complement bit pattern of a number."""
    return number & ((1 << bits) - 1)


# ---------------------------------------------------------------------------------------- carry chains


def cut(number, bits, count):
    return [number >> bits * k & ((1 << bits) - 1) for k in range(count)]


def joined(results, names, bits):
    """The numbers composed of the words in these registers, lowest first."""
    columns = [results[name] for name in names]
    return [sum(part << bits * k for k, part in enumerate(parts)) for parts in zip(*columns, strict=True)]


def long_numbers(bits, seed):
    """Pairs of numbers with carries or borrows through every word, and random ones."""
    rng, top = random.Random(seed), (1 << bits) - 1
    often = [
        (top, 1),
        (1, top),
        (top, top),
        (0, 1),
        (0, top),
        (1 << bits - 1, 1),
        (0, 0),
        (top // 3, top // 3 * 2),
    ]
    return often + [(rng.getrandbits(bits), rng.getrandbits(bits)) for _ in range(24)]


def long_inputs(pairs, bits, count):
    registers = {}
    for which, name in enumerate("ab"):
        words = [cut(pair[which], bits, count) for pair in pairs]
        registers |= {f"%{name}{k}": (f"b{bits}", [w[k] for w in words]) for k in range(count)}
    return registers


@pytest.mark.parametrize("total", [128, 256])
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("operation", ["add", "sub"])
def test_carry_chains_add_and_subtract_long_integers(operation, kind, total):
    bits = int(kind[1:])
    count, pairs = total // bits, long_numbers(total, operation)
    opcodes = [f"{operation}.cc", *[f"{operation}c.cc"] * (count - 2), f"{operation}c"]
    body = " ".join(f"{op}.{kind} %d{k}, %a{k}, %b{k};" for k, op in enumerate(opcodes))
    names = [f"%d{k}" for k in range(count)]
    results = execute(body, dict.fromkeys(names, f"b{bits}"), long_inputs(pairs, bits, count))
    sign = 1 if operation == "add" else -1
    assert joined(results, names, bits) == [word(a + sign * b, total) for a, b in pairs]


@pytest.mark.parametrize("bits", [32, 64])
def test_carry_chains_multiply_long_integers(bits):
    """128 x 128 bits: per word of a, a row of low halves and a row of high halves is added."""
    count, pairs = 128 // bits, long_numbers(128, "mul")
    lines = [f"mov.b{bits} %d{k}, 0;" for k in range(2 * count)]
    for i in range(count):
        for half, shift in (("lo", 0), ("hi", 1)):
            for j in range(count):
                base, cc = "mad" if j == 0 else "madc", "" if half == "hi" and j == count - 1 else ".cc"
                d = f"%d{i + j + shift}"
                lines.append(f"{base}.{half}{cc}.u{bits} {d}, %a{i}, %b{j}, {d};")
            if half == "lo":
                lines.append(f"addc.u{bits} %d{i + count}, %d{i + count}, 0;")
    names = [f"%d{k}" for k in range(2 * count)]
    results = execute("\n".join(lines), dict.fromkeys(names, f"b{bits}"), long_inputs(pairs, bits, count))
    assert joined(results, names, bits) == [a * b for a, b in pairs]


def test_the_isa_example_of_madc_gives_the_product():
    """PTX ISA 9.7.2.6: [r3, r2, r1, r0] = [r5, r4] * [r7, r6]."""
    body = """mul.lo.u32 %d0, %a0, %b0; mul.hi.u32 %d1, %a0, %b0;
    mad.lo.cc.u32 %d1, %a1, %b0, %d1; madc.hi.u32 %d2, %a1, %b0, 0;
    mad.lo.cc.u32 %d1, %a0, %b1, %d1; madc.hi.cc.u32 %d2, %a0, %b1, %d2; addc.u32 %d3, 0, 0;
    mad.lo.cc.u32 %d2, %a1, %b1, %d2; madc.hi.u32 %d3, %a1, %b1, %d3;"""
    names, pairs = [f"%d{k}" for k in range(4)], long_numbers(64, "example")
    results = execute(body, dict.fromkeys(names, "b32"), long_inputs(pairs, 32, 2))
    assert joined(results, names, 32) == [a * b for a, b in pairs]


def test_mad_hi_cc_adds_a_signed_high_half_as_a_word():
    inputs = {"%a": ("b32", [word(-1), word(-1), 5]), "%c": ("b32", [0, 1, 7])}
    body = "mad.hi.cc.s32 %d, %a, 1, %c; addc.u32 %e, 0, 0;"
    results = execute(body, {"%d": "b32", "%e": "b32"}, inputs)
    assert results == {"%d": [ONES, 0, 7], "%e": [0, 1, 0]}


def test_addc_carries_out_of_either_addition():
    inputs = {"%a": ("b32", [ONES, ONES, ONES, 0]), "%b": ("b32", [ONES, 0, 1, 0])}
    body = "add.cc.u32 %d, -1, 1; addc.cc.u32 %d, %a, %b; addc.u32 %e, 0, 0;"
    assert execute(body, {"%d": "b32", "%e": "b32"}, inputs) == {"%d": [ONES, 0, 1, 1], "%e": [1, 1, 1, 0]}


def test_a_borrow_is_an_inverted_carry_as_on_an_h200():
    """The borrow of the PTX ISA would be 1 where this carry is 0."""
    inputs = {"%a": ("b32", [5, 3, 4]), "%b": ("b32", [3, 5, 4])}
    body = "sub.cc.u32 %d, %a, %b; addc.u32 %d, 0, 0; add.cc.u32 %e, %a, -4; subc.u32 %e, 100, 10;"
    assert execute(body, {"%d": "b32", "%e": "b32"}, inputs) == {"%d": [1, 0, 1], "%e": [90, 89, 90]}


def test_a_predicated_instruction_keeps_the_carry_of_inactive_lanes():
    body = """add.cc.u32 %d, -1, 1; and.b32 %r1, %i, 1; setp.eq.u32 %q1, %r1, 0;
    @%q1 add.cc.u32 %d, 1, 1; addc.u32 %d, 0, 0;"""
    assert execute(body, {"%d": "b32"})["%d"] == [0, 1] * 16


def test_an_uninitialised_carry_is_a_fault():
    with pytest.raises(UninitialisedRegister, match="carry"):
        execute("addc.u32 %d, 1, 2;", {"%d": "b32"})


# ----------------------------------------------------------------------------------------- arithmetic

HIGHEST, LOWEST = 0x7FFFFFFF, 0x80000000


@pytest.mark.parametrize(
    ("opcode", "cases"),
    {
        "add.sat.s32": [
            (HIGHEST, 1, HIGHEST),
            (LOWEST, word(-1), LOWEST),
            (LOWEST, HIGHEST, word(-1)),
            (HIGHEST, word(-1), HIGHEST - 1),
        ],
        "sub.sat.s32": [
            (LOWEST, 1, LOWEST),
            (HIGHEST, word(-1), HIGHEST),
            (0, LOWEST, HIGHEST),
            (5, 7, word(-2)),
        ],
        "mad.hi.sat.s32": [
            (HIGHEST, 4, HIGHEST, HIGHEST),
            (LOWEST, 4, LOWEST, LOWEST),
            (LOWEST, 4, 5, 3),
            (word(-1), 1, 0, word(-1)),
        ],
        "mad24.hi.sat.s32": [
            (0x7FFFFF, 0x7FFFFF, HIGHEST, HIGHEST),
            (0x800000, 0x7FFFFF, LOWEST, LOWEST),
            (0x10000, 1, 4, 5),
        ],
        "mul24.lo.u32": [(0xFF000003, 0xFF000005, 15), (0xFFFFFF, 0xFFFFFF, 0xFE000001)],
        "mul24.hi.u32": [(0xFFFFFF, 0xFFFFFF, 0xFFFFFE00), (0xFF010000, 1, 1)],
        "mul24.lo.s32": [(0xFFFFFF, 5, word(-5)), (0x7FFFFF, 2, 0xFFFFFE), (0x01FFFFFF, 5, word(-5))],
        "mul24.hi.s32": [(0xFFFFFF, 1, ONES), (0x800000, 0x800000, 0x40000000)],
        "mad24.lo.u32": [(0xFFFFFF, 0xFFFFFF, 0x02000000, 1)],
        "mad24.hi.s32": [(0x800000, 0x800000, HIGHEST, 0xBFFFFFFF)],
        "sad.u32": [(3, 10, 100, 107), (0, ONES, 2, 1)],
        "sad.s32": [(word(-3), 10, 100, 113), (LOWEST, HIGHEST, 0, ONES)],
        "div.s32": [(word(-7), 2, word(-3)), (LOWEST, word(-1), LOWEST), (5, 0, ONES)],
        "rem.s32": [(word(-7), 2, word(-1)), (LOWEST, word(-1), 0), (5, 0, ONES)],
        "rem.u32": [(ONES, 10, 5), (5, 0, ONES)],
        "min.relu.s32": [(word(-3), 5, 0), (3, 5, 3), (LOWEST, HIGHEST, 0)],
        "min.s32.relu": [(word(-3), 5, 0), (3, 5, 3)],
        "max.relu.s32": [(word(-3), word(-5), 0), (3, word(-5), 3)],
        "max.s32.relu": [(word(-3), word(-5), 0), (3, word(-5), 3)],
        "add.u16x2": [(0xFFFF0001, 0x00010001, 0x00000002)],
        "add.s16x2": [(0x7FFF8000, 0x0001FFFF, 0x80007FFF)],
        "min.u16x2": [(0xFFFF0001, 0x00010002, 0x00010001)],
        "min.s16x2": [(0xFFFF0001, 0x00010002, 0xFFFF0001)],
        "max.u16x2": [(0xFFFF0001, 0x00010002, 0xFFFF0002)],
        "max.s16x2": [(0xFFFF8001, 0x00018002, 0x00018002)],
        "min.relu.s16x2": [(0xFFFF0005, 0x00010002, 0x00000002)],
        "min.s16x2.relu": [(0xFFFF0005, 0x00010002, 0x00000002)],
        "max.relu.s16x2": [(0xFFFF8001, 0x80008002, 0x00000000), (0x00058001, 0x80000007, 0x00050007)],
        "max.s16x2.relu": [(0xFFFF8001, 0x80008002, 0x00000000)],
        "cnot.b32": [(0, 1), (1, 0), (LOWEST, 0)],
    }.items(),
)
def test_b32_instructions_equal_worked_examples(opcode, cases):
    kinds = " ".join(["b32"] * len(cases[0]))
    assert answers(opcode, kinds, [case[:-1] for case in cases]) == [case[-1] for case in cases]


@pytest.mark.parametrize(
    ("opcode", "kinds", "cases"),
    [
        ("mul.hi.u16", "b16 b16 b16", [(0xFFFF, 0xFFFF, 0xFFFE)]),
        ("mul.hi.s16", "b16 b16 b16", [(0x8000, 0x8000, 0x4000), (0xFFFF, 1, 0xFFFF)]),
        ("mad.lo.s16", "b16 b16 b16 b16", [(0xFFFF, 2, 1, 0xFFFF)]),
        ("sad.s16", "b16 b16 b16 b16", [(0x8000, 0x7FFF, 1, 0)]),
        ("sad.u64", "b64 b64 b64 b64", [(0, 2**64 - 1, 2, 1)]),
        ("mad.lo.s64", "b64 b64 b64 b64", [(2**63 + 3, 2, 1, 7)]),
        ("mul.hi.s64", "b64 b64 b64", [(2**64 - 1, 5, 2**64 - 1), (2**63, 2**63, 2**62)]),
        ("cnot.b16", "b16 b16", [(0, 1), (0x8000, 0)]),
        ("cnot.b64", "b64 b64", [(0, 1), (1 << 32, 0)]),
        ("bfe.u64", "b64 b64 b32 b32", [(ONES << 8, 8, 16, 0xFFFF), (ONES, 256, 8, 0), (ONES, 0, 256, ONES)]),
        ("bfe.u32", "b32 b32 b32 b32", [(0xAB, 256, 8, 0xAB), (0xAB, 0, 256, 0)]),
        ("bfi.b64", "b64 b64 b64 b32 b32", [(7, 0, 4, 2, 0x30), (7, 9, 256, 2, 9), (7, 9, 0, 256, 7)]),
        ("rem.u64", "b64 b64 b64", [(2**64 - 1, 10, 5), (3, 0, 2**64 - 1)]),
        ("rem.s16", "b16 b16 b16", [(0x8000, 3, 0xFFFE), (3, 0, 0xFFFF)]),
    ],
)
def test_instructions_of_other_widths_equal_worked_examples(opcode, kinds, cases):
    assert answers(opcode, kinds, [case[:-1] for case in cases]) == [case[-1] for case in cases]


A, B = b"\x01\x7f\x80\xff", b"\xff\x80\x7f\x02"


@pytest.mark.parametrize("kind_a", ["u32", "s32"])
@pytest.mark.parametrize("kind_b", ["u32", "s32"])
def test_dp4a_and_dp2a_read_each_operand_by_its_type(kind_a, kind_b):
    cases = [(A, B, 0), (B, A, 1), (b"\x80" * 4, b"\x80" * 4, ONES), (b"\xff" * 4, b"\xff" * 4, LOWEST)]
    code_a, code_b = ("b" if kind[0] == "s" else "B" for kind in (kind_a, kind_b))
    words = [(*struct.unpack("<2I", a + b), c) for a, b, c in cases]

    def dots(halves, start=0):
        for a, b, c in cases:
            x = struct.unpack(
                "<" + (code_a.replace("b", "h").replace("B", "H") * 2 if halves else code_a * 4), a
            )
            y = struct.unpack(f"<4{code_b}", b)[start:]
            yield word(c + sum(p * q for p, q in zip(x, y, strict=False)))

    kinds = "b32 b32 b32 b32"
    assert answers(f"dp4a.{kind_a}.{kind_b}", kinds, words) == list(dots(halves=False))
    assert answers(f"dp2a.lo.{kind_a}.{kind_b}", kinds, words) == list(dots(halves=True))
    assert answers(f"dp2a.hi.{kind_a}.{kind_b}", kinds, words) == list(dots(halves=True, start=2))


def test_dp4a_equals_a_hand_computed_dot_product():
    a, b = struct.unpack("<2I", bytes([1, 2, 3, 255]) + bytes([10, 20, 30, 2]))
    assert answers("dp4a.u32.u32", "b32 b32 b32 b32", [(a, b, 1)]) == [10 + 40 + 90 + 510 + 1]
    assert answers("dp4a.s32.u32", "b32 b32 b32 b32", [(a, b, 1)]) == [10 + 40 + 90 - 2 + 1]


# ----------------------------------------------------------------------------------------------- bits


@pytest.mark.parametrize(
    ("mask", "base", "offset", "position"),
    [
        (0xAAAAAAAA, 3, 1, 3),
        (0xAAAAAAAA, 3, -1, 3),
        (0xAAAAAAAA, 2, 1, 3),
        (0xAAAAAAAA, 2, -1, 1),
        (0xAAAAAAAA, 3, 0, 3),
        (0xAAAAAAAA, 2, 0, ONES),
        (0xAAAAAAAA, 1, 16, 31),
        (0xAAAAAAAA, 1, 17, ONES),
        (0xAAAAAAAA, 31, -16, 1),
        (0xAAAAAAAA, 31, -17, ONES),
        (ONES, 0, 32, 31),
        (ONES, 31, -32, 0),
        (ONES, 0, 33, ONES),
        (ONES, 0, HIGHEST, ONES),
        (0, 0, 1, ONES),
        (1 << 31, 0, 1, 31),
        (1, 31, -1, 0),
        (1, 0, -1, 0),
    ],
)
def test_fns_finds_the_nth_set_bit(mask, base, offset, position):
    assert answers("fns.b32", "b32 b32 b32 b32", [(mask, base, word(offset))]) == [position]


@pytest.mark.parametrize(
    ("opcode", "cases"),
    {
        "bmsk.clamp.b32": [
            (0, 0, 0),
            (1, 2, 6),
            (0, 32, ONES),
            (4, 28, 0xFFFFFFF0),
            (4, ONES, 0xFFFFFFF0),
            (31, 1, LOWEST),
            (31, 9, LOWEST),
            (32, 1, 0),
            (ONES, ONES, 0),
        ],
        "bmsk.wrap.b32": [(1, 2, 6), (0, 32, 0), (33, 34, 6), (31, 31, LOWEST), (ONES, ONES, LOWEST)],
        "szext.clamp.u32": [
            (ONES, 0, 0),
            (ONES, 8, 255),
            (ONES, 31, HIGHEST),
            (ONES, 32, ONES),
            (9, ONES, 9),
        ],
        "szext.clamp.s32": [
            (0x80, 8, word(-128)),
            (0x7F, 8, 127),
            (1, 1, ONES),
            (LOWEST, 32, LOWEST),
            (ONES, 0, 0),
        ],
        "szext.wrap.u32": [(ONES, 0, 0), (ONES, 32, 0), (ONES, 40, 255)],
        "szext.wrap.s32": [(0x80, 8, word(-128)), (0x80, 40, word(-128)), (ONES, 64, 0)],
    }.items(),
)
def test_bmsk_and_szext_clamp_or_wrap_at_the_ends(opcode, cases):
    assert answers(opcode, "b32 b32 b32", [case[:2] for case in cases]) == [case[2] for case in cases]


@pytest.mark.parametrize(
    ("opcode", "q", "expected"),
    [
        ("lop3.or.b32", "%q", [0, 1, 1, 1]),
        ("lop3.and.b32", "%q", [0, 0, 0, 1]),
        ("lop3.or.b32", "!%q", [1, 0, 1, 1]),
    ],
)
def test_lop3_combines_its_result_with_a_predicate(opcode, q, expected):
    """Table 0x80 is a & b & c; d is 0, 0, 4, 4."""
    inputs = {"%a": ("b32", [3, 3, 6, 6]), "%q": ("pred", [0, 1, 0, 1])}
    body = f"{opcode} %d|%p, %a, 12, 5, 0x80, {q}; {opcode} _|%e, %a, 12, 5, 0x80, {q};"
    results = execute(body, {"%d": "b32", "%p": "pred", "%e": "pred"}, inputs)
    assert results == {"%d": [0, 0, 4, 4], "%p": expected, "%e": expected}


# ---------------------------------------------------------------------------------------------- video


@pytest.mark.parametrize(
    ("opcode", "cases"),
    {
        "vadd4.u32.u32.u32": [(0xFF01FF01, 0x01010101, 9, 0x00020002)],
        "vadd4.u32.u32.u32.sat": [(0xFF01FF01, 0x01010101, 9, 0xFF02FF02)],
        "vadd4.s32.s32.s32.sat": [(0x7F80FF01, 0x01FF0101, 9, 0x7F800002)],
        "vadd2.s32.s32.u32.sat": [(0x7FFF8000, 0x00010001, 9, 0x7FFF8001)],
        "vsub2.u32.u32.u32.sat": [(0x00050003, 0x00030005, 9, 0x00020000)],
        "vsub4.s32.u32.u32": [(0x05030000, 0x03050000, 9, 0x02FE0000)],
        "vavrg2.s32.s32.s32": [(0x0001FFFF, 0x0002FFFE, 9, 0x0002FFFE)],
        "vavrg4.u32.u32.u32": [(0xFF00FF01, 0xFF01FE01, 9, 0xFF01FF01)],
        "vabsdiff4.u32.u32.u32": [(0x0A000AFF, 0x000A0500, 9, 0x0A0A05FF)],
        "vabsdiff4.u32.u32.u32.add": [(0x0A000AFF, 0x000A0500, 9, 9 + 10 + 10 + 5 + 255)],
        "vabsdiff2.u32.u32.u32.add": [(0x00010000, 0xFFFFFFFF, 2, 2 + 0xFFFE + 0xFFFF)],
        "vabsdiff4.u32.s32.s32": [(0x80000000, 0x7F000000, 9, 0xFF000000)],
        "vmin2.u32.s32.u32.add": [(0xFFFF0005, 0x00030003, 10, 12)],
        "vmax4.s32.s32.s32": [(0x80FF0102, 0x00000203, 9, 0x00000203)],
        "vset4.u32.u32.lt": [(0x01020304, 0x02020205, 9, 0x01000001)],
        "vset2.s32.u32.lt.add": [(0xFFFF0007, 0x00000007, 100, 101)],
    }.items(),
)
def test_video_instructions_equal_worked_examples(opcode, cases):
    assert answers(opcode, "b32 b32 b32 b32", [case[:3] for case in cases]) == [case[3] for case in cases]


# ----------------------------------------------------------------------------------------------- warp


@pytest.mark.parametrize("spelling", ["vote.sync.{}.pred", "vote.{}.sync.pred"])
def test_vote_accepts_both_spellings(spelling):
    lines = [f"{spelling.format(mode)} %{mode}, %q1, -1;" for mode in ("all", "any", "uni")]
    body = "setp.lt.u32 %q1, %i, {};" + " ".join(lines)
    outputs = dict.fromkeys(["%all", "%any", "%uni"], "pred")
    for count, expected in ((0, [0, 0, 1]), (7, [0, 1, 0]), (32, [1, 1, 1])):
        results = execute(body.format(count), outputs)
        assert [results[name] for name in outputs] == [[bit] * 32 for bit in expected]


@pytest.mark.parametrize("opcode", ["vote.sync.ballot.b32", "vote.ballot.sync.b32"])
def test_ballot_accepts_both_spellings(opcode):
    body = f"setp.lt.u32 %q1, %i, 4; {opcode} %d, %q1, -1; {opcode} %e, !%q1, -1;"
    assert execute(body, {"%d": "b32", "%e": "b32"}) == {"%d": [0xF] * 32, "%e": [0xFFFFFFF0] * 32}


def test_elect_names_one_member():
    body = """and.b32 %r1, %i, 3; setp.eq.u32 %q1, %r1, 3; mov.b32 %d, 99; setp.ne.u32 %p, 0, 0;
    @%q1 elect.sync %d|%p, 0x88888888; elect.sync _|%e, -1;"""
    results = execute(body, {"%d": "b32", "%p": "pred", "%e": "pred"})
    assert results["%d"] == [3 if lane % 4 == 3 else 99 for lane in range(32)]
    assert results["%p"] == [int(lane == 3) for lane in range(32)]
    assert results["%e"] == [1] + [0] * 31


def test_elect_skips_exited_lanes():
    body = "setp.lt.u32 %q1, %i, 5; @%q1 exit; elect.sync %d|%p, -1;"
    results = execute(body, {"%d": "b32", "%p": "pred"})
    assert results["%d"] == [0] * 5 + [5] * 27
    assert results["%p"] == [int(lane == 5) for lane in range(32)]


def test_elect_outside_its_mask_is_a_fault():
    with pytest.raises(MemberMaskFault):
        execute("elect.sync %d|%p, 0xFFFE;", {"%d": "b32", "%p": "pred"})


# ------------------------------------------------------------------------------------------- movement


def test_mov_copies_every_type():
    body = """mov.u16 %a, 65535; mov.b16 %b, %a; mov.s32 %c, -2; mov.f32 %d, 0f3F800000; mov.pred %p, -1;
    mov.u16 %w, %tid.x; mov.u32 %x, WARP_SZ; cvt.u64.u32 %y, %laneid; mov.f64 %z, 0d3FF0000000000000;"""
    outputs = {"%a": "b16", "%b": "b16", "%c": "b32", "%d": "b32", "%p": "pred"}
    outputs |= {"%w": "b16", "%x": "b32", "%y": "b64", "%z": "b64"}
    expected = [65535, 65535, word(-2), 0x3F800000, 1, 3, 32, 3, 0x3FF0000000000000]
    assert [words[3] for words in execute(body, outputs).values()] == expected


def test_mov_packs_and_unpacks_vectors():
    body = """.reg .b8 %low, %high; mov.b64 {%r1, %r2}, %a; mov.b32 {%h1, _}, %r1; mov.b16 {%low, %high}, %h1;
    mov.b64 {_, %d}, %a; mov.b64 %e, {%r2, %r1}; mov.b32 %f, {%h1, %h1}; mov.b64 %g, {%h1, %h1, %h1, %h1};
    mov.b16 %s, {%high, %low}; mov.b32 %t, {%low, %low, %high, %high};"""
    outputs = {"%d": "b32", "%e": "b64", "%f": "b32", "%g": "b64", "%s": "b16", "%t": "b32"}
    results = execute(body, outputs, {"%a": ("b64", [0x1122334455667788])})
    assert [words[0] for words in results.values()] == [
        0x11223344,
        0x5566778811223344,
        0x77887788,
        0x7788778877887788,
        0x8877,
        0x77778888,
    ]


# ------------------------------------------------------------------------------------------ spellings

EMITTED = """
add.u32 add.u64 add.s16 sub.u32 mul.hi.u16 mul.hi.u64 mul.wide.s16 mad.lo.s64 mad.lo.s16 mad.wide.u32
div.u16 rem.s16 abs.s32 neg.s16 min.s16 max.u16 popc.b64 clz.b64 bfind.u32 bfind.shiftamt.u32 brev.b64
bfe.u32 bfe.s32 bfi.b64 shr.b32 shr.b64 shr.s16 shl.b16 not.b16 xor.b16 lop3.b32 shf.l.wrap.b32
shf.r.wrap.b32 prmt.b32 mov.u16 mov.s32 mov.b16 mov.b64 mov.f64 mov.pred add.s16x2 add.u16x2 min.s16x2
min.u16x2 max.s16x2 max.u16x2 min.s16x2.relu max.s16x2.relu min.s32.relu max.s32.relu bmsk.clamp.b32
dp4a.s32.s32 dp4a.u32.u32 dp2a.lo.u32.u32 add.cc.u32 addc.cc.u32 addc.u32 sub.cc.u32 subc.cc.u32 subc.u32
mad.lo.cc.u32 madc.lo.cc.u32 madc.hi.cc.u32 madc.hi.u32 vabsdiff4.u32.u32.u32.add vabsdiff4.u32.u32.u32
vabsdiff2.u32.u32.u32.add vote.ballot.sync.b32 vote.sync.ballot.b32 vote.sync.any.pred vote.sync.all.pred
match.any.sync.b32 match.any.sync.b64 redux.sync.add.s32 redux.sync.max.s32 activemask.b32 shfl.sync.idx.b32
elect.sync
"""
REFUSED = """
add.sat.u32 add.cc.u16 add.relu.s16x2 min.relu.u32 min.relu.s16 min.u16x2.relu sub.s16x2 mad.lo.sat.s32
mad24.lo.sat.s32 mad24.hi.sat.u32 mul24.lo.u64 dp4a.b32.b32 bmsk.b32 szext.clamp.b32 fns.u32 cnot.pred
lop3.xor.b32 vadd4.u32.u32.u32.sat.add vset4.u32.u32.lt.sat vadd4.u32 vote.ballot.b32 vote.all.pred
shfl.idx.b32 redux.sync.and.u32 redux.sync.add.b32 match.any.sync.u32 elect.sync.b32 neg.u32 abs.u32 and.u32
shl.u32 bfe.b32 popc.u32
"""


def test_forms_that_compilers_and_headers_write_have_a_row():
    assert [opcode for opcode in EMITTED.split() if TABLE.find(opcode) is None] == []


def test_forms_that_ptx_refuses_have_no_row():
    assert [opcode for opcode in REFUSED.split() if TABLE.find(opcode) is not None] == []


def test_rows_the_isa_leaves_open_are_marked_open():
    names = {
        "div",
        "rem",
        "bfe",
        "bfi",
        "fns.b32",
        "sub.cc",
        "subc",
        "subc.cc",
        "activemask.b32",
        "elect.sync",
    }
    assert all(ROWS[name].fidelity == "open" for name in names)
