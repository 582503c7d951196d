"""Faults planted in the kernels' source are found, and traced to who made them.

Each fault edits the source at exactly one place. Block, warp, lane, line and element are worked out
here from the problem, not taken from what the report says.
"""

import importlib
import importlib.resources
from dataclasses import replace

import numpy as np
import pytest

import reference
import simwarp
from gpu.compile import compile, compile_file
from simwarp.faults import OutOfBounds
from simwarp.verify import CASES, Draw, check
from simwarp.verify.cases.bmm import Input as Product
from simwarp.verify.cases.pack import Input as Packing

PRODUCT, PACKING = "bmm/bmm32.cu", "bmm/pack.cu"
WARPS_PER_BLOCK = 4


def source_of(path):
    return (importlib.resources.files("gpu") / path).read_text()


def line_of(path, text):
    lines = [i for i, line in enumerate(source_of(path).splitlines(), 1) if text in line]
    assert len(lines) == 1
    return lines[0]


@pytest.fixture
def plant(monkeypatch):
    """Replaces one piece of a kernel's source; the same piece by itself leaves the correct twin."""

    def edit(path, old, new):
        source = source_of(path)
        assert source.count(old) == 1
        edited = source.replace(old, new)
        if path == PRODUCT:
            module = importlib.import_module("gpu.bmm.product")
            monkeypatch.setattr(module, "product_ptx", lambda arch: compile(edited, path, None, arch))
        else:
            module = importlib.import_module("gpu.bmm.packing")

            def packing_ptx(element, first, arch):
                defines = {f"ELEMENT_{element.upper()}": "", f"FIRST_{first.upper()}": ""}
                return compile(edited, path, defines, arch)

            monkeypatch.setattr(module, "packing_ptx", packing_ptx)

    return edit


def ask(name, item):
    """What the simulator gets wrong about an input of ours."""
    case = replace(CASES[name], draw=lambda draw: item)
    return check(case, 0, 0, {"simulator": simwarp.Device}, ["simulator"]).mismatches


def tile_place(row, column, columns):
    """Block, warp and lane of the tile that holds an element, its lanes along the columns."""
    across = -(-columns // 32)
    tile = row // 32 * across + column // 32
    return (tile // WARPS_PER_BLOCK, 0, 0), tile % WARPS_PER_BLOCK, column % 32


def product_input(m, n, k):
    draw = Draw(5, "planted", m * n * k)
    return Product(draw.matrix(m, k, "float32"), draw.matrix(k, n, "int8"), False, False, (m, n, k))


SHUFFLE = "__shfl_sync(all_lanes, a_bits, i)"
STORE = "c[(unsigned long long)(first_row + i) * n + column] ="


def test_shuffle_from_the_wrong_lane(plant):
    item = product_input(70, 100, 45)
    right = reference.bmm(item.a, item.b)
    rows = np.minimum(np.arange(70) ^ 1, 69)  # what the neighbour holds, past the edge the last row
    element = tuple(int(i) for i in np.argwhere(right[rows] != right)[0])

    plant(PRODUCT, SHUFFLE, SHUFFLE.replace(", i)", ", i ^ 1)"))
    (found,) = ask("bmm32", item)
    block, warp, lane = tile_place(*element, 100)
    assert found.element == element
    assert (found.place.block, found.place.warp, found.place.lane) == (block, warp, lane)
    assert (found.place.kernel, found.place.source_file) == ("bmm32", PRODUCT)
    assert found.place.source_line == line_of(PRODUCT, STORE)
    assert (found.expected, found.got) == (right[element], right[rows][element])
    assert found.bits == tuple(b for b in range(32) if (int(found.expected) ^ int(found.got)) >> b & 1)
    assert found.wrong == (right[rows] != right).sum()
    assert found.register.startswith("%r")


def test_k_padding_not_corrected(plant):
    item = product_input(33, 65, 37)
    plant(PRODUCT, "(int)(k - 2 * differing[i])", "(int)(k_words * warp_size - 2 * differing[i])")
    (found,) = ask("bmm32", item)
    expected = int(reference.bmm(item.a, item.b)[0, 0])
    assert found.element == (0, 0)
    assert (found.expected, found.got) == (expected, expected + 64 - 37)
    assert (found.place.block, found.place.warp, found.place.lane) == ((0, 0, 0), 0, 0)
    assert found.place.source_line == line_of(PRODUCT, STORE)
    assert found.wrong == found.total == 33 * 65


def test_write_past_c(plant):
    item = product_input(70, 100, 45)
    plant(PRODUCT, "if (first_row + i < m)", "if (first_row + i <= m)")
    (found,) = ask("bmm32", item)
    # Row 70, which does not exist, belongs to the tiles from row 64 on; its first lane is the first.
    block, warp, lane = tile_place(70, 0, 100)
    assert (found.place.block, found.place.warp, found.place.lane) == (block, warp, lane)
    assert found.place.source_line == line_of(PRODUCT, STORE)
    assert "outside every allocation" in found.fault
    assert "0 bytes past the end of c (28000 bytes" in found.fault


def test_write_past_c_as_an_exception(plant):
    item = product_input(32, 32, 32)
    plant(PRODUCT, "if (first_row + i < m)", "if (first_row + i <= m + 7)")
    # Within the tile nothing is past C, so the twin that only looks wrong reports nothing.
    gpu_bmm = CASES["bmm32"].answers["gpu"]
    np.testing.assert_array_equal(gpu_bmm(item, simwarp.Device()), reference.bmm(item.a, item.b))
    with pytest.raises(OutOfBounds) as caught:
        gpu_bmm(product_input(31, 5, 3), simwarp.Device())
    assert caught.value.allocation == "c"
    assert caught.value.offset == 31 * 5 * 4
    assert caught.value.place.lane == 0


def test_brev_left_out(plant):
    x = Draw(5, "planted", 1).matrix(70, 100, "float32")
    item = Packing(x, "column")
    right = reference.pack(x, layout="column").words
    reversed_words = np.array([[int(f"{w:032b}"[::-1], 2) for w in row] for row in right.tolist()], np.uint32)
    element = tuple(int(i) for i in np.argwhere(reversed_words != right)[0])

    plant(PACKING, "word = __brev(word);", "word = word;")
    (found,) = ask("pack-column", item)
    word, row = element
    tile = row // 32 * -(-100 // 32) + word
    assert found.element == element
    assert (found.expected, found.got) == (right[element], reversed_words[element])
    assert found.place.block == (tile // WARPS_PER_BLOCK, 0, 0)
    assert (found.place.warp, found.place.lane) == (tile % WARPS_PER_BLOCK, row % 32)
    assert found.place.source_line == line_of(PACKING, "if (row < rows) words[")
    highest = max(found.bits)
    assert found.meaning.startswith(f"element ({row}, {word * 32 + 31 - highest})")


@pytest.mark.parametrize(
    ("case", "item", "path", "piece"),
    [
        ("bmm32", product_input(70, 100, 45), PRODUCT, SHUFFLE),
        ("bmm32", product_input(33, 65, 37), PRODUCT, "(int)(k - 2 * differing[i])"),
        ("bmm32", product_input(70, 100, 45), PRODUCT, "if (first_row + i < m)"),
        ("pack-column", Packing(Draw(5, "planted", 1).matrix(70, 100, "float32"), "column"), PACKING,
         "word = __brev(word);"),
    ],
)
def test_the_correct_twin_reports_nothing(plant, case, item, path, piece):
    plant(path, piece, piece)
    assert ask(case, item) == []


def test_the_report_reads_as_three_lines(plant):
    plant(PRODUCT, SHUFFLE, SHUFFLE.replace(", i)", ", i ^ 1)"))
    (found,) = ask("bmm32", product_input(70, 100, 45))
    first, second, third = str(found).splitlines()
    assert "simulator differs from reference" in first
    assert f"block {found.place.block}, warp {found.place.warp}, lane {found.place.lane}" in first
    assert f"expected {found.expected}" in second
    assert third == "replay: simwarp verify --case bmm32 --seed 0 --input 0"


def test_unedited_source_is_what_runs():
    assert compile(source_of(PRODUCT), PRODUCT).text == compile_file(PRODUCT).text
