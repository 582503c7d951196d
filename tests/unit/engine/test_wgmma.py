"""Products of warpgroups: every type, sizes of N, A in registers, layouts in shared memory, signs.

The oracle is the matrix product in integers. Floats are small integers times a power of two, so that every
order of the sum is exact, except where `scalar_matrix_numbers` adds as the chip does.
"""

import numpy as np
import pytest

import simwarp
from oracles import scalar_matrix_numbers as scalar
from simwarp.faults import PtxSyntaxError, UnsupportedInstruction
from simwarp.floats import narrow
from support import warpgroup_kernels as warpgroups
from support.warpgroup_kernels import Tile, multiply

SCHEDULES = ["lowest pc", "stack", "random"]
MMA = "wgmma.mma_async.sync.aligned"
KINDS = {
    "b1": (f"{MMA}.m64n{{}}k256.s32.b1.b1.and.popc", 256),
    "s8 u8": (f"{MMA}.m64n{{}}k32.s32.s8.u8", 32),
    "u8 s8": (f"{MMA}.m64n{{}}k32.s32.u8.s8", 32),
    "s8": (f"{MMA}.m64n{{}}k32.s32.s8.s8", 32),
    "u8": (f"{MMA}.m64n{{}}k32.s32.u8.u8", 32),
    "f16": (f"{MMA}.m64n{{}}k16.f32.f16.f16", 16),
    "f16 f16": (f"{MMA}.m64n{{}}k16.f16.f16.f16", 16),
    "bf16": (f"{MMA}.m64n{{}}k16.f32.bf16.bf16", 16),
    "tf32": (f"{MMA}.m64n{{}}k8.f32.tf32.tf32", 8),
    "e4m3": (f"{MMA}.m64n{{}}k32.f32.e4m3.e5m2", 32),
    "e5m2 f16": (f"{MMA}.m64n{{}}k32.f16.e5m2.e4m3", 32),
}
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def drawn(kind, shape, random):
    """Small integers that a type holds, and their words."""
    if kind == "b1":
        x = random.integers(0, 2, shape)
        return x, x.astype(np.uint8)
    if kind in ("s8", "u8"):
        x = random.integers(-128, 128, shape) + 128 * (kind == "u8")
        return x, x.astype(np.uint8)
    x = random.integers(-3, 4, shape)
    return x, stored(kind, x)


def stored(kind, x):
    """Numbers as words of a type; the low 13 bits of tf32 are not 0."""
    if kind == "s32":
        return x.astype(np.int32).view(np.uint32)
    if kind in ("f32", "tf32"):
        return x.astype(np.float32).view(np.uint32) | np.uint32(0x1ABC * (kind == "tf32"))
    return x.astype(np.float16).view(np.uint16) if kind == "f16" else narrow(x.astype(np.float32), kind)


def case(name, n, blocks=2, seed=0):
    """Opcode, integers a, b and c, and their words."""
    opcode, k = KINDS[name][0].format(n), KINDS[name][1]
    d, left, right = warpgroups.types_of(opcode)
    random = np.random.default_rng([n, seed])
    (a, a_words), (b, b_words) = drawn(left, (blocks, 64, k), random), drawn(right, (blocks, n, k), random)
    c = (
        random.integers(-500, 500, (blocks, 64, n))
        if d != "f16"
        else random.integers(-99, 99, (blocks, 64, n))
    )
    return opcode, (a, b, c), (a_words, b_words, stored(d, c))


def expected(opcode, a, b, c):
    return stored(warpgroups.types_of(opcode)[0], a @ b.swapaxes(-1, -2) + c)


@pytest.mark.at_most(28)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "registers"])
@pytest.mark.parametrize("n", [8, 24, 64, 192, 256])
@pytest.mark.parametrize("name", list(KINDS))
def test_products_are_those_of_integers(name, n, shared):
    opcode, numbers, words = case(name, n)
    assert np.array_equal(multiply(opcode, *words, shared=shared), expected(opcode, *numbers))


@every_schedule
@pytest.mark.parametrize("name", ["b1", "f16", "f16 f16", "s8"])
def test_without_scale_d_the_accumulators_start_at_zero(name, schedule):
    opcode, (a, b, c), words = case(name, 16)
    device = simwarp.Device(schedule=schedule)
    found = multiply(opcode, *words, keeps="%no", device=device)
    assert np.array_equal(found, expected(opcode, a, b, 0 * c))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "registers"])
@pytest.mark.parametrize("signs", [(-1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("name", ["f16", "f16 f16", "bf16", "tf32", "e4m3"])
def test_a_scale_of_minus_one_negates_a_matrix(name, signs, shared):
    opcode, (a, b, c), words = case(name, 24)
    found = multiply(opcode, *words, signs=signs, shared=shared)
    assert np.array_equal(found, expected(opcode, signs[0] * a, signs[1] * b, c))


@pytest.mark.parametrize("place", ["m64n16k32.satfinite.s32.s8.s8", "m64n16k32.s32.s8.s8.satfinite"])
def test_satfinite_clamps_where_other_sums_wrap(place):
    a, b = np.full((1, 64, 32), 127), np.full((1, 16, 32), 127)
    b[:, 8:] = -128
    c = np.full((1, 64, 16), 2**31 - 5)
    c[:, :, 8:] = -(2**31) + 5
    words = a.astype(np.uint8), b.astype(np.uint8), stored("s32", c)
    clamped = np.clip(a @ b.swapaxes(-1, -2) + c, -(2**31), 2**31 - 1)
    assert np.array_equal(multiply(f"{MMA}.{place}", *words).view(np.int32), clamped)
    wrapped = multiply(f"{MMA}.m64n16k32.s32.s8.s8", *words)
    assert np.array_equal(wrapped, (a @ b.swapaxes(-1, -2) + c).astype(np.uint32))


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("name", ["b1", "s8", "f16", "tf32", "e4m3"])
def test_k_major_tiles_of_each_swizzle(name, span):
    """A at offset 0 and B behind it; each row holds the 32 bytes of k at the start of its span."""
    opcode, numbers, words = case(name, 24)
    pitch = span or 32
    left, right = Tile(0, 64, span), Tile(64 * pitch, 24, span)
    size = (64 + 24) * pitch
    assert np.array_equal(multiply(opcode, *words, left, right, size=size), expected(opcode, *numbers))


@pytest.mark.parametrize(("span", "step"), [(64, 1), (128, 1), (128, 2), (128, 3)])
def test_the_next_k_within_a_span_is_32_bytes_further(span, step):
    opcode, numbers, words = case("f16", 16)
    left, right = Tile(32 * step, 64, span), Tile(64 * span + 32 * step, 16, span)
    assert np.array_equal(multiply(opcode, *words, left, right, size=80 * span), expected(opcode, *numbers))


@pytest.mark.parametrize("which", ["a", "b", "ab"])
@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_transposed_tiles_of_each_swizzle(name, span, which):
    opcode, numbers, words = case(name, 64)
    first = 8192
    left = Tile(0, 64, span, transposed="a" in which)
    right = Tile(first, 64, span, transposed="b" in which)
    found = multiply(opcode, *words, left, right, size=2 * first)
    assert np.array_equal(found, expected(opcode, *numbers))


def test_a_transposed_b_beside_a_in_registers():
    opcode, numbers, words = case("f16", 128)
    right = Tile(0, 128, 128, transposed=True)
    found = multiply(opcode, *words, None, right, size=8192, shared=False)
    assert np.array_equal(found, expected(opcode, *numbers))


def test_offsets_may_leave_gaps_between_core_matrices():
    opcode, numbers, words = case("s8", 16)
    left, right = Tile(0, 64, leading=2048, stride=160), Tile(4096, 16, leading=512, stride=144)
    assert np.array_equal(multiply(opcode, *words, left, right, size=8192), expected(opcode, *numbers))


@pytest.mark.parametrize(("span", "base"), [(128, 3), (64, 1), (32, 1)])
def test_the_base_offset_shifts_the_swizzle(span, base):
    opcode, numbers, words = case("f16", 8)
    left = Tile(128 * base, 64, span, base=base)
    right = Tile(16384, 8, span)
    assert np.array_equal(multiply(opcode, *words, left, right, size=20480), expected(opcode, *numbers))


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2 f16", "f16 f16"])
def test_random_floats_are_added_as_the_chip_adds_them(name, monkeypatch):
    """All addends in one sum; bytes of floats keep 13 bits, in the sum and of f32."""
    opcode, _, (a, b, c) = case(name, 8, blocks=1)
    d, left, right = warpgroups.types_of(opcode)
    random = np.random.default_rng(5)
    for words in (a, b, c):
        words[...] = random.integers(0, 2 ** (8 * words.itemsize), words.shape).astype(words.dtype)
        words[...] &= words.dtype.type(
            0xBFFF if words.itemsize == 2 else 0xBFFFFFFF if words.itemsize == 4 else 0xBF
        )
    kept = 13 if left in ("e4m3", "e5m2") else 25
    found = multiply(opcode, a, b, c)[0]
    for row, column in random.integers(0, (64, 8), (24, 2)).tolist():
        parts = [
            [scalar.parts(kind, int(word)) for word in words]
            for kind, words in ((left, a[0, row]), (right, b[0, column]), (d, c[0, row, column : column + 1]))
        ]
        assert found[row, column] == one_sum(d, *parts[:2], parts[2][0], kept)


def one_sum(d, row, column, start, kept):
    """The sum with ``kept`` bits by `scalar_matrix_numbers`, and as many of its own if it is an f32."""
    before, scalar.KEPT = scalar.KEPT, kept
    try:
        word = scalar.fused(d, row, column, start)
    finally:
        scalar.KEPT = before
    return word if d == "f16" or kept == 25 else word & ~((1 << 23 - kept) - 1)


@every_schedule
def test_groups_of_products_on_two_accumulators(schedule):
    """Two chains of two products; the first group is waited for while the second one is in flight."""
    opcode, (a, b, c), words = case("s8", 8, blocks=3)
    d = warpgroups.fragments_of(opcode).operands["d"].layout
    left, right = Tile(0, 64), Tile(2048, 8)
    image = np.zeros((3, 2304), np.uint8)
    for one, rows, columns in zip(image, words[0], words[1], strict=True):
        left.write(one, rows)
        right.write(one, columns)
    first, second = warpgroups.registers(4), warpgroups.registers(4, "c")
    body = f"""mov.b64 %x, {left.word:#x}; mov.b64 %y, {right.word:#x};
mov.b32 %c0, 0; mov.b32 %c1, 0; mov.b32 %c2, 0; mov.b32 %c3, 0;
{warpgroups.ORDER}
{opcode} {first}, %x, %y, %yes; {opcode} {first}, %x, %y, %yes; {warpgroups.COMMIT}
{opcode} {second}, %x, %y, %no; {opcode} {second}, %x, %y, %yes; {warpgroups.COMMIT}
wgmma.wait_group.sync.aligned 1;
add.u32 %d0, %d0, 1000; add.u32 %d1, %d1, 1000; add.u32 %d2, %d2, 1000; add.u32 %d3, %d3, 1000;
{warpgroups.WAIT}
""" + " ".join(f"add.u32 %d{i}, %d{i}, %c{i};" for i in range(4))
    text = warpgroups.kernel(opcode, body, 2304)
    found = d.unpack(
        warpgroups.launch(text, image, d.pack(words[2]), device=simwarp.Device(schedule=schedule))
    )
    assert np.array_equal(found.view(np.int32), c + 4 * (a @ b.swapaxes(-1, -2)) + 1000)


@pytest.mark.parametrize(
    ("target", "opcode", "operands", "kind"),
    [
        ("sm_90", f"{MMA}.m64n8k32.s32.s8.s8", "{D}, x, x, p", UnsupportedInstruction),
        ("sm_100a", f"{MMA}.m64n8k32.s32.s8.s8", "{D}, x, x, p", UnsupportedInstruction),
        ("sm_90a", f"{MMA}.m64n40k32.s32.s8.s8", "{D}, x, x, p", UnsupportedInstruction),
        (
            "sm_90a",
            "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8",
            "{D}, x, x, r0, 0, p",
            UnsupportedInstruction,
        ),
        ("sm_90a", f"{MMA}.m64n8k32.s32.s8.s8", "{D}, x, x, p, 1, 1", PtxSyntaxError),
        ("sm_90a", f"{MMA}.m64n8k16.f32.f16.f16", "{D}, x, x, p", PtxSyntaxError),
        ("sm_90a", f"{MMA}.m64n8k16.f32.f16.f16", "{D}, x, x, p, 1, 1, 0", PtxSyntaxError),
        ("sm_90a", f"{MMA}.m64n8k16.f32.f16.f16", "{D}, {D}, x, p, 1, 1, 0, 0", PtxSyntaxError),
        ("sm_90a", f"{MMA}.m64n8k16.f32.f16.f16", "{D}, x, x, p, 0, 1, 0, 0", PtxSyntaxError),
        ("sm_90a", f"{MMA}.m64n8k16.f32.f16.f16", "{D}, x, x, p, 1, 1, 2, 0", PtxSyntaxError),
        ("sm_90a", f"{MMA}.m64n16k16.f32.f16.f16", "{D}, x, x, p, 1, 1, 0, 0", PtxSyntaxError),
    ],
)
def test_what_ptxas_refuses_is_refused(target, opcode, operands, kind):
    operands = operands.replace("{D}", "{r0, r1, r2, r3}")
    text = f""".version 9.0
.target {target}
.address_size 64
.visible .entry k() {{ .reg .b32 r<4>; .reg .b64 x; .reg .pred p; {opcode} {operands}; ret; }}"""
    with pytest.raises(kind):
        simwarp.Device(cc=(10, 0) if target == "sm_100a" else (9, 0)).load(text).kernel("k")


@every_schedule
@pytest.mark.parametrize("where", ["in flight", "between products", "after the wait"])
def test_few_warps_that_loop_keep_their_registers_in_flight(where, schedule):
    """One block of twelve loops by itself, on a compact copy of its warps under the default schedule."""
    opcode, (a, b, c), words = case("s8", 8, blocks=12)
    d = warpgroups.fragments_of(opcode).operands["d"].layout
    left, right = Tile(0, 64), Tile(2048, 8)
    image = np.zeros((12, 2304), np.uint8)
    for one, rows, columns in zip(image, words[0], words[1], strict=True):
        left.write(one, rows)
        right.write(one, columns)
    loop = """mov.u32 %r2, %ctaid.x; setp.eq.u32 %done, %r2, 5; selp.b32 %r2, 40, 0, %done;
SPIN: setp.eq.u32 %done, %r2, 0; @%done bra GO; sub.u32 %r2, %r2, 1; bra SPIN;
GO:"""
    product = f"{opcode} {warpgroups.registers(4)}, %x, %y, %yes;\n"
    body = {
        "between products": product + loop + product + warpgroups.COMMIT + warpgroups.WAIT,
        "in flight": product * 2 + warpgroups.COMMIT + loop + warpgroups.WAIT,
        "after the wait": product * 2 + warpgroups.COMMIT + warpgroups.WAIT + loop,
    }[where]
    setup = f"mov.b64 %x, {left.word:#x}; mov.b64 %y, {right.word:#x};\n{warpgroups.ORDER}"
    text = warpgroups.kernel(opcode, setup + body, 2304)
    device = simwarp.Device(schedule=schedule)
    found = d.unpack(warpgroups.launch(text, image, d.pack(words[2]), device=device))
    assert np.array_equal(found.view(np.int32), c + 2 * (a @ b.swapaxes(-1, -2)))


@every_schedule
def test_consumers_wait_and_multiply_beside_a_producer(schedule):
    """Two warpgroups multiply 64 rows each; a third one only takes part in the barriers."""
    opcode, (a, b, c), words = case("f16", 16, blocks=4)
    d = warpgroups.fragments_of(opcode).operands["d"].layout
    left, right = Tile(0, 64), Tile(2048, 16)
    image = np.zeros((4, 2560), np.uint8)
    for one, rows, columns in zip(image, words[0], words[1], strict=True):
        left.write(one, rows.view(np.uint8))
        right.write(one, columns.view(np.uint8))
    product = f"{opcode} {warpgroups.registers(8)}, %x, %y, %yes, 1, 1, 0, 0;\n"
    body = f"""mov.b64 %x, {left.word:#x}; mov.b64 %y, {right.word:#x};
setp.ge.u32 %done, %t, 256;
@%done bra PRODUCER;
mov.u32 %r1, 3;
AGAIN: bar.sync 1, 384;
{warpgroups.ORDER}{product}{product}{warpgroups.COMMIT}{warpgroups.WAIT}bar.sync 2, 384;
sub.u32 %r1, %r1, 1; setp.ne.u32 %done, %r1, 0; @%done bra AGAIN; bra END;
PRODUCER: mov.u32 %r1, 3;
MORE: bar.sync 1, 384; bar.sync 2, 384;
sub.u32 %r1, %r1, 1; setp.ne.u32 %done, %r1, 0; @%done bra MORE;
END:"""
    text = warpgroups.kernel(opcode, body, 2560, threads=384)
    packed = np.tile(d.pack(words[2]), (1, 3, 1))
    device = simwarp.Device(schedule=schedule)
    found = warpgroups.launch(text, image, packed, device=device, threads=384).reshape(4, 3, 128, 8)
    expects = stored("f32", 6 * (a @ b.swapaxes(-1, -2)) + c)
    assert np.array_equal(d.unpack(found[:, 0]), expects)
    assert np.array_equal(d.unpack(found[:, 1]), expects)
    assert np.array_equal(found[:, 2], d.pack(words[2]))
