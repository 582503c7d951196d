"""Executed rows and forms, and the classes of their operands before the instruction, in active lanes."""

from pathlib import Path

import numpy as np
import pytest

import simwarp
from simwarp.observe.operand_classes import classes
from simwarp.ptx.instructions import ROWS
from simwarp.ptx.rows import DTYPES
from support import observed_loops as loops
from support import small_kernels as small

TESTS = Path(__file__).parents[2]


def observed(body, block=32, grid=1, **options):
    device = simwarp.Device(observe="coverage", **options)
    small.run(body + "mov.u32 %r2, 1; " + small.STORE, block, grid, device=device)
    return device.report.coverage


# ---- classes ---------------------------------------------------------------------------------------


def of(kind, word):
    found = classes(kind)
    bits = DTYPES[kind].itemsize * 8
    return [name for name, test in found.items() if test(np.dtype(f"u{bits // 8}").type(word))]


def float_class(value, info, word):
    """The class of a float, by NumPy's own functions."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "infinity"
    if value == 0:
        return "negative zero" if np.signbit(value) else "zero"
    size = abs(value)
    if size < info.tiny:
        return "subnormal"
    named = {float(info.tiny): "smallest", float(info.max): "largest"}
    if float(size) in named:
        return named[float(size)]
    if size == 1:
        return "one" if value > 0 else "minus one"
    return "positive" if value > 0 else "negative"


def test_classes_of_every_half_equal_numpy():
    words = np.arange(1 << 16, dtype=np.uint16)
    masks = {name: test(words) for name, test in classes("f16").items()}
    assert (np.sum(list(masks.values()), axis=0) == 1).all()
    info = np.finfo(np.float16)
    for word in [*range(0, 1 << 16, 37), 0x0001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C01]:
        expected = float_class(np.uint16(word).view(np.float16), info, word)
        assert masks[expected][word]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_classes_of_floats_equal_numpy(kind):
    dtype, word = DTYPES[kind], np.dtype(f"u{DTYPES[kind].itemsize}")
    info = np.finfo(dtype)
    values = [0.0, -0.0, 1, -1, 2, -3.5, np.inf, -np.inf, np.nan, info.max, info.tiny, -info.tiny, 1e-310]
    for value in np.array([*values, info.smallest_subnormal, -info.max], dtype):
        assert of(kind, value.view(word)) == [float_class(value, info, 0)]


@pytest.mark.parametrize(
    ("kind", "word", "expected"),
    [
        ("bf16", 0x3F80, "one"),
        ("bf16", 0x7F80, "infinity"),
        ("bf16", 0x007F, "subnormal"),
        ("u8", 255, "largest"),
        ("b32", 0xFFFFFFFF, "all ones"),
        ("u32", 0x80000000, "other"),
        ("s32", 0x80000000, "smallest"),
        ("s32", 0x7FFFFFFF, "largest"),
        ("s64", 2**64 - 1, "minus one"),
        ("s64", 2**64 - 2, "negative"),
        ("s16", 2, "positive"),
        ("tf32", 1, "one"),
    ],
)
def test_integers_have_their_class(kind, word, expected):
    assert of(kind, word) == [expected]


@pytest.mark.parametrize("kind", ["u8", "s8", "b8"])
def test_each_byte_has_one_class(kind):
    words = np.arange(256, dtype=np.uint8)
    assert (np.sum([test(words) for test in classes(kind).values()], axis=0) == 1).all()


# ---- rows, forms, operands ---------------------------------------------------------------------------


def test_rows_and_forms_are_counted():
    body = "setp.lt.u32 %p1, %lane, 5; @%p1 add.u32 %r3, %lane, 1; add.s32 %r4, %lane, 1; "
    found = observed(body, block=40)
    assert (found.forms["add.u32"], found.forms["add.s32"]) == (10, 40)
    assert found.forms["add.u64"] == 40  # of the frame
    assert found.rows["add"] == 10 + 40 + 40


def test_operands_are_classified_before_they_are_overwritten():
    found = observed("mov.u32 %r3, 0; sub.s32 %r3, %r3, 1; sub.s32 %r3, %r3, 1; ")
    assert found.operands["sub", "a"] == {"zero", "minus one"}
    assert found.operands["sub", "b"] == {"one"}


def test_only_executing_lanes_count():
    body = "setp.lt.u32 %p1, %i, 2; @%p1 neg.s32 %r3, %i; neg.s64 %rd1, %at; "
    found = observed(body, block=64)
    assert found.operands["neg", "a"] == {"zero", "one", "positive"}
    assert observed("setp.gt.u32 %p1, %i, 99; @%p1 neg.s32 %r3, %i; ").operands.get(("neg", "a")) is None


def test_inactive_lanes_may_hold_uninitialised_operands():
    body = "setp.lt.u32 %p1, %lane, 2; @%p1 mov.u32 %r3, 7; @%p1 add.u32 %r3, %r3, 1; "
    assert observed(body).operands["add", "a"] >= {"other"}


FEW_GO_ON = "rem.u32 %r4, %i, 97; setp.eq.u32 %p2, %r4, 5; mov.u32 %r3, 1; @%p2 mov.u32 %r3, 40; "


def in_parts(body):
    """The coverage of a kernel that runs in several chunks and compact copies."""
    parts = loops.Parts()
    device = simwarp.Device(observe="coverage", observers=[parts], chunk_lanes=5 * 96)
    small.run(FEW_GO_ON + body + "mov.u32 %r2, 1; " + small.STORE, 72, 11, device=device)
    assert parts.parts > 0
    assert len(parts.chunks) == 3
    return device.report.coverage


def test_counts_do_not_depend_on_compact_copies():
    found = in_parts("L: sub.s32 %r3, %r3, 1; setp.gt.s32 %p1, %r3, 0; @%p1 bra L; ")
    assert found.forms["sub.s32"] == sum(40 if i % 97 == 5 else 1 for i in range(72 * 11))
    assert found.operands["sub", "a"] == {"one", "positive"}
    assert found.operands["setp (signed)", "a"] == {"zero", "one", "positive"}


def test_operand_classes_do_not_depend_on_compact_copies():
    loop = (
        "mov.u32 %r5, 7; L: sub.s32 %r3, %r3, 1; shl.b32 %r5, %r5, 1; setp.gt.s32 %p1, %r3, 0; @%p1 bra L; "
    )
    found = in_parts(loop + "not.b32 %r3, %r3; not.b32 %r5, %r5; ")
    assert found.operands["shl", "a"] == {"other", "zero"}  # 7 << 40 is 0 in 32 bits
    assert found.operands["not", "a"] == {"zero", "other"}
    assert (
        found.operands["not", "a"]
        == in_parts(loop + "not.b32 %r6, %r3; not.b32 %r7, %r5; ").operands["not", "a"]
    )


def test_counts_of_several_launches_add_up():
    rounds = sum(map(loops.rounds, range(loops.BLOCK * loops.GRID)))
    found = loops.run("coverage", launches=2).report.coverage
    assert found.forms["setp.ne.u32"] == 2 * rounds
    assert found.rows["ret"] == 2 * loops.BLOCK * loops.GRID


def test_untyped_bits_are_classified_by_the_type_of_the_instruction():
    found = observed(
        "mov.b32 %r3, 0xFFFFFFFF; mov.s32 %r4, %r3; mov.f32 %f1, 0f80000000; selp.f32 %f2, %f1, %f1, 1;"
    )
    assert {"all ones", "minus one", "negative zero"} <= found.operands["mov", "a"]
    assert found.operands["selp", "a"] == {"negative zero"}
    assert found.operands["selp", "c"] == {"true"}


def test_f16x2_operands_have_the_classes_of_both_halves():
    found = observed("mov.b32 %r3, 0x7C008000; add.f16x2 %r4, %r3, %r3; ")
    assert found.operands["add.f16", "a"] == {"infinity", "negative zero"}


def test_vectors_literals_and_special_registers_are_classified():
    body = ".shared .align 8 .b8 s[16]; shl.b32 %r3, %lane, 3; mov.u32 %r4, -1; cvt.u64.u32 %rd1, %laneid; "
    found = observed(body + "st.shared.v2.b32 [%r3], {%lane, %r4}; ", block=2)
    assert found.operands["st", "b"] == {"zero", "one", "all ones"}
    assert found.operands["cvt", "a"] == {"zero", "one"}
    assert found.operands["shl", "b"] == {"other"}
    wide = observed("mov.b64 %rd1, {%lane, %r1}; mov.b64 {%r3, %r4}, %rd1; ", block=2)
    assert wide.operands["mov", "a"] >= {"zero", "other"}


def test_warp_operations_atomics_and_the_carry_are_classified():
    body = """shfl.sync.idx.b32 %r3|%p1, %lane, 0, 31, -1; vote.sync.any.pred %p2, %p1, -1;
atom.global.add.u32 %r4, [%in], 1; add.cc.u32 %r5, %lane, -1; addc.cc.u32 %r5, %r5, 0;"""
    found = observed(body)
    assert found.operands["vote.sync.pred", "a"] == {"true"}
    assert found.operands["atom (add)", "b"] == {"one"}
    assert found.operands["addc.cc", "a"] == {"largest", "zero", "one", "other"}
    assert ("addc.cc", "carry") not in found.operands


def test_device_functions_have_registers_of_their_own():
    before = """.func (.reg .b32 %back) f(.reg .b32 %r3) {
mov.b32 %back, %r3; add.s32 %r3, %r3, 5; add.s32 %back, %r3, 5; ret; }
"""
    body = "mov.s32 %r3, -5; call (%r4), f, (%r3); mov.s32 %r5, %r4; neg.s32 %r4, %r4; not.b32 %r3, %r3; "
    device = simwarp.Device(observe="coverage")
    small.run(body + "mov.u32 %r2, 1; " + small.STORE, device=device, before=before)
    found = device.report.coverage
    assert found.operands["neg", "a"] == {"positive"}
    assert found.operands["not", "a"] == {"other"}
    assert found.operands["add", "a"] == {"other", "negative", "zero"}  # the frame's address, -5, 0


def test_call_arguments_are_not_counted_as_results():
    before = ".func f(.reg .b32 %r3) { neg.s32 %r3, %r3; not.b32 %r3, %r3; ret; }\n"
    device = simwarp.Device(observe="coverage")
    body = "mov.s32 %r3, -5; call f, (%r3); mov.u32 %r2, 1; " + small.STORE
    small.run(body, device=device, before=before)
    assert device.report.coverage.operands.get(("neg", "a"), set()) <= {"negative"}
    assert device.report.coverage.operands["not", "a"] == {"other"}


def test_json_lists_covered_and_missing_classes():
    data = observed("rcp.approx.ftz.f32 %f1, 0f00000000; ").to_json()
    row = data["rows"]["rcp.approx.f32"]
    assert row == {
        "section": "9.7.3.13",
        "fidelity": "bounded",
        "count": 32,
        "forms": {"rcp.approx.ftz.f32": 32},
        "operands": {"a": ["zero"]},
    }
    assert data["rows"].keys() | set(data["not_met"]) == set(ROWS)
    assert not data["rows"].keys() & set(data["not_met"])
