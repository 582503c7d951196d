"""The ±1 product on bit tensor cores, on the simulator: every scheme, architecture and kind of operand."""

from dataclasses import replace

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm import SCHEMES, TENSOR_CORE_SCHEMES, pack_fsb, unpack_fsb
from gpu.bmm.fsb import fsb_ptx
from gpu.bmm.schemes import choose_scheme, product_ptx
from reference.errors import FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import PackedBits
from simwarp.verify.draw import Draw
from support.rules import rule

ARCHITECTURES = [(7, 5), (8, 0), (9, 0)]
SIZES = [
    (1, 1, 1),
    (8, 8, 128),
    (7, 9, 127),
    (16, 32, 256),
    (33, 31, 129),
    (15, 65, 385),
    (65, 33, 511),
    (1, 257, 513),
    (129, 1, 641),
    (130, 131, 1025),
    (3, 2, 5003),
]
INT32 = np.iinfo(np.int32)


def values(rows, columns, k=0, dtype="float32"):
    return Draw(0, "test_gpu_btc", k).matrix(rows, columns, dtype)


def assert_bits(packed, dots, thresholds, flip=None):
    expected = reference.threshold(dots, thresholds, flip, word=32, first="lsb")
    assert (packed.shape, packed.layout, packed.word, packed.first) == (dots.shape, "column", 32, "lsb")
    words = packed.words if isinstance(packed.words, np.ndarray) else packed.words.download()
    assert words.dtype == np.uint32
    np.testing.assert_array_equal(words, expected.words)


# Products


@pytest.mark.at_most(2)
@pytest.mark.pairwise
@pytest.mark.slow_cases(
    "sizes1-btc1-arch0",
    "sizes1-btc2-arch2",
    "sizes1-btc3-arch1",
    "sizes1-btc3-arch2",
    "sizes10-btc3-arch0",
    "sizes0-*",
)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("scheme", TENSOR_CORE_SCHEMES)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_size_and_architecture_equals_the_reference(arch, scheme, sizes):
    m, n, k = sizes
    a, b, device = values(m, k), values(k, n, 1), simwarp.Device(cc=arch)
    dots = reference.bmm(a, b)
    got = gpu.bmm(a, b, scheme=scheme, device=device)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, dots)
    thresholds, flip = rule(n, k)
    packed = gpu.bmm(a, b, scheme=scheme, thresholds=thresholds, flip=flip, device=device)
    assert_bits(packed, dots, thresholds, flip)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", TENSOR_CORE_SCHEMES)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, True), (True, False), (True, True)])
def test_transposed_real_and_packed_operands_equal_the_reference(scheme, transpose_a, transpose_b):
    m, n, k = 37, 35, 200
    a = values(*((k, m) if transpose_a else (m, k)), dtype="int8")
    b = values(*((n, k) if transpose_b else (k, n)), 1, "float16")
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    p = reference.pack(a, layout="row" if transpose_a else "column", first="lsb")
    q = reference.pack(b, layout="column" if transpose_b else "row", first="lsb")
    device, dots = simwarp.Device(), reference.bmm(a, b, **options)
    for x in (a, p, replace(p, words=device.upload(p.words))):
        for y in (b, q):
            c = gpu.bmm(x, y, **options, scheme=scheme, device=device)
            np.testing.assert_array_equal(c if isinstance(c, np.ndarray) else c.download(), dots)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("scheme", TENSOR_CORE_SCHEMES)
def test_extreme_dot_products_are_exact(arch, scheme):
    k = 1000
    a = np.repeat([[1], [-1]], k, 1).astype(np.int8)
    c = gpu.bmm(a, a, transpose_b=True, scheme=scheme, device=simwarp.Device(cc=arch))
    assert c.tolist() == [[k, -k], [-k, k]]


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", TENSOR_CORE_SCHEMES)
def test_thresholds_at_the_ends_of_dots_and_int32_are_exact(scheme):
    k = 33
    thresholds = np.array([INT32.min, INT32.min + 1, -k - 1, -k, -k + 1, 0, k - 1, k, k + 1, INT32.max])
    b = np.ones((k, 10), np.int8)
    a = np.concatenate([b.T[:1], -b.T[:1]])
    packed = gpu.bmm(a, b, scheme=scheme, thresholds=thresholds, device=simwarp.Device())
    plus, minus = (reference.unpack(packed) > 0).tolist()
    assert plus == [True] * 8 + [False] * 2
    assert minus == [True] * 4 + [False] * 6


@pytest.mark.parametrize("scheme", TENSOR_CORE_SCHEMES)
def test_output_bits_are_the_left_operand_of_the_next_product(scheme):
    device = simwarp.Device()
    a, b, c = values(40, 70), values(70, 45, 1), values(45, 50, 2)
    first = gpu.bmm(device.upload(a), b, scheme=scheme, thresholds=np.zeros(45, np.int32))
    signs = np.where(reference.bmm(a, b) >= 0, 1, -1).astype(np.int8)
    second = gpu.bmm(first, c, scheme=scheme)
    np.testing.assert_array_equal(second.download(), reference.bmm(signs, c))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("output", ["int", "bits"])
@pytest.mark.parametrize("scheme", TENSOR_CORE_SCHEMES.values(), ids=TENSOR_CORE_SCHEMES)
def test_products_use_the_instructions_of_the_chip(scheme, output):
    for arch, operation in {
        (7, 5): "m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
        (8, 0): "m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
        (8, 9): "m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
        (9, 0): "m16n8k256.row.col.s32.b1.b1.s32.and.popc",
    }.items():
        text = product_ptx(scheme, output, "lsb", arch).text
        products = [line for line in text.splitlines() if "mma.sync" in line]
        assert products
        assert all(operation in line for line in products)
        assert "cp.async" not in text
        assert (".shared" in text) == (scheme.step > 0)


def test_every_scheme_launches_at_most_1024_threads():
    for scheme in TENSOR_CORE_SCHEMES.values():
        assert 32 <= scheme.launch(64, 64)[1][0] <= 1024
        assert scheme.launch(129, 64)[0] == (-(-129 // scheme.block_tile[0]), 1, 1)
        assert 2 * sum(scheme.block_tile) * scheme.step * 16 <= 48 * 1024
        assert choose_scheme(scheme.name, 2**31 - 1) is scheme
    assert not TENSOR_CORE_SCHEMES.keys() & SCHEMES.keys()


# Tiles


def tiles_of(bits, order):
    """The FSB format of figure 14, bit by bit in Python."""
    lines = bits if order == "row" else bits.T
    count, length = lines.shape
    words = np.zeros((-(-count // 8), -(-length // 128), 8, 4), np.uint32)
    for line, i in zip(*np.nonzero(lines), strict=True):
        words[line // 8, i // 128, line % 8, i % 128 // 32] |= np.uint32(1 << (i % 32))
    return words


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize(
    "shape", [(1, 1), (8, 128), (7, 127), (9, 129), (33, 200), (130, 3), (3, 1100), (1100, 65)]
)
def test_tiling_is_reversible(shape, order):
    x, device = values(*shape), simwarp.Device()
    bits = reference.binarize(x)
    packed = pack_fsb(x, order=order, device=device)
    assert (packed.shape, packed.order) == (shape, order)
    np.testing.assert_array_equal(packed.words.download(), tiles_of(bits, order))
    np.testing.assert_array_equal(packed.ones.download(), bits.sum(axis=1 if order == "row" else 0))
    words = unpack_fsb(packed)
    expected = reference.pack(x, layout="column" if order == "row" else "row", first="lsb")
    assert (words.shape, words.layout, words.first) == (shape, expected.layout, "lsb")
    np.testing.assert_array_equal(words.words.download(), expected.words)


def test_column_tiles_equal_row_tiles_of_the_transpose():
    x, device = values(50, 140), simwarp.Device()
    of_columns = pack_fsb(x, order="column", device=device).words.download()
    of_rows = pack_fsb(np.ascontiguousarray(x.T), device=device).words.download()
    np.testing.assert_array_equal(of_columns, of_rows)


def test_a_bit_is_stored_at_its_tile_and_its_row_of_the_tile():
    # A tile is 128 consecutive bytes for every width of the matrix.
    x = -np.ones((16, 256), np.float32)
    x[9, 130] = 1
    words = pack_fsb(x, device=simwarp.Device()).words.download().ravel()
    assert np.flatnonzero(words).tolist() == [(1 * 2 + 1) * 32 + 1 * 4 + 0]
    assert words.max() == 1 << 2


def test_both_formats_have_the_same_kernels():
    for format in ("fsb", "lines"):
        for arch in ARCHITECTURES:
            text = fsb_ptx(format, arch).text
            assert ".entry arrange(" in text
            assert ".entry restore(" in text


# Bad input


@pytest.mark.parametrize("scheme", TENSOR_CORE_SCHEMES)
def test_operands_of_other_formats_are_refused(scheme):
    a, b, device = values(9, 70), values(70, 5, 1), simwarp.Device()
    for operand, words in [
        (reference.pack(a, layout="column"), ["first='msb'", scheme, "first='lsb'"]),
        (reference.pack(a, layout="column", word=64, first="lsb"), ["64 bits", scheme, "word=32"]),
        (reference.pack(a, first="lsb"), ["layout='row'", "layout='column'"]),
    ]:
        with pytest.raises(FormatError) as caught:
            gpu.bmm(operand, b, scheme=scheme, device=device)
        assert all(word in str(caught.value) for word in ["a is packed", *words])
    with pytest.raises(ShapeError, match="K is 70 in one and 69 in the other"):
        gpu.bmm(a, b[:69], scheme=scheme, device=device)
    dirty = reference.pack(a, layout="column", first="lsb")
    dirty.words[-1] |= np.uint32(1 << 31)
    with pytest.raises(FormatError, match="bits past the edge"):
        gpu.bmm(dirty, b, scheme=scheme, device=device)


def test_nan_and_unknown_names_are_refused():
    device, x = simwarp.Device(), np.ones((3, 3))
    bad = np.where(np.eye(3) > 0, np.nan, 1)
    with pytest.raises(NotANumberError, match=r"a\[0, 0\] is NaN"):
        gpu.bmm(bad, x, scheme="btc3", device=device)
    packed = pack_fsb(bad, device=device)
    with pytest.raises(NotANumberError, match="replace NaNs"):
        packed.words.download()
    with pytest.raises(SchemeError, match="btc1, btc2, btc3"):
        gpu.bmm(x, x, scheme="btc4", device=device)
    with pytest.raises(SchemeError, match="order='diagonal'\nthis order is unknown"):
        pack_fsb(x, order="diagonal", device=device)


def test_a_second_launch_gives_the_same_result():
    device = simwarp.Device()
    a, b = device.upload(values(40, 300)), device.upload(values(300, 40, 1))
    once, again = (gpu.bmm(a, b, scheme="btc3", thresholds=np.zeros(40, int)).words for _ in "ab")
    np.testing.assert_array_equal(once.download(), again.download())
    assert isinstance(gpu.bmm(a, b, scheme="btc1", thresholds=np.zeros(40, int)), PackedBits)
