"""Lines of whole pieces, and their ones, straight from real matrices, on the simulator."""

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm.lines import lines_plan, lines_ptx, pack_lines
from reference.errors import NotANumberError
from simwarp.verify.draw import DTYPES, Draw
from support.offset_array import OffsetArray

ARCHITECTURES = [(7, 5), (8, 0), (9, 0)]
PER_VECTOR = {"float64": 2, "float32": 4, "float16": 8, "int8": 16}
SHAPES = [(1, 1), (33, 31), (2, 1025), (513, 3), (1, 16), (9, 128), (5, 1040), (130, 144)]


def values(rows, columns, dtype):
    """Random bit patterns without NaN; an eighth are ±0, ±inf, subnormals and similar."""
    return Draw(0, "test_gpu_lines", rows).matrix(rows, columns, dtype)


def assert_lines(given, x, axis, device):
    shape, words, ones = pack_lines(given, "x", axis, device)
    expected = reference.pack(x, layout="row" if axis else "column", first="lsb").words.T
    padded = np.pad(expected, ((0, 0), (0, -expected.shape[1] % 4)))
    assert shape == x.shape
    assert (words.dtype, ones.dtype) == (np.uint32, np.uint32)
    np.testing.assert_array_equal(words.download(), padded.reshape(len(padded), -1, 4))
    np.testing.assert_array_equal(ones.download(), np.bitwise_count(padded).sum(1))


@pytest.mark.at_most(1)
@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_lines_and_ones_equal_the_reference(shape, arch, axis, dtype):
    x = values(*shape, dtype)
    assert_lines(x, x, axis, simwarp.Device(cc=arch))


@pytest.mark.parametrize("columns", [2048, 5000])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_several_warps_share_a_long_row(dtype, columns):
    x, device = values(3, columns, dtype), simwarp.Device()
    assert lines_plan(device.upload(x), 0, device.multiprocessors)[2] == (
        (64, 4, 1) if columns == 2048 else (256, 1, 1)
    )
    assert_lines(x, x, 0, device)


@pytest.mark.parametrize(
    ("dtype", "offset"),
    [
        (dtype, offset)
        for dtype in DTYPES
        for offset in (16, 8, 4, 2, 1)
        if offset % np.dtype(dtype).itemsize == 0
    ],
)
def test_a_misaligned_matrix_takes_the_scalar_kernels(dtype, offset):
    x, device = values(5, 48, dtype), simwarp.Device()
    given = OffsetArray(device, x, offset)
    for axis, names in enumerate(("lines_of_rows", "lines_of_columns")):
        name = lines_plan(given, axis, 1)[0]
        assert name == names + "_vector" * (offset % (4 if axis else 16) == 0)
        assert_lines(given, x, axis, device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_start_at_16_bytes_and_pairs_of_columns_are_loaded_as_vectors(dtype):
    device, n = simwarp.Device(), PER_VECTOR[dtype]
    found = [
        [lines_plan(device.upload(values(2, columns, dtype)), axis, 1)[0] for axis in (0, 1)]
        for columns in (3 * n, 3 * n + 1)
    ]
    ragged = "lines_of_columns" if dtype in ("float16", "int8") else "lines_of_columns_vector"
    assert found == [["lines_of_rows_vector", "lines_of_columns_vector"], ["lines_of_rows", ragged]]


@pytest.mark.parametrize(
    ("rows", "columns", "block", "grid"),
    [
        (1, 1024, (32, 8, 1), 1),  # a row is one batch
        (1, 1025, (64, 4, 1), 1),
        (9, 16384, (256, 1, 1), 9),
        (100, 2049, (128, 2, 1), 50),
        (128, 4096, (64, 4, 1), 32),  # 256 warps are enough for 8 multiprocessors
        (300, 4096, (32, 8, 1), 38),
    ],
)
def test_few_long_rows_get_several_warps_each(rows, columns, block, grid):
    device = simwarp.Device()
    x = device.allocate((rows, columns), np.int8)
    assert lines_plan(x, 0, 8) == (
        "lines_of_rows_vector" if columns % 16 == 0 else "lines_of_rows",
        (grid, 1, 1),
        block,
    )


@pytest.mark.parametrize(
    ("rows", "columns", "grid"),
    [
        (1536, 5, (1, 1, 1)),  # three turns are not worth another launch
        (1537, 5, (1, 4, 1)),
        (10000, 33, (2, 8, 1)),
        (10000, 300, (10, 1, 1)),
    ],
)
def test_few_long_columns_get_several_blocks_each(rows, columns, grid):
    device = simwarp.Device()
    x = device.allocate((rows, columns), np.float32)
    assert lines_plan(x, 1, 8) == ("lines_of_columns_vector", grid, (512, 1, 1))


@pytest.mark.at_most(2)
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("columns", [3, 132])
def test_blocks_that_share_columns_count_their_ones_together(dtype, columns):
    x, device = values(2055, columns, dtype), simwarp.Device()
    given = device.upload(x)
    for _ in range(2):  # the second time in memory that held the first ones
        assert lines_plan(given, 1, device.multiprocessors)[1][1] == 5
        assert_lines(given, x, 1, device)
    b = gpu.prepare(given, "b", scheme="btc2")
    a = values(2, 2055, "int8")
    np.testing.assert_array_equal(gpu.bmm(a, b, scheme="btc2").download(), reference.bmm(a, x))
    for _ in range(2):  # recorded, and played
        c = gpu.bmm(device.upload(a), given, scheme="btc2")
        np.testing.assert_array_equal(c.download(), reference.bmm(a, x))


@pytest.mark.at_most(3)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("columns", [47, 48])
def test_a_nan_anywhere_is_reported(dtype, axis, columns):
    device = simwarp.Device()
    for at in [(0, 0), (0, columns - 1), (1, 17), (34, 30), (34, columns - 1)]:
        for nan in (np.nan, -np.nan):
            x = np.full((35, columns), -np.inf, dtype)
            x[at] = nan
            pack_lines(device.upload(x), "x", axis, device)
            with pytest.raises(NotANumberError):
                device.synchronize()
    pack_lines(device.upload(np.full((35, columns), np.inf, dtype)), "x", axis, device)
    device.synchronize()


@pytest.mark.parametrize("axis", [0, 1])
def test_every_payload_of_a_half_has_its_sign_or_is_nan(axis):
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x, device = every[~np.isnan(every)].reshape(70, -1), simwarp.Device()
    assert_lines(device.upload(x), x, axis, device)
    device.synchronize()


@pytest.mark.parametrize("bits", [0x7FF0000000000001, 0xFFF8000000000000, 0x7FF0000100000000])
def test_a_nan_of_either_half_of_a_double_is_reported(bits):
    device, x = simwarp.Device(), np.ones((2, 2), np.uint64)
    x[1, 1] = bits
    pack_lines(device.upload(x.view(np.float64)), "x", 0, device)
    with pytest.raises(NotANumberError):
        device.synchronize()


@pytest.mark.parametrize("scheme", ["btc1", "btc2"])
def test_a_real_operand_of_a_scheme_of_lines_takes_one_kernel(scheme):
    device = simwarp.Device()
    x = device.upload(values(37, 70, "float32"))
    for role in "ab":
        before = device.launches
        prepared = gpu.prepare(x, role, scheme=scheme)
        assert device.launches == before + 1
        assert (prepared.form, prepared.first, prepared.shape) == ("lines", "lsb", (37, 70))
        lines, bits = (37, 70) if role == "a" else (70, 37)
        assert prepared.words.shape == (lines, -(-bits // 128), 4)


def test_vectors_are_loaded_at_once():
    text = lines_ptx("float32", (9, 0)).text
    entry = text[text.index(".entry lines_of_rows_vector") :]
    assert entry.count("ld.global.nc.v4.u32") == 8
    assert entry.index("set.nan") > entry.rindex("ld.global.nc.v4.u32")
