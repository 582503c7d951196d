"""The fragment checks of the test kit: comparison, messages, and recording of running kernels."""

from __future__ import annotations

import numpy as np
import pytest

import simwarp
from reference.errors import DtypeError, ShapeError
from simwarp.fragments import FragmentError, all_opcodes, fragments_of
from simwarp.observe.line_counts import ReportError
from simwarp.testing.fragments import FragmentDifference, check_fragment, record_fragments
from simwarp.testing.fragments.patterns import pattern
from simwarp.testing.fragments.words import words_of
from simwarp.verify import Draw
from support.offenders import every_case

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
B1 = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
LOAD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
COPIES = "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32"


def draw(k=0):
    return Draw(0, "fragments", k)


def some_words(operand, k=0, warps=()):
    """Random words for the elements of an operand."""
    layout = operand.layout
    shape = (*warps, *layout.shape)
    words = draw(k).words(int(np.prod(shape))) & np.uint64((1 << layout.bits) - 1)
    return words.astype(layout.dtype).reshape(shape)


def difference(*args, **kwargs):
    with pytest.raises(FragmentDifference) as caught:
        check_fragment(*args, **kwargs)
    return caught.value


# ---- one bit wrong, anywhere ---------------------------------------------------------------------------


def some_operands():
    return [(opcode, name) for opcode in all_opcodes()[::17] for name in fragments_of(opcode).operands]


@pytest.mark.slow
@every_case(("opcode", "name"), some_operands)
def test_one_flipped_bit_is_named(opcode, name):
    operand = fragments_of(opcode).operands[name]
    layout, source = operand.layout, draw(1)
    words = some_words(operand)
    registers = layout.pack(words)
    check_fragment(opcode, name, registers, words)
    for _ in range(5):
        lane, register = source.integer(0, layout.lanes - 1), source.integer(0, layout.registers - 1)
        flipped = source.integer(0, layout.register_bits - 1)
        wrong = registers.copy()
        wrong[lane, register] ^= wrong.dtype.type(1 << flipped)
        found = difference(opcode, name, wrong, words)
        assert (found.opcode, found.operand, found.type) == (opcode, name, operand.type)
        assert (found.lane, found.register) == (lane, register)
        assert found.bit <= flipped < found.bit + layout.bits
        assert found.expected ^ found.got == 1 << flipped - found.bit
        assert (found.warp, found.place, found.wrong) == ((), None, 1)
        assert found.total == layout.lanes * layout.registers * layout.slots
        element = (found.matrix, found.row, found.column)[-len(layout.shape) :]
        assert words[element] == found.expected


@pytest.mark.parametrize("lane", [0, 5, 31])
@pytest.mark.parametrize("register", range(4))
def test_named_elements_follow_the_formulas_of_the_isa(lane, register):
    """PTX ISA 9.7.14.5.8: rows and columns of A and of the accumulators."""
    group, within = lane // 4, lane % 4
    at = {
        "a": (group + 8 * (register % 2), within * 2 + 8 * (register // 2)),
        "d": (group + 8 * (register // 2), within * 2 + register % 2),
    }
    for name, element in at.items():
        operand = fragments_of(F16).operands[name]
        registers = np.zeros((32, 4), np.uint32)
        registers[lane, register] = 1
        found = difference(F16, name, registers, np.zeros(operand.layout.shape, operand.layout.dtype))
        assert (found.lane, found.register, found.bit) == (lane, register, 0)
        assert (found.row, found.column) == element


def test_the_reported_element_is_the_first_of_the_matrix():
    tile = np.zeros((16, 16), np.float16)
    registers = np.zeros((32, 4), np.uint32)
    registers[0, 1] = registers[4, 0] = 1  # rows 8 and 1
    found = difference(F16, "a", registers, tile)
    assert (found.lane, found.register, found.row, found.wrong) == (4, 0, 1, 2)


def test_every_copy_of_an_element_is_checked():
    a = fragments_of(COPIES).operands["a"]
    words = some_words(a)
    registers = a.layout.pack(words)
    registers[7, 6] ^= 1 << 20  # registers 4 to 7 repeat registers 0 to 3
    found = difference(COPIES, "a", registers, words)
    assert (found.lane, found.register, found.bit, found.wrong, found.total) == (7, 6, 16, 1, 512)
    assert found.pattern == "none of them in its first copy"


def test_a_difference_names_its_matrix():
    r = fragments_of(LOAD).operands["r"]
    words = some_words(r)
    registers = r.layout.pack(words)
    registers[:, [2, 3]] = registers[:, [3, 2]]
    found = difference(LOAD, "r", registers, words)
    assert (found.matrix, found.row, found.column, found.register) == (2, 0, 0, 2)
    assert (found.expected, found.got) == (words[2, 0, 0], words[3, 0, 0])
    assert "should hold element [0, 0] of matrix 2\n" in str(found)


def test_a_difference_names_its_warp():
    b = fragments_of(S8).operands["b"]
    words = some_words(b, warps=(2, 3))
    registers = b.layout.pack(words)
    check_fragment(S8, "b", registers, words)
    registers[1, 2, 9, 1] ^= 0xFF00
    found = difference(S8, "b", registers, words)
    assert (found.warp, found.lane, found.register, found.bit) == ((1, 2), 9, 1, 8)
    assert (found.wrong, found.total) == (1, 6 * 32 * 8)
    assert "bits 8-15 of warp [1, 2] should hold" in str(found)
    check_fragment(S8, "b", np.broadcast_to(registers[0, 0], (4, 32, 2)), words[0, 0])


# ---- numbers and words -----------------------------------------------------------------------------


def test_expected_values_may_be_numbers_or_words():
    half = np.arange(-128, 128, dtype=np.float64).reshape(16, 16) / 8
    registers = fragments_of(F16).operands["a"].layout.pack(half.astype(np.float16))
    for same in (half, half.astype(np.float32), half.astype(np.float16).view(np.uint16)):
        check_fragment(F16, "a", registers, same)
    sums = np.arange(128, dtype=np.float32).reshape(16, 8)
    of_sums = fragments_of(F16).operands["d"].layout.pack(sums)
    check_fragment(F16, "d", of_sums.view(np.float32), sums)
    signed = np.arange(-128, 128, dtype=np.int64).reshape(32, 8)
    check_fragment(S8, "b", fragments_of(S8).operands["b"].layout.pack(signed.astype(np.int8)), signed)
    bits = draw().words(256 * 8).reshape(256, 8) % 2 == 1
    check_fragment(B1, "b", fragments_of(B1).operands["b"].layout.pack(bits.astype(np.uint8)), bits)


@pytest.mark.parametrize(
    ("kind", "bits", "number", "word"),
    [
        ("f16", 16, -2.5, 0xC100),
        ("bf16", 16, -2.5, 0xC020),
        ("tf32", 32, -2.5, 0xC0200000),
        ("e4m3", 8, -2.5, 0xC2),
        ("e5m2", 8, -2.5, 0xC1),
        ("f32", 32, -2.5, 0xC0200000),
        ("f64", 64, -2.5, 0xC004000000000000),
        ("b16", 16, np.float16(-2.5), 0xC100),
        ("b16", 16, np.uint16(7), 7),
        ("s8", 8, -2, 0xFE),
        ("u8", 8, np.uint8(254), 0xFE),
        ("s4", 4, -2, 0xE),
        ("b1", 1, True, 1),
        ("s32", 32, -2, 0xFFFFFFFE),
    ],
)
def test_numbers_are_converted_to_words(kind, bits, number, word):
    assert int(words_of(number, kind, bits)) == word


@pytest.mark.parametrize(
    ("kind", "bits", "numbers", "part"),
    [
        ("f16", 16, [1.0, 0.1], "0.1 is not exact in f16\n1 of 2 elements would be rounded\n"),
        ("e4m3", 8, [1000.0], "1000.0 is not exact in e4m3\n"),
        ("f32", 32, [1 + 2.0**-40], "is not exact in f32\n"),
        ("f16", 16, [1, 2], "elements of int64 for an operand of type f16\n"),
        ("s8", 8, [1.0], "floats for an operand of type s8\n"),
        ("s8", 8, [-129, 3], "elements from -129 to 3 for an operand of type s8\nan element has 8 bits\n"),
        ("b1", 1, np.uint8([2]), "elements from 2 to 2 for an operand of type b1\nan element has 1 bit\n"),
        ("s8", 8, ["1"], "elements of <U1 for an operand of type s8\n"),
    ],
)
def test_unrepresentable_numbers_are_refused(kind, bits, numbers, part):
    with pytest.raises(DtypeError) as caught:
        words_of(numbers, kind, bits)
    assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_nan_payloads_are_compared():
    nan = np.full((16, 8), np.nan, np.float32)
    registers = fragments_of(F16).operands["d"].layout.pack(nan)
    check_fragment(F16, "d", registers, nan)
    found = difference(F16, "d", registers ^ 1, nan)
    assert "expected 0x7fc00000 (nan), got 0x7fc00001 (nan)" in str(found)


def test_unknown_operands_and_wrong_matrices_are_refused():
    registers = np.zeros((32, 4), np.uint32)
    with pytest.raises(FragmentError, match="has no operand 'e' in registers\nit has d, a, b, c\n"):
        check_fragment(F16, "e", registers, np.zeros((16, 16)))
    with pytest.raises(FragmentError):
        check_fragment(F16.replace("k16", "k17"), "a", registers, np.zeros((16, 16)))
    with pytest.raises(ShapeError, match="the operand is 16 x 16\ngive"):
        check_fragment(F16, "a", registers, np.zeros((16, 8)))
    with pytest.raises(ShapeError):
        check_fragment(F16, "a", registers[:, :2], np.zeros((16, 16)))
    with pytest.raises(DtypeError):
        check_fragment(F16, "a", registers.astype(np.float64), np.zeros((16, 16)))


def test_a_difference_has_the_documented_message():
    tile = np.zeros((16, 16), np.float16)
    registers = np.zeros((32, 4), np.uint32)
    registers[6, 3] = 0xC0000000
    assert str(difference(F16, "a", registers, tile)) == (
        f"operand a of {F16}: lane 6, register 3, bits 16-31 should hold element [9, 13]\n"
        "expected 0x0000 (0.0), got 0xc000 (-2.0); 1 of 256 elements differ, all in rows 9, columns 13\n"
        f"see who holds what: simwarp frag {F16}"
    )


# ---- what wrong elements have in common -----------------------------------------------------------------

RIGHT = draw(2).words(256).astype(np.uint32).reshape(16, 16)


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        (RIGHT.T, "here and there in all rows and columns; the matrix is transposed"),
        (RIGHT[np.arange(16) ^ 8], "in all rows and columns; rows 0-7 and 8-15 are exchanged"),
        (RIGHT[:, np.arange(16) ^ 8], "columns 0-7 and 8-15 are exchanged, the halves of k"),
        (RIGHT[:, np.arange(16) ^ 2], "[row, column] and [row, column ^ 2] are exchanged"),
        (RIGHT[np.arange(16) ^ 3][:, np.arange(16) ^ 8], "and [row ^ 3, column ^ 8] are exchanged"),
        (
            np.block([[RIGHT[:8, :8].T, RIGHT[:8, 8:].T], [RIGHT[8:, :8].T, RIGHT[8:, 8:].T]]),
            "each 8 x 8 block is transposed",
        ),
        (
            np.block([[RIGHT[:8, :8], RIGHT[8:, :8]], [RIGHT[:8, 8:], RIGHT[8:, 8:]]]),
            "bit 3 of the row and bit 3 of the column exchanged in all places",
        ),
        (np.vstack([RIGHT[8:]] * 2), "all in rows 0-7; they hold what belongs to the other half of the rows"),
        (np.hstack([RIGHT[:, :8]] * 2), "all in columns 8-15; they hold what belongs to the other half of k"),
        (np.roll(RIGHT, 1, axis=1), "in all rows and columns"),
        (RIGHT ^ 1, "in all rows and columns"),
        (np.where(np.indices((16, 16))[1] % 3, RIGHT, 0), "all in columns 0, 3, 6, 9 …"),
    ],
)  # fmt: skip
def test_patterns_of_wrong_elements_are_named(wrong, part):
    assert pattern(RIGHT, wrong, k="columns").endswith(part)


def test_one_wrong_element_has_no_pattern():
    wrong = RIGHT.copy()
    wrong[3, 5] = RIGHT[7, 1] ^ 1
    assert pattern(RIGHT, wrong) == "all in rows 3, columns 5"


def test_a_few_wrong_bits_have_no_pattern():
    """Ten wrong bits match some pattern by chance; 256 do not."""
    bits = RIGHT % 2
    few = bits.copy()
    few[0, :10] ^= 1
    assert pattern(bits, few) == "all in rows 0, columns 0-9"
    assert pattern(bits, bits[np.arange(16) ^ 8]).endswith("rows 0-7 and 8-15 are exchanged")


@pytest.mark.parametrize(
    ("kind", "units", "part"),
    [
        ("f32", [1, 1, 1], "each is one unit in the last place further from zero: another rounding"),
        ("f32", [-1, -1, -1], "each is one unit in the last place nearer to zero: another rounding"),
        ("f32", [1, -1, 4], "each is up to 4 units in the last place off: another rounding"),
        ("f32", [1, 1, 5], ""),
        ("s32", [3, 3, 3], "each is 3 more than expected"),
        ("s32", [-64, -64, -64], "each is 64 less than expected"),
        ("s32", [3, 3, 4], ""),
        ("b16", [1, 1, 1], ""),
    ],
)
def test_small_errors_are_named_in_ulp(kind, units, part):
    expected = np.array([[1.5, -2.25, 100, 0.125]], np.float32).view(np.uint32)
    got = expected.copy()
    got[0, :3] += np.array(units, np.int32).view(np.uint32)
    assert pattern(expected, got, kind) == "; ".join(filter(None, ["all in columns 0-2", part]))


def test_wrong_signs_and_nan_are_not_named_rounding():
    one = np.array([[1.0, 2.0]], np.float32)
    assert pattern(one.view(np.uint32), (-one).view(np.uint32), "f32") == "in all rows and columns"
    largest = np.array([[0x7F800000, 0x7F800000]], np.uint32)
    assert pattern(largest, largest + np.uint32(1), "f32") == "in all rows and columns"


# ---- from running kernels ------------------------------------------------------------------------------

ONES, PRODUCT = (
    0x3C003C00,
    F16 + " {%f0, %f1, %f2, %f3}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%f0, %f1, %f2, %f3};",
)


def ptx(body, functions=""):
    return f""".version 9.0
        .target sm_90
        .address_size 64
        {functions}
        .visible .entry k() {{
        .shared .align 32 .b8 tile[512];
        .reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %d<4>;
        {body}
        ret; }}"""


ACCUMULATE = f"""
    mov.b32 %r1, {ONES}; mov.u32 %r2, %tid.x; shr.u32 %r2, %r2, 5;
    mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
loop:
    {PRODUCT}
    sub.s32 %r2, %r2, 1; setp.ge.s32 %p1, %r2, 0;
    @%p1 bra loop;
"""


def launched(text, opcode="", line="", blocks=1, threads=32, **options):
    device = simwarp.Device(**options)
    with record_fragments(device, opcode, line) as recorded:
        device.load(text).kernel("k")((blocks, 1, 1), (threads, 1, 1))
    assert device.observers == []
    return recorded


@pytest.mark.parametrize("options", [{}, {"chunk_lanes": 32}, {"schedule": "random"}])
def test_every_execution_of_every_warp_is_recorded(options):
    """Warp w executes w + 1 iterations, overwriting its accumulators each time."""
    recorded = launched(ptx(ACCUMULATE), blocks=3, threads=96, **options)
    for block in range(3):
        for warp in range(3):
            executions = recorded.executions(block, warp)
            assert len(executions) == warp + 1
            for number, execution in enumerate(executions):
                execution.check("a", np.ones((16, 16)))
                execution.check("b", np.ones((16, 8)))
                execution.check("c", np.full((16, 8), 16.0 * number))
                execution.check("d", np.full((16, 8), 16.0 * (number + 1)))
                place = execution.place
                assert (place.kernel, place.block, place.warp) == ("k", (block, 0, 0), warp)
    assert recorded.executions((2, 0, 0), 2)[2].matrix("d").shape == (16, 8)


def test_a_difference_names_kernel_warp_and_line():
    (execution,) = launched(ptx(ACCUMULATE)).executions()
    with pytest.raises(FragmentDifference) as caught:
        execution.check("d", np.full((16, 8), 17.0))
    found = caught.value
    assert (found.place.kernel, found.place.warp, found.place.lane) == ("k", 0, 0)
    assert found.place.text == execution.place.text
    assert str(found).splitlines()[0].endswith(f"line {execution.place.line} `{execution.place.text}`")


def test_fragments_of_loads_and_stores_are_recorded():
    row = "mov.u32 %r1, %laneid; shl.b32 %r2, %r1, 4; mov.u32 %r3, tile; add.u32 %r2, %r2, %r3;"
    fill = "add.u32 %r4, %r1, 256; st.shared.v4.b32 [%r2], {%r4, %r4, %r4, %r4}; bar.warp.sync -1;"
    text = ptx(f"""{row} {fill}
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%r5, %r6}}, [%r2];
        wmma.load.a.sync.aligned.row.m16n16k16.shared.s8 {{%r7, %r8}}, [%r3], 16;
        bar.warp.sync -1;
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {{%r5}};
        movmatrix.sync.aligned.m8n8.trans.b16 %r9, %r5;
        mov.b32 %r10, 0; bar.warp.sync -1;
        wmma.store.d.sync.aligned.row.m8n8k32.shared.s32 [%r3], {{%r1, %r10}}, 8;
    """)  # fmt: skip
    loaded, wide, stored, moved, result = launched(text).executions()
    rows = np.array([[[lane + 256, 0] * 4 for lane in range(8 * i, 8 * i + 8)] for i in range(2)], np.uint16)
    loaded.check("r", rows)
    wide.check("a", rows.reshape(16, 8).view(np.int8))
    stored.check("r", rows[0].T)
    moved.check("a", rows[0].T)
    moved.check("d", rows[0])
    result.check("d", np.stack([np.arange(32), np.zeros(32, int)], axis=1).reshape(8, 8))


def test_only_selected_instructions_are_recorded():
    text = ptx(f"mov.u32 %r1, tile; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r1];\n{ACCUMULATE}")
    text = text.replace(
        "ldmatrix", "st.shared.v4.b32 [%r1], {%r1, %r1, %r1, %r1}; bar.warp.sync -1; ldmatrix"
    )
    everything = launched(text, checks={"races": "off"}).executions()
    assert [e.opcode.split(".")[0] for e in everything] == ["ldmatrix", "mma"]
    (product,) = launched(text, "mma", checks={"races": "off"}).executions()
    assert product.opcode == F16
    line = f"ptx:{product.place.line}"
    (again,) = launched(text, line=line, checks={"races": "off"}).executions()
    assert again.place.line == product.place.line
    recorded = launched(text, checks={"races": "off"})
    assert [e.opcode for e in recorded.executions(line=line)] == [F16]


def test_several_launches_are_recorded():
    device = simwarp.Device()
    kernel = device.load(ptx(ACCUMULATE)).kernel("k")
    with record_fragments(device) as recorded:
        kernel((1, 1, 1), (32, 1, 1))
        kernel((1, 1, 1), (64, 1, 1))
    kernel((4, 1, 1), (64, 1, 1))
    assert len(recorded.executions(warp=1, launch=1)) == 2
    with pytest.raises(ReportError, match="there was no launch 2\n2 were recorded\n"):
        recorded.executions(launch=2)
    recorded.clear()
    with pytest.raises(ReportError, match="there was no launch 0"):
        recorded.executions()


def test_unrecorded_executions_are_refused():
    recorded = launched(ptx(ACCUMULATE))
    with pytest.raises(ReportError) as caught:
        recorded.executions(warp=3, line="kernel.cu:7")
    assert str(caught.value).splitlines() == [
        "no matrix instructions of block 0, warp 3 at kernel.cu:7",
        f"recorded were 1 warps, at ptx:{recorded.executions()[0].place.line}",
        "choose one of these, or record other instructions",
    ]
    (execution,) = recorded.executions()
    with pytest.raises(FragmentError, match="no operand 'r'"):
        execution.matrix("r")


def test_overwritten_operands_after_a_call_are_unknown():
    text = ptx(ACCUMULATE.replace("loop:", "loop: call.uni nothing;"), ".func nothing() { ret; }")
    (execution,) = launched(text).executions()
    assert execution.registers.keys() == {"d", "a", "b"}
    execution.check("d", np.full((16, 8), 16.0))
    with pytest.raises(ReportError, match="operand c is not known: kernel k") as caught:
        execution.check("c", np.zeros((16, 8)))
    assert len(str(caught.value).splitlines()) == 3
