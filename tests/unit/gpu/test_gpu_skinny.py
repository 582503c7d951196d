"""The ±1 product of few rows or columns, on the simulator: every chip, kernel and ragged edge."""

import itertools

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm.skinny import SKINNY_SCHEMES
from reference.errors import FormatError, NotANumberError, SchemeError
from simwarp.verify import CASES, Draw
from support.rules import rule

SKINNY = SKINNY_SCHEMES["skinny"]
ARCHITECTURES = [(8, 0), (8, 9), (9, 0)]
SIZES = [
    (1, 1, 1),
    (8, 16, 512),
    (9, 17, 513),
    (16, 31, 127),
    (3, 101, 5003),
    (1, 257, 129),
    (33, 16, 700),
    (131, 8, 2049),
    (70, 9, 31),
    (300, 1, 4608),
    (16, 16, 128),
]
INT32 = np.iinfo(np.int32)


def values(rows, columns, k=0, dtype="float32"):
    return Draw(0, "test_gpu_skinny", k).matrix(rows, columns, dtype)


def words_of(dots, thresholds, flip=None):
    return reference.threshold(dots, thresholds, flip, word=32, first="lsb").words


@pytest.mark.at_most(1)
@pytest.mark.pairwise
@pytest.mark.parametrize("multiprocessors", [1, 132])  # four and eight warps
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_size_and_chip_equals_the_reference(arch, sizes, multiprocessors):
    (m, n, k), device = sizes, simwarp.Device(cc=arch)
    device.multiprocessors = multiprocessors
    a, b = values(m, k), values(k, n, 1)
    dots = reference.bmm(a, b)
    np.testing.assert_array_equal(gpu.bmm(a, b, scheme="skinny", device=device), dots, strict=True)
    thresholds, flip = rule(n, k)
    packed = gpu.bmm(a, b, scheme="skinny", thresholds=thresholds, flip=flip, device=device)
    assert (packed.shape, packed.layout, packed.word, packed.first) == ((m, n), "column", 32, "lsb")
    np.testing.assert_array_equal(packed.words, words_of(dots, thresholds, flip), strict=True)


@pytest.mark.at_most(4)
@pytest.mark.parametrize("sizes", [(5, 40, 300), (40, 5, 300)])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), list(itertools.product([False, True], repeat=2)))
def test_transposed_packed_and_prepared_operands_equal_the_reference(sizes, transpose_a, transpose_b):
    (m, n, k), device = sizes, simwarp.Device()
    a = values(*((k, m) if transpose_a else (m, k)), dtype="int8")
    b = values(*((n, k) if transpose_b else (k, n)), 1, "float16")
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    p = reference.pack(a, layout="row" if transpose_a else "column", first="lsb")
    q = gpu.prepare(b, "b", scheme="skinny", transpose=transpose_b, device=device)
    dots = reference.bmm(a, b, **options)
    for x, y in ((a, b), (p, b), (a, q), (p, q)):
        c = gpu.bmm(x, y, **options, scheme="skinny", device=device)
        np.testing.assert_array_equal(c if isinstance(c, np.ndarray) else c.download(), dots)
    c = gpu.bmm(device.upload(a), q, **options)  # "auto" chooses the same
    np.testing.assert_array_equal(c.download(), dots)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("schedule", ["stack", "random"])
@pytest.mark.parametrize("sizes", [(12, 17, 2100), (17, 3, 2100)])
def test_warps_share_k_under_every_schedule(sizes, schedule):
    m, n, k = sizes
    a, b = values(m, k), values(k, n, 1)
    c = gpu.bmm(a, b, scheme="skinny", device=simwarp.Device(schedule=schedule))
    np.testing.assert_array_equal(c, reference.bmm(a, b))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_extreme_dot_products_and_thresholds_are_exact(arch):
    k, device = 1000, simwarp.Device(cc=arch)
    a = np.repeat([[1], [-1]], k, 1).astype(np.int8)
    assert gpu.bmm(a, a, transpose_b=True, scheme="skinny", device=device).tolist() == [[k, -k], [-k, k]]
    thresholds = np.array([INT32.min, -k - 1, -k, -k + 1, 0, k, k + 1, INT32.max])
    b = np.ones((k, 8), np.int8)
    packed = gpu.bmm(a, b, scheme="skinny", thresholds=thresholds, device=device)
    assert [f"{word:08b}" for word in packed.words[0]] == ["00111111", "00000111"]


def test_output_bits_are_the_left_operand_of_the_next_product():
    device = simwarp.Device()
    a, b, c = values(6, 70), values(70, 45, 1), values(45, 50, 2)
    first = gpu.bmm(device.upload(a), b, scheme="skinny", thresholds=np.zeros(45, np.int32))
    signs = np.where(reference.bmm(a, b) >= 0, 1, -1).astype(np.int8)
    np.testing.assert_array_equal(gpu.bmm(first, c, scheme="skinny").download(), reference.bmm(signs, c))


def test_a_block_has_more_warps_for_a_long_k_and_few_blocks():
    def plan(m, n, k, output="int32"):
        plan = SKINNY.plan((m, n, k), output, (9, 0), 132)
        return plan.grid[0], plan.block[0]

    assert plan(8, 4096, 4096) == (256, 256)
    assert plan(8, 16384, 4096) == (1024, 128)
    assert plan(8, 4096, 2048) == (256, 128)
    assert plan(16384, 16, 4096) == (1024, 128)
    assert plan(1, 17, 1) == (2, 128)
    assert [plan(1, n, 1, "words")[0] for n in (1, 16, 17, 33)] == [2, 2, 2, 4]  # whole words
    assert [plan(m, 1, 1, "words")[0] for m in (17, 33)] == [2, 3]


@pytest.mark.parametrize(("few", "loads"), [(8, 12), (16, 16)])
def test_all_loads_of_four_steps_come_before_the_first_product(few, loads):
    for arch, operation in {(8, 0): "xor", (9, 0): "and"}.items():
        text = SKINNY.ptx(few, 8, "int32", arch, swapped=False).text
        assert f"m16n8k256.row.col.s32.b1.b1.s32.{operation}.popc" in text
        assert text.count("ld.global.v4.u32") == loads
        assert text.rindex("ld.global.v4.u32") < text.index("mma.sync")


def test_shapes_chips_and_operands_that_do_not_fit_are_refused():
    device, a, b = simwarp.Device(), values(17, 70), values(70, 17, 1)
    with pytest.raises(SchemeError, match=r"17 rows and 17 columns\nit takes up to 16 rows.*\nchoose btc2"):
        gpu.bmm(a, b, scheme="skinny", device=device)
    with pytest.raises(SchemeError, match=r"on sm_75\n.*sm_80\nchoose btc1"):
        gpu.bmm(a[:1], b, scheme="skinny", device=simwarp.Device(cc=(7, 5)))
    with pytest.raises(FormatError, match="skinny takes 'lsb'"):
        gpu.bmm(reference.pack(a[:3], layout="column"), b, scheme="skinny", device=device)
    bad = b.copy()
    bad[3, 4] = np.nan
    with pytest.raises(NotANumberError, match=r"b\[3, 4\] is NaN"):
        gpu.bmm(a[:2], bad, scheme="skinny", device=device)


def test_inputs_of_the_harness_cover_every_kernel():
    case, seen = CASES["bmm-skinny"], set()
    for k in range(60):
        item = case.draw(Draw(0, case.name, k))
        m, n, _ = item.sizes
        assert min(m, n) <= SKINNY.most
        plan = SKINNY.plan(item.sizes, "int32" if item.thresholds is None else "words", (9, 0), 132)
        seen.add((m > 16, min(m, n) > 8, item.thresholds is None, plan.block[0]))
    assert {one[:3] for one in seen} == set(itertools.product((False, True), repeat=3))
