"""Stacks of matrices in one launch on warpgroups: every output and tile, ragged sizes, and mutants."""

from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import gpu.compile
import reference
import simwarp
from gpu.bmm.warpgroups import TILES, WARPGROUP_SCHEMES
from reference.errors import ShapeError
from simwarp.faults import KernelFault
from simwarp.verify.draw import Draw
from support.rules import rule

SOURCES = Path(gpu.compile.__file__).parent
WGMMA = WARPGROUP_SCHEMES["wgmma"]
SCHEDULES = ["stack", pytest.param("random", marks=pytest.mark.slow)]


def operand(count, rows, columns, seed=0):
    values = Draw(0, "test_gpu_wgmma_stacks", seed).matrix((count or 1) * rows, columns, "int8")
    return values.reshape((rows, columns) if count is None else (count, rows, columns))


def check(device, counts, sizes, output):
    """Compare a product; A is packed, so that its rows are not taken as those of one matrix."""
    m, n, k = sizes
    a, b = operand(counts[0], m, k), operand(counts[1], k, n, 1)
    dots = reference.bmm(a, b)
    thresholds, flip = rule(n, k)
    packed = gpu.pack(device.upload(a), layout="column", word=32, first="lsb")
    if output in ("words", "lines"):
        options = {"thresholds": thresholds, "flip": flip, "prepared": output == "lines"}
        got = gpu.bmm(packed, b, scheme="wgmma", **options)
        words = [reference.threshold(each, thresholds, flip, word=32, first="lsb").words for each in dots]
        if output == "words":
            np.testing.assert_array_equal(got.words.download(), words, strict=True)
            return
        lines = np.pad(words, ((0, 0), (0, -len(words[0]) % 4), (0, 0))).swapaxes(1, 2)
        np.testing.assert_array_equal(got.words.download().reshape(lines.shape), lines)
        ones = got.ones.download().reshape(*lines.shape[:2], -1).sum(2)
        np.testing.assert_array_equal(ones, np.bitwise_count(lines).sum(2))
        return
    scales = (1 + np.arange(n) % 7).astype(np.float32) / 8
    options = {"scales": scales} if output.startswith("float") else {}
    got = gpu.bmm(packed, b, scheme="wgmma", dtype=output, **options).download()
    expected = dots.astype(np.float32) * scales if options else dots
    np.testing.assert_array_equal(got, expected.astype(output), strict=True)


@pytest.mark.at_most(1)
@pytest.mark.pairwise
@pytest.mark.gate_cases("*-counts1", "*-counts5")  # like (7, 7) and (None, 2)
@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (7, 7), (None, 2), (7, None), (None, 1)])
@pytest.mark.parametrize("output", TILES)
@pytest.mark.parametrize("sizes", [(66, 40, 133), (5, 37, 1100), (64, 128, 128)])
def test_every_output_of_every_stack_equals_the_reference(sizes, output, counts):
    """40 columns of numbers are stored as boxes, 37 as pairs; two blocks take several tiles each."""
    check(simwarp.Device((9, 0), multiprocessors=2), counts, sizes, output)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("*-128x*")
@pytest.mark.gate_cases("int16-128x*")  # differ from int32 in their stores alone
@pytest.mark.parametrize(
    ("output", "tile"),
    [
        pytest.param(o, t, id=f"{o}-{t.rows}x{t.columns}")
        for o in ("lines", "int16", "int32")
        for t in TILES[o]
    ],
)
def test_every_tile_takes_stacks(monkeypatch, output, tile):
    monkeypatch.setitem(TILES, output, (tile,))
    for n in (200, 135):
        check(simwarp.Device((9, 0), multiprocessors=3), (3, 3), (70, n, 300), output)


@pytest.mark.at_most(1)
@pytest.mark.gate_cases("lines-random")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("output", ["int32", "lines"])
def test_stacks_are_right_under_every_schedule(schedule, output):
    check(simwarp.Device((9, 0), schedule=schedule, multiprocessors=2), (3, 3), (66, 40, 1100), output)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("n", [24, 21])
def test_blocks_share_a_long_k_of_few_matrices(n):
    device = simwarp.Device((9, 0), multiprocessors=5)
    assert [WGMMA.shares((20, n, 9000), "int32", 5, count) for count in (2, 3)] == [2, 1]
    check(device, (2, 2), (20, n, 9000), "int32")


def test_bits_of_a_stack_whose_ones_come_in_parts_meet_a_stack():
    device = simwarp.Device((9, 0))
    a, b, c = operand(2, 20, 70), operand(2, 70, 200, 1), operand(2, 200, 24, 2)
    thresholds, flip = rule(200, 70)
    hidden = gpu.bmm(a, b, scheme="wgmma", thresholds=thresholds, flip=flip, prepared=True, device=device)
    assert (hidden.count, hidden.parts) == (2, 2)
    bits = [reference.threshold(each, thresholds, flip) for each in reference.bmm(a, b)]
    expected = [reference.bmm(each, other) for each, other in zip(bits, c, strict=True)]
    np.testing.assert_array_equal(gpu.bmm(hidden, c, scheme="wgmma").download(), expected)


def test_the_tile_is_that_of_all_matrices():
    one, many = (WGMMA.tile(128, 128, 128, "int32", 132, count) for count in (1, 256))
    assert (one.rows, one.columns) == (64, 64)
    assert (many.rows, many.columns) == (128, 128)
    plan = WGMMA.plan((128, 128, 128), "int32", 132, matrices=(256, 1))
    assert (plan.grid, plan.args[0].shape, plan.args[2].shape) == ((132, 1, 1), (16, 128, 256), (16, 128, 1))
    assert plan.args[4].shape == (128, 128, 256)


def test_stacks_with_more_lines_than_a_launch_counts_are_refused():
    WGMMA.plan((1, 7, 5), "int32", 132, matrices=(2**26 - 1, 1))
    for sizes in ((1, 7, 5), (7, 65, 5)):
        with pytest.raises(ShapeError, match=r"a stack of 67108864 products of \d x \d+\n.*\ncut the stack"):
            WGMMA.plan(sizes, "int32", 132, matrices=(2**26, 1))


def test_a_call_with_prepared_stacks_is_recorded(monkeypatch):
    device, a, b = simwarp.Device((9, 0)), operand(3, 20, 40), operand(3, 40, 30, 1)
    given = gpu.prepare(a, "a", device=device), gpu.prepare(b, "b", device=device)
    rule_of_n = {"thresholds": np.zeros(30, np.int32), "flip": np.zeros(30, np.uint8)}
    rule_of_n = {name: device.upload(x) for name, x in rule_of_n.items()}
    gpu.bmm(*given), gpu.bmm(*given, **rule_of_n)
    monkeypatch.setattr(gpu.bmm.product, "multiply", None)  # what is recorded does not come there
    dots = reference.bmm(a, b)
    np.testing.assert_array_equal(gpu.bmm(*given).download(), dots, strict=True)
    bits = gpu.bmm(*given, **rule_of_n)
    assert bits.shape == dots.shape
    words = [reference.threshold(each, np.zeros(30, np.int32), first="lsb").words for each in dots]
    np.testing.assert_array_equal(bits.words.download(), words, strict=True)


KERNEL = "bmm/wgmma.cu"
BOXES, PAIRS = ("int32", 40), ("int32", 37)
MUTANTS = {
    "the first matrix of A": (BOXES, "x.of_a(matrix), shared.full", "0, shared.full"),
    "the first matrix of B": (BOXES, "x.of_b(matrix), shared.full", "0, shared.full"),
    "ones of the first matrix of A": (BOXES, "x.of_a(matrix) * x.m", "0"),
    "ones of the first matrix of B": (PAIRS, "x.of_b(matrix) * x.n", "0"),
    "boxes of the first matrix of C": (BOXES, "store_box(c, box.rows, notes.column + first, row, matrix)",
                                       "store_box(c, box.rows, notes.column + first, row, 0)"),
    "rows of boxes through the stack": (BOXES, "notes.row - matrix * m +", "notes.row +"),
    "rows of the first matrix of C": (PAIRS, "notes.row = matrix * x.m + row", "notes.row = row"),
    "rows past a matrix": (PAIRS, "c, (matrix + 1) * m, n);", "c, ~0u, n);"),
    "words of the first matrix": (("words", 40), "((Index)matrix * last + word)", "word"),
    "lines past a matrix": (("lines", 40), "end = (matrix + 1) * x.m;", "end = ~0u;"),
    "tiles that two matrices share": (PAIRS, "return ((m - 1) / rows + 1) * rows;", "return m;"),
    "tiles of one matrix": (PAIRS, "return max(matrices_of_a, matrices_of_b) *", "return"),
    "a matrix that nobody notes": (BOXES, "if (lane == 0) matrix_of(shared, turn.at) = matrix;", ""),
    "a second matrix where there is one": (
        ("one", 40),
        "return min(matrix, matrices_of_b - 1);",
        "return matrix;",
    ),
}  # fmt: skip


def mutated(which):
    output, n = which
    counts = (3, None) if output == "one" else (3, 3)
    check(simwarp.Device((9, 0)), counts, (70, n, 133), "int32" if output == "one" else output)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_found(monkeypatch, tmp_path, name):
    which, old, new = MUTANTS[name]
    assert (SOURCES / KERNEL).read_text().count(old) == 1
    for part in ("bmm", "include"):
        copytree(SOURCES / part, tmp_path / part)
    (tmp_path / KERNEL).write_text((SOURCES / KERNEL).read_text().replace(old, new))
    monkeypatch.setattr(gpu.compile, "_PACKAGE", tmp_path)
    with pytest.raises((AssertionError, KernelFault)):
        mutated(which)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("which", sorted({which for which, _, _ in MUTANTS.values()}))
def test_the_kernel_itself_is_right(which):
    mutated(which)
