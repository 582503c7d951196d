"""`simwarp.fragments`: every map is a bijection, and equals the formulas of the PTX ISA.

`why_no_bijection` is the one proof; each form of `all_opcodes` is put to it, and so are maps that are wrong
on purpose.
"""

import dataclasses
import functools
import json
import re

import numpy as np
import pytest

from reference.errors import DtypeError, ShapeError, SimwarpError
from simwarp.fragments import (
    TYPE_BITS,
    Digit,
    FragmentError,
    Layout,
    Operand,
    Shape,
    all_opcodes,
    fragments_of,
    required_alignment,
)
from simwarp.fragments.opcodes import RECORD, confirmations
from support.offenders import every_case

A = "slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8"
"""The A operand of mma.m16n8k16 with f16."""


def of(opcode, operand):
    return fragments_of(opcode).operands[operand].layout


# --------------------------------------------------------------------------------------------------
# Every map is a bijection
# --------------------------------------------------------------------------------------------------


@functools.cache
def why_no_bijection(layout):
    """The reason that a layout is not a bijection of registers and element copies; "" if it is one."""
    shape = (layout.matrices, layout.rows, layout.columns)
    counts = (layout.lanes, layout.registers, layout.slots)
    if layout.slots * layout.bits != layout.register_bits:
        return "a register that is not filled"
    lane, register, slot = (axis.ravel() for axis in np.indices(counts))
    row, column, matrix = layout.element(lane, register, slot * layout.bits)
    if row.max() >= layout.rows or column.max() >= layout.columns or matrix.max() >= layout.matrices:
        return "an element outside the matrix"
    held = np.bincount(np.ravel_multi_index((matrix, row, column), shape), minlength=np.prod(shape))
    if (held != layout.copies).any():
        return "an element held too often, or not at all"
    bit = np.arange(layout.register_bits)
    for at in (0, lane.size - 1):
        whole = layout.element(lane[at], register[at], bit)
        first = layout.element(lane[at], register[at], bit // layout.bits * layout.bits)
        if not np.array_equal(whole, first):
            return "the bits of one element in different places"
    matrix, row, column, copy = (axis.ravel() for axis in np.indices((*shape, layout.copies)))
    lane, register, bit = layout.holder(row, column, matrix, copy)
    if (bit % layout.bits).any() or not np.array_equal(
        layout.element(lane, register, bit), (row, column, matrix)
    ):
        return "element(holder(x)) is not x"
    places = np.ravel_multi_index((lane, register, bit // layout.bits), counts)
    if (np.bincount(places, minlength=np.prod(counts)) != 1).any():
        return "a slot that holds nothing, or two elements"
    if (np.diff(register.reshape(-1, layout.copies), axis=1) <= 0).any():
        return "copies that do not stand in the order of their registers"
    return ""


@every_case("opcode", all_opcodes)
def test_every_map_is_a_bijection(opcode):
    found = fragments_of(opcode)
    m, n, k = found.shape
    for name, operand in found.operands.items():
        layout = operand.layout
        assert why_no_bijection(layout) == "", name
        assert layout.bits == TYPE_BITS[operand.type], name
        assert layout.register_bits == (64 if operand.type == "f64" else 32), name
        assert layout.lanes == (128 if opcode.startswith("wgmma") else 32), name
        assert (layout.rows, layout.columns) == {"a": (m, k), "b": (k, n)}.get(name if k else "", (m, n))


@pytest.mark.parametrize(
    "digits",
    [
        pytest.param(
            [("slot", 1, 2, "column", 1), ("lane", 1, 4, "column", 1)], id="two lanes with one column"
        ),
        pytest.param(
            [("slot", 1, 2, "column", 1), ("lane", 1, 4, "column", 4)], id="columns that nobody holds"
        ),
        pytest.param([("slot", 1, 2, "column", 1), ("lane", 1, 4, "copy", 1)], id="copies across lanes"),
        pytest.param(
            [("slot", 1, 2, "column", 1), ("lane", 2, 4, "column", 2)], id="a lane's digit left out"
        ),
        pytest.param([("lane", 1, 4, "column", 1), ("lane", 4, 8, "row", 1)], id="half a register"),
    ],
)
def test_a_wrong_map_is_not_a_bijection(digits):
    assert why_no_bijection(Layout(tuple(Digit(*digit) for digit in digits), bits=16))


def test_swapped_digits_give_another_bijection():
    """The proof of bijection cannot detect this; the formulas and the probe can."""
    swapped = Layout.of("slot 2:c1  lane 4:c2 8:r1  register 2:c8 2:r8", bits=16)
    assert why_no_bijection(swapped) == ""
    assert swapped != Layout.of(A, bits=16)
    assert swapped.element(0, 1) != Layout.of(A, bits=16).element(0, 1)


# --------------------------------------------------------------------------------------------------
# The formulas of the PTX ISA
# --------------------------------------------------------------------------------------------------

# (row, column) of element i of a lane's fragment, by sections 9.7.14.5.1 to 9.7.14.5.13.
ACCUMULATOR = {"c": lambda i, g, t: (g if i < 2 else g + 8, t * 2 + (i & 1))}
FORMULAS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": {
        "a": lambda i, g, t: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)),
        "b": lambda i, g, t: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
        **ACCUMULATOR,
    },
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16": {
        "a": lambda i, g, t: (g if i < 2 else g + 8, t * 2 + (i & 1)),
        "b": lambda i, g, t: (t * 2 + i, g),
        **ACCUMULATOR,
    },
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": {
        "a": lambda i, g, t: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
        "b": lambda i, g, t: (t if i == 0 else t + 4, g),
        **ACCUMULATOR,
    },
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64": {
        "a": lambda i, g, t: (g, t),
        "b": lambda i, g, t: (t, g),
        "c": lambda i, g, t: (g, t * 2 + i),
    },
    "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64": {
        "a": lambda i, g, t: (g, i * 2 + t) if i % 2 == 0 else (g + 8, i * 2 - 2 + t),
        "b": lambda i, g, t: (t + i * 4, g),
        **ACCUMULATOR,
    },
    "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32": {
        "a": lambda i, g, t: (g if i < 4 else g + 8, t * 4 + (i & 3)),
        "b": lambda i, g, t: (t * 4 + i, g),
        **ACCUMULATOR,
    },
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32": {
        "a": lambda i, g, t: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)),
        "b": lambda i, g, t: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
        **ACCUMULATOR,
    },
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32": {
        "a": lambda i, g, t: (
            g if i < 8 or 16 <= i < 24 else g + 8,
            t * 8 + (i & 7) + (32 if i >= 16 else 0),
        ),
        "b": lambda i, g, t: (t * 8 + (i & 7) + (32 if i >= 8 else 0), g),
        **ACCUMULATOR,
    },
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc": {
        "a": lambda i, g, t: (g, t * 32 + i),
        "b": lambda i, g, t: (t * 32 + i, g),
        "c": lambda i, g, t: (g, t * 2 + i),
    },
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc": {
        "a": lambda i, g, t: (
            g if i < 32 or 64 <= i < 96 else g + 8,
            t * 32 + (i & 31) + (128 if i >= 64 else 0),
        ),
        "b": lambda i, g, t: (t * 32 + (i & 31) + (128 if i >= 32 else 0), g),
        **ACCUMULATOR,
    },
}


@every_case("opcode", FORMULAS)
@every_case("operand", ["a", "b", "c", "d"])
def test_layouts_equal_the_formulas_of_the_ptx_isa(opcode, operand):
    layout = of(opcode, operand)
    formula = FORMULAS[opcode]["c" if operand == "d" else operand]
    for lane in range(32):
        for i in range(layout.registers * layout.slots):
            found = layout.element(lane, i // layout.slots, i % layout.slots * layout.bits)
            assert found == (*formula(i, lane >> 2, lane % 4), 0), (lane, i)


def of_quad_pair(lane, operand, i):
    """(row, column) of f16 mma.m8n8k4, from PTX ISA 9.7.14.5.1."""
    high = 0 if lane < 16 else 4
    return {
        "a row": (lane % 4 + high, i),
        "a col": (i % 4 + high, lane % 4),
        "b row": (lane % 4, i + high),
        "b col": (i, lane % 4 + high),
        "f16": (lane % 4 + high, i),
        "f32": ((lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1)),
    }[operand]


@pytest.mark.parametrize("layouts", ["row.row", "row.col", "col.row", "col.col"])
def test_m8n8k4_layouts_are_spread_over_quad_pairs(layouts):
    found = fragments_of(f"mma.sync.aligned.m8n8k4.{layouts}.f32.f16.f16.f16").operands
    a, b = layouts.split(".")
    for name, key in {"a": f"a {a}", "b": f"b {b}", "c": "f16", "d": "f32"}.items():
        layout = found[name].layout
        assert layout.matrices == 4
        for lane in range(32):
            for i in range(layout.registers * layout.slots):
                row, column = of_quad_pair(lane, key, i)
                place = layout.element(lane, i // layout.slots, i % layout.slots * layout.bits)
                assert place == (row, column, lane % 16 // 4), (name, lane, i)


def test_ldmatrix_loads_the_operands_of_mma():
    """Four matrices are A of m16n8k16; two are B, with ``.trans`` if it is stored by rows."""
    a, b = (of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", operand) for operand in "ab")
    four, two = (
        of("ldmatrix.sync.aligned.m8n8.x4.b16", "r"),
        of("ldmatrix.sync.aligned.m8n8.x2.trans.b16", "r"),
    )
    for lane in range(32):
        for bit in (0, 16):
            for register in range(4):
                row, column, matrix = four.element(lane, register, bit)
                at = (row + 8 * (matrix % 2), column + 8 * (matrix // 2), 0)
                assert a.element(lane, register, bit) == at
            for register in range(2):
                row, column, matrix = two.element(lane, register, bit)
                assert b.element(lane, register, bit) == (row + 8 * matrix, column, 0)


def test_each_register_of_ldmatrix_is_one_matrix():
    layout = of("ldmatrix.sync.aligned.m8n8.x4.b16", "r")
    assert layout.shape == (4, 8, 8)
    assert layout.holder(row=5, column=3, matrix=2) == (5 * 4 + 1, 2, 16)
    transposed = of("stmatrix.sync.aligned.m8n8.x4.trans.b16", "r")
    assert transposed.holder(row=3, column=5, matrix=2) == (5 * 4 + 1, 2, 16)


def test_both_operands_of_movmatrix_have_the_same_layout():
    found = fragments_of("movmatrix.sync.aligned.m8n8.trans.b16").operands
    assert list(found) == ["d", "a"]
    assert found["a"].layout == found["d"].layout == of("ldmatrix.sync.aligned.m8n8.x1.b16", "r")


@every_case("n", range(8, 257, 8))
def test_each_warp_of_a_wgmma_is_an_m16n8_mma_for_every_eight_columns(n):
    one = of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "d")
    whole = of(f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16", "d")
    assert whole.registers == n // 2
    lane, register = np.ix_(range(128), range(n // 2))
    small = one.element(lane % 32, register % 4)
    found = whole.element(lane, register)
    assert np.array_equal(found.row, small.row + lane // 32 * 16)
    assert np.array_equal(found.column, small.column + register // 4 * 8)


def test_wgmma_has_the_sizes_n_of_the_isa_and_of_bytes_two_more_that_ptxas_accepts():
    shapes = {}
    for opcode in all_opcodes():
        if opcode.startswith("wgmma"):
            found = fragments_of(opcode)
            shapes.setdefault(found.operands["a"].type, set()).add(found.shape.n)
    every = set(range(8, 257, 8))
    integers = {8, 16, 24} | set(range(32, 257, 16))
    assert shapes == {
        **dict.fromkeys(("f16", "bf16", "tf32", "e4m3", "e5m2"), every),
        **dict.fromkeys(("s8", "u8", "b1"), integers),
    }


# The registers of a fragment in section 9.7.14.4.1: of A, B and C (or D).
WMMA_REGISTERS = {
    ("m16n16k16", "f16"): (8, 8, {"f16": 4, "f32": 8}),
    ("m8n32k16", "f16"): (8, 8, {"f16": 4, "f32": 8}),
    ("m32n8k16", "f16"): (8, 8, {"f16": 4, "f32": 8}),
    ("m16n16k16", "bf16"): (4, 4, {"f32": 8}),
    ("m8n32k16", "bf16"): (2, 8, {"f32": 8}),
    ("m32n8k16", "bf16"): (8, 2, {"f32": 8}),
    ("m16n16k16", "s8"): (2, 2, {"s32": 8}),
    ("m8n32k16", "s8"): (1, 4, {"s32": 8}),
    ("m32n8k16", "s8"): (4, 1, {"s32": 8}),
    ("m16n16k8", "tf32"): (4, 4, {"f32": 8}),
    ("m8n8k4", "f64"): (1, 1, {"f64": 2}),
    ("m8n8k32", "s4"): (1, 1, {"s32": 2}),
    ("m8n8k128", "b1"): (1, 1, {"s32": 2}),
}


@pytest.mark.parametrize("case", WMMA_REGISTERS, ids=".".join)
def test_wmma_fragments_have_the_documented_register_counts(case):
    shape, type_name = case
    a, b, accumulators = WMMA_REGISTERS[case]
    assert of(f"wmma.load.a.sync.aligned.row.{shape}.{type_name}", "a").registers == a
    assert of(f"wmma.load.b.sync.aligned.col.{shape}.{type_name}", "b").registers == b
    for accumulator, count in accumulators.items():
        assert of(f"wmma.load.c.sync.aligned.row.{shape}.{accumulator}", "c").registers == count
        assert of(f"wmma.store.d.sync.aligned.col.{shape}.{accumulator}", "d").registers == count


def test_loads_and_products_of_wmma_agree():
    """wmma.load fills the registers that wmma.mma reads, for every memory layout."""
    products = [opcode for opcode in all_opcodes() if opcode.startswith("wmma.mma")]
    assert len(products) == 122
    for opcode in products:
        found = fragments_of(opcode)
        layouts = re.findall(r"\b(row|col)\b", opcode)
        for name, operand in found.operands.items():
            move = "store" if name == "d" else "load"
            memory = dict(zip("ab", layouts, strict=True)).get(name, "row")
            moved = f"wmma.{move}.{name}.sync.aligned.{memory}.{found.shape}.{operand.type}"
            assert of(moved, name) == operand.layout


def test_wmma_layouts_are_composed_of_mma_layouts():
    """An H200 holds m16n16k16 as two m16n8k16, and accumulators of m8n32k16 transposed."""
    small = fragments_of("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32").operands
    square = fragments_of("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32").operands
    assert square["a"].layout == small["a"].layout
    lane, register = np.ix_(range(32), range(8))
    half = small["d"].layout.element(lane, register % 4)
    found = square["d"].layout.element(lane, register)
    assert np.array_equal(found.row, half.row)
    assert np.array_equal(found.column, half.column + register // 4 * 8)
    wide = of("wmma.mma.sync.aligned.row.col.m8n32k16.f32.bf16.bf16.f32", "d").element(lane, register)
    tall = of("wmma.mma.sync.aligned.row.col.m32n8k16.f32.bf16.bf16.f32", "d").element(lane, register)
    assert np.array_equal(wide.row, tall.column)
    assert np.array_equal(wide.column, tall.row)


@pytest.mark.parametrize(("shape", "a", "b"), [("m16n16k16", 2, 2), ("m8n32k16", 4, 1), ("m32n8k16", 1, 4)])
def test_wmma_f16_operands_are_held_twice(shape, a, b):
    found = fragments_of(f"wmma.mma.sync.aligned.row.col.{shape}.f32.f32").operands
    assert (found["a"].layout.copies, found["b"].layout.copies) == (a, b)
    layout = found["a"].layout
    held = [layout.holder(7, 11, copy=copy) for copy in range(a)]
    assert [place.register for place in held] == [held[0].register + 8 // a * copy for copy in range(a)]
    with pytest.raises(FragmentError, match=f"there is no copy {a}\n"):
        layout.holder(7, 11, copy=a)


# --------------------------------------------------------------------------------------------------
# Elements and holders
# --------------------------------------------------------------------------------------------------


def test_lookups_of_ints_return_ints_and_of_arrays_return_arrays():
    a = Layout.of(A, bits=16)
    assert a.element(5, 1, 16) == (9, 3, 0)
    assert all(type(number) is int for number in a.element(np.int64(5), np.uint8(1), 16))
    found = a.element(np.arange(32)[:, None], np.arange(4, dtype=np.uint8))
    assert [part.shape for part in found] == [(32, 4)] * 3
    assert found.row[5].tolist() == [1, 9, 1, 9]
    assert [part.shape for part in a.holder(np.arange(16)[:, None], np.arange(16))] == [(16, 16)] * 3


def test_an_element_is_found_by_any_of_its_bits():
    layout = of("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "a")
    assert [layout.element(3, 0, bit).column for bit in range(12)] == [24] * 4 + [25] * 4 + [26] * 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda a: a.element(32, 0), "there is no lane 32\nthe operand has 32, 0 to 31\n"),
        (lambda a: a.element(-1, 0), "there is no lane -1\n"),
        (lambda a: a.element(0, np.array([0, 4, 5])), "there is no register 4\nthe operand has 4, 0 to 3\n"),
        (lambda a: a.element(0, 0, 32), "there is no bit 32\n"),
        (lambda a: a.holder(16, 0), "there is no row 16\nthe operand has 16, 0 to 15\n"),
        (lambda a: a.holder(0, 16), "there is no column 16\n"),
        (lambda a: a.holder(0, 0, 1), "there is no matrix 1\n"),
        (lambda a: a.holder(0, 0, 0, 1), "there is no copy 1\n"),
    ],
)
def test_places_outside_a_layout_are_refused(wrong, message):
    with pytest.raises(FragmentError, match=re.escape(message)) as error:
        wrong(Layout.of(A, bits=16))
    assert str(error.value).count("\n") == 2
    assert isinstance(error.value, SimwarpError)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("number", [1.0, "1", True, np.array([0.5])])
def test_noninteger_lookups_are_refused(number):
    with pytest.raises(DtypeError, match="are integers"):
        Layout.of(A, bits=16).element(number, 0)


# --------------------------------------------------------------------------------------------------
# Registers and matrices
# --------------------------------------------------------------------------------------------------


@functools.cache
def layouts():
    """Every layout once."""
    operands = (operand for opcode in all_opcodes() for operand in fragments_of(opcode).operands.values())
    return list(dict.fromkeys(operand.layout for operand in operands))


def random_registers(layout, *warps, seed=0):
    shape = (*warps, layout.lanes, layout.registers)
    return np.random.default_rng(seed).integers(
        0, 2**layout.register_bits, shape, f"u{layout.register_bits // 8}"
    )


@every_case("layout", layouts)
def test_packing_inverts_unpacking(layout):
    """Every element is at the position that `holder` gives, and pack inverts unpack."""
    registers = random_registers(layout, 2)
    elements = layout.unpack(registers)
    assert elements.shape == (2, *layout.shape)
    assert elements.dtype == layout.dtype
    matrix, row, column = np.indices((layout.matrices, layout.rows, layout.columns))
    held = layout.holder(row, column, matrix)
    words = registers[:, held.lane, held.register] >> held.bit.astype(registers.dtype)
    expected = words & registers.dtype.type((1 << layout.bits) - 1)
    assert np.array_equal(elements, expected.reshape(elements.shape))
    packed = layout.pack(elements)
    assert packed.dtype == registers.dtype
    assert packed.shape == registers.shape
    assert np.array_equal(layout.unpack(packed), elements)
    if layout.copies == 1:
        assert np.array_equal(packed, registers)
    copies = layout.holder(row[..., None], column[..., None], matrix[..., None], np.arange(layout.copies))
    words = packed[:, copies.lane, copies.register] >> copies.bit.astype(registers.dtype)
    assert np.array_equal(
        words & expected.dtype.type((1 << layout.bits) - 1), expected[..., None] + 0 * words
    )


def test_zero_warps_give_empty_arrays():
    for layout in layouts():
        elements = layout.unpack(
            np.zeros((0, layout.lanes, layout.registers), f"u{layout.register_bits // 8}")
        )
        assert elements.shape == (0, *layout.shape)
        assert layout.pack(elements).shape == (0, layout.lanes, layout.registers)


def test_registers_may_have_any_memory_order():
    layout = Layout.of(A, bits=16)
    registers = random_registers(layout, 3)
    assert np.array_equal(layout.unpack(np.asfortranarray(registers)), layout.unpack(registers))
    assert np.array_equal(layout.unpack(registers[::2]), layout.unpack(registers)[::2])


def test_signed_and_float_arrays_are_packed_by_their_bits():
    layout = Layout.of(A, bits=16)
    values = np.linspace(-1, 1, 256).astype(np.float16).reshape(16, 16)
    assert np.array_equal(layout.pack(values), layout.pack(values.view(np.uint16)))
    assert np.array_equal(layout.unpack(layout.pack(values)).view(np.float16), values)
    four = of("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32", "a")
    numbers = np.random.default_rng(0).integers(-8, 8, (8, 32), np.int8)
    assert np.array_equal(four.unpack(four.pack(numbers)), numbers & 15)


@pytest.mark.parametrize("opcode", ["m8n8k128", "m16n8k128", "m16n8k256"])
def test_words_hold_32_neighbours_along_k(opcode):
    """A word holds 32 neighbours along k, the first in the lowest bit."""
    found = fragments_of(f"mma.sync.aligned.{opcode}.row.col.s32.b1.b1.s32.and.popc").operands
    a, b = found["a"].layout, found["b"].layout
    of_a, of_b = random_registers(a, 2), random_registers(b, 2)
    rows = np.packbits(a.unpack(of_a), axis=-1, bitorder="little").view(np.uint32)
    assert np.array_equal(a.words().unpack(of_a), rows)
    columns = np.packbits(b.unpack(of_b).swapaxes(-1, -2), axis=-1, bitorder="little").view(np.uint32)
    assert np.array_equal(b.words().unpack(of_b), columns.swapaxes(-1, -2))
    assert a.words() is a.words()
    assert (a.words().bits, a.words().slots) == (32, 1)


def test_layouts_without_whole_words_are_refused():
    scattered = Layout.of("slot 2:c2 2:r1  lane 2:c1 16:r2", bits=8)
    with pytest.raises(FragmentError, match="are not neighbours"):
        scattered.words()
    assert np.array_equal(
        scattered.pack(scattered.unpack(random_registers(scattered))), random_registers(scattered)
    )


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            lambda a: a.unpack(np.zeros((32, 2), np.uint32)),
            ShapeError,
            r"\(32, 2\)\nthe last axes .* \(32, 4\)",
        ),
        (lambda a: a.unpack(np.zeros(4, np.uint32)), ShapeError, r"registers of shape \(4,\)"),
        (
            lambda a: a.unpack(np.zeros((32, 4), np.uint64)),
            DtypeError,
            "registers of type uint64\n.* 32 bits",
        ),
        (lambda a: a.unpack(np.zeros((32, 4), "S4")), DtypeError, "registers of type"),
        (lambda a: a.pack(np.zeros((16, 8), np.uint16)), ShapeError, r"elements of shape \(16, 8\)"),
        (
            lambda a: a.pack(np.zeros((16, 16), np.float32)),
            DtypeError,
            "elements of type float32\n.* 16 bits",
        ),
    ],
)
def test_arrays_of_other_shapes_are_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong(Layout.of(A, bits=16))


# --------------------------------------------------------------------------------------------------
# The notation
# --------------------------------------------------------------------------------------------------


def test_a_printed_layout_parses_to_itself():
    for layout in layouts():
        assert Layout.of(str(layout), layout.bits, layout.register_bits) == layout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lane 4:q1", "not a digit: '4:q1' in 'lane 4:q1'"),
        ("lane 4c1", "not a digit: '4c1'"),
        ("slot 2:c1  lane 4:c4", "the strides that move the column are 1, 4, not 1, 2"),
        ("slot 2:c1  lane 4:c1", "the strides that move the column are 1, 1, not 1, 2"),
        ("slot 2:c1  lane 4:c2  register 2:copy2", "the strides that move the copy are 2, not 1"),
        ("slot 4:c1  lane 4:c4", "4 elements of 16 bits do not fill a register of 32 bits"),
    ],
)
def test_malformed_maps_are_refused(line, message):
    with pytest.raises(FragmentError, match=re.escape(message)) as error:
        Layout.of(line, bits=16)
    assert str(error.value).count("\n") == 2


# --------------------------------------------------------------------------------------------------
# Opcodes
# --------------------------------------------------------------------------------------------------


def test_every_form_is_listed_once():
    counts = {}
    for opcode in all_opcodes():
        name = ".".join(opcode.split(".")[: 2 if opcode.startswith("wmma") else 1])
        counts[name] = counts.get(name, 0) + 1
        assert fragments_of(opcode).opcode == opcode
    assert counts == {
        "mma": 94,
        "wmma.load": 88,
        "wmma.store": 26,
        "wmma.mma": 122,
        "ldmatrix": 6,
        "stmatrix": 6,
        "movmatrix": 1,
        "wgmma": 546,
    }


def test_operands_are_in_the_order_of_the_instruction():
    assert list(fragments_of("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32").operands) == list("dabc")
    assert list(fragments_of("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32").operands) == list("da")
    found = fragments_of("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16").operands
    assert [operand.type for operand in found.values()] == ["f32", "f16", "f16", "f16"]
    with pytest.raises(TypeError):
        found["a"] = found["b"]


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ("wmma.load.a.sync.aligned.m16n16k16.row.f16", "wmma.load.a.sync.aligned.row.m16n16k16.f16"),
        ("wmma.load.b.sync.aligned.col.m16n16k16.shared.s8", "wmma.load.b.sync.aligned.col.m16n16k16.s8"),
        ("wmma.store.d.sync.aligned.row.m8n8k4.global.f64", "wmma.store.d.sync.aligned.row.m8n8k4.f64"),
        ("ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16", "ldmatrix.sync.aligned.m8n8.x2.trans.b16"),
        ("stmatrix.sync.aligned.x2.trans.m8n8.shared.b16", "stmatrix.sync.aligned.m8n8.x2.trans.b16"),
        (
            "mma.sync.aligned.row.col.m16n8k16.f32.f16.f16.f32",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32.satfinite",
            "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.s8.s32",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32.xor.popc",
            "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64",
            "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64",
        ),
    ],
)
def test_other_spellings_give_the_same_fragments(spelled, canonical):
    assert fragments_of(spelled) is fragments_of(canonical)
    assert fragments_of(spelled).opcode == canonical


@pytest.mark.parametrize(
    ("opcode", "exists", "meant"),
    [
        (
            "mma.sync.aligned.m16n8k9.row.col.f32.f16.f16.f32",
            "mma for f16 has the shapes m8n8k4, m16n8k8, m16n8k16; PTX ISA 9.0, section 9.7.14.5",
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f32",
            "mma for f16, m16n8k16, has the types of operands f16.f16.f16.f16, f32.f16.f16.f32; PTX ISA",
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        ),
        (
            "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",
            "mma for f16, m16n8k16, has the layouts row.col; PTX ISA",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f32.f16.f16",
            "mma has the types b1, s4, u4, e4m3, e5m2, s8, u8, f16, bf16, tf32, f64; PTX ISA",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "mma.sync.m16n8k16.row.col.f32.f16.f16.f32",
            "mma for f16, m16n8k16, has the modifiers sync.aligned; PTX ISA",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "mma.sync.aligned.m16n8k16.m16n8k16.row.col.f32.f16.f16.f32",
            "mma for f16, m16n8k16, is spelled mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32; PTX ISA",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.shared.f32.f16.f16.f32",
            "mma for f16, m16n8k16, has the modifiers sync.aligned; PTX ISA",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "wmma.load.a.sync.aligned.col.m8n8k128.b1",
            "wmma.load.a for b1, m8n8k128, has the layouts row; PTX ISA 9.0, section 9.7.14.4.3",
            "wmma.load.a.sync.aligned.row.m8n8k128.b1",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16.f16.f32",
            "wmma.mma for f16, m16n16k16, has the types of operands f16.f16, f16.f32, f32.f16, f32.f32; PTX",
            "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n260k16.f32.f16.f16",
            "wgmma for f16 has the shapes m64n8k16, m64n16k16, m64n24k16, m64n32k16, …, m64n256k16; PTX ISA",
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16",
        ),
        (
            "wmma.load.a.sync.aligned.row.m8n8k4.shared.global.f64",
            "wmma.load.a for f64, m8n8k4, has the modifiers sync.aligned; PTX ISA",
            "wmma.load.a.sync.aligned.row.m8n8k4.f64",
        ),
        (
            "wmma.load.a.sync.aligned.row.m8n8k4.rn.f64",
            "wmma.load.a for f64, m8n8k4, has the modifiers sync.aligned; PTX ISA",
            "wmma.load.a.sync.aligned.row.m8n8k4.f64",
        ),
        (
            "ldmatrix.sync.aligned.m8n16.x1.b16",
            "ldmatrix for b16 has the shapes m8n8; PTX ISA 9.0, section 9.7.14.5.15",
            "ldmatrix.sync.aligned.m8n8.x1.b16",
        ),
    ],
)
def test_unknown_forms_are_refused(opcode, exists, meant):
    with pytest.raises(FragmentError) as error:
        fragments_of(opcode)
    first, second, third = str(error.value).splitlines()
    assert first == f"there is no instruction {opcode}"
    assert second.startswith(exists)
    assert third == f"did you mean {meant}?"
    assert fragments_of(meant)


@pytest.mark.parametrize("opcode", ["", "mad.lo.s32", "wmma", "wmma.load", "wmma.load.x.sync", "mma2.sync"])
def test_other_instructions_have_no_fragments(opcode):
    with pytest.raises(FragmentError, match="there is no matrix instruction") as error:
        fragments_of(opcode)
    assert "there are mma, wmma.load, wmma.store, wmma.mma, ldmatrix" in str(error.value)


# --------------------------------------------------------------------------------------------------
# Where maps come from
# --------------------------------------------------------------------------------------------------


def test_every_layout_names_its_source():
    for opcode in all_opcodes():
        for operand in fragments_of(opcode).operands.values():
            observed = opcode.startswith("wmma")
            assert operand.provenance.source == ("observed" if observed else f"PTX ISA {operand.section}")
            assert operand.section == "9.7.14.4.1" or not observed
    assert (
        fragments_of("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32").operands["a"].section
        == "9.7.14.5.7"
    )


def test_confirmations_are_as_recorded():
    record = confirmations()
    assert bool(record) == RECORD.exists()
    assert set(record) <= set(all_opcodes())
    for opcode in all_opcodes():
        for operand in fragments_of(opcode).operands.values():
            assert operand.provenance.confirmed == record.get(opcode, ())


def test_a_record_is_read_or_empty_if_missing(tmp_path):
    path = tmp_path / "observed.json"
    assert confirmations(path) == {}
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"meta": {}, "forms": {"mma.x": ["sm_80", "sm_90"]}}))
    assert confirmations(other) == {"mma.x": ("sm_80", "sm_90")}


def test_provenance_is_printed_in_words():
    found = fragments_of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands["a"].provenance
    specified, confirmed = (dataclasses.replace(found, confirmed=chips) for chips in ((), ("sm_80", "sm_90")))
    assert str(specified) == "PTX ISA 9.7.14.5.8, specified"
    assert str(confirmed) == "PTX ISA 9.7.14.5.8, confirmed on sm_80, sm_90"
    assert str(dataclasses.replace(specified, source="observed")) == "observed, not confirmed"


# --------------------------------------------------------------------------------------------------
# Matrices in memory
# --------------------------------------------------------------------------------------------------


def moves():
    return [opcode for opcode in all_opcodes() if opcode.startswith(("wmma.load", "wmma.store"))]


def moved(opcode) -> Operand:
    return next(iter(fragments_of(opcode).operands.values()))


@every_case("opcode", moves)
def test_memory_offsets_follow_the_layout(opcode):
    operand = moved(opcode)
    layout, in_rows = operand.layout, ".row." in opcode
    assert operand.memory == ("row" if in_rows else "col")
    assert operand.default_stride == (layout.columns if in_rows else layout.rows)
    stride = operand.default_stride + 3
    found = operand.addresses(stride)
    for lane in (0, 5, 31):
        for register in range(layout.registers):
            for slot in range(layout.slots):
                row, column, _ = layout.element(lane, register, slot * layout.bits)
                expected = row * stride + column if in_rows else column * stride + row
                assert found[lane, register, slot] == expected
    assert np.array_equal(operand.addresses(np.array([[stride], [7]])), [[found], [operand.addresses(7)]])
    runs = np.diff(found.reshape(-1, layout.slots), axis=1)
    assert (operand.run == layout.slots) == bool((runs == 1).all())
    assert operand.run in (1, layout.slots)


def test_default_addresses_cover_the_whole_matrix():
    """With the default stride, each address occurs once per copy."""
    for opcode in moves():
        operand = moved(opcode)
        layout = operand.layout
        addresses = np.sort(operand.addresses(operand.default_stride), axis=None)
        assert np.array_equal(addresses, np.repeat(np.arange(layout.rows * layout.columns), layout.copies))


@pytest.mark.parametrize(
    ("opcode", "alignment"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", 32),
        ("wmma.load.a.sync.aligned.row.m8n32k16.bf16", 8),
        ("wmma.load.b.sync.aligned.col.m8n32k16.u8", 16),
        ("wmma.load.a.sync.aligned.row.m8n8k128.b1", 4),
        ("wmma.load.c.sync.aligned.row.m16n16k16.f16", 16),
        ("wmma.store.d.sync.aligned.row.m8n8k4.f64", 16),
        ("wmma.store.d.sync.aligned.row.m16n16k16.s32", 32),
    ],
)
def test_alignment_is_the_size_of_the_fragment(opcode, alignment):
    assert required_alignment(moved(opcode)) == alignment


def test_operands_in_registers_have_no_addresses():
    operand = fragments_of("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32").operands["a"]
    assert operand.memory == ""
    for use in (lambda: operand.addresses(16), lambda: operand.run, lambda: operand.default_stride):
        with pytest.raises(FragmentError, match="operand a does not have an order in memory"):
            use()


def test_shapes_are_printed_as_in_the_opcode():
    assert str(fragments_of("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc").shape) == "m16n8k256"
    assert fragments_of("movmatrix.sync.aligned.m8n8.trans.b16").shape == Shape(8, 8, 0)
