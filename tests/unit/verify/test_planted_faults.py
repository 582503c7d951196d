"""Faults planted in kernel sources are found and traced to the block, warp and lane of the store.

Each fault edits the source at exactly one place. Expected block, warp, lane, line and element are
computed from the problem, not taken from the report. The harness also finds each fault among the inputs
of every run; with an edit that changes nothing, the same inputs agree.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import gpu.compile
import reference
from gpu.bmm.schemes import SCHEMES, product_ptx
from simwarp.faults import OutOfBounds
from simwarp.observe import WriteObserver
from simwarp.verify import CASES, Draw, check, simulator
from simwarp.verify.cases.bmm import Input as Product
from simwarp.verify.cases.pack import Input as Packing
from simwarp.verify.runner import LEAST_SHAPES

SOURCES = Path(gpu.compile.__file__).parent
PRODUCT, OUTPUT, WARP, PACKING = "bmm/bmm.cu", "bmm/output.cuh", "include/bmm/warp.cuh", "bmm/pack.cu"

WARPS_PER_BLOCK = 4
TILES = {"bmm32": (32, 32), "bmm64": (64, 64), "bmms32": (16, 32), "bmms64": (16, 64)}
"""Rows and columns of a warp's tile."""

# Line of a store; a store in a header may have the kernel line of its inlining.
INT_STORE = ((OUTPUT, "if (first_row + i < m) c[(Index)(first_row + i) * n + column] ="),)
BITS_STORE = ((OUTPUT, "c[(Index)(first_column / word_size) * m + row] ="),)
PIECE_OF_ROW_STORE = ((PACKING, "words[half_at((Index)(piece / word_halves) * matrix.rows + row, "),)


@dataclass(frozen=True)
class Fault:
    """A source edit, with the case and the first input that can detect it.

    Inputs of "bmm" have int32 output up to 79, bits from 80 on; input 9 has a K about 65,535.
    """

    path: str
    old: str
    new: str
    case: str
    first: int
    store: tuple[tuple[str, str], ...]


FAULTS = {
    "shuffle from the wrong lane": Fault(
        PRODUCT, "x.a[i / warp_size], i % warp_size", "x.a[i / warp_size], i % warp_size ^ 1",
        "bmm", 0, INT_STORE,
    ),
    "K padding not corrected": Fault(
        OUTPUT,
        "* n + column] = SUM(k,",
        "* n + column] = SUM(divide_up(k, word_size) * word_size,",
        "bmm", 0, INT_STORE,
    ),
    "write past C": Fault(OUTPUT, "if (first_row + i < m)", "if (first_row + i <= m)", "bmm", 0, INT_STORE),
    "brev left out": Fault(
        WARP, "return __brev(ballot);", "return ballot;", "pack-column", 0, PIECE_OF_ROW_STORE
    ),
    "signed 16-bit counter": Fault(
        PRODUCT, "return packed[row] >> 16 * half & 0xffffu;", "return (short)(packed[row] >> 16 * half);",
        "bmm", 9, INT_STORE,
    ),
    "unsigned compare": Fault(
        OUTPUT, "(dot >= threshold[half])", "((unsigned)dot >= threshold[half])", "bmm", 80, BITS_STORE
    ),
    "flip ignored": Fault(OUTPUT, "flip[column] != 0;", "false;", "bmm", 80, BITS_STORE),
    "flip inverted": Fault(OUTPUT, "flip[column] != 0;", "flip[column] == 0;", "bmm", 80, BITS_STORE),
    "padding of A set to 1": Fault(
        PACKING, "is_one(x[i]) && column < matrix.columns", "is_one(x[i]) || column >= matrix.columns",
        "bmm", 0, INT_STORE,
    ),
    "padding of B set to 1": Fault(
        PACKING,
        "is_one(x[i]) && piece * 32 + i < matrix.rows",
        "is_one(x[i]) || piece * 32 + i >= matrix.rows",
        "bmm", 0, INT_STORE,
    ),
    "output words reversed": Fault(
        OUTPUT, "first_lane_first(__ballot_sync(all_lanes, one))", "__ballot_sync(all_lanes, one)",
        "bmm", 80, BITS_STORE,
    ),
    "stale output": Fault(
        OUTPUT, "* m + row] = mine", "* m + row] |= mine", "bmm", 80, BITS_STORE
    ),
}  # fmt: skip


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Make the compiler use an edited source; the edit without a change is the correct twin."""
    copies = iter(range(9))

    def edit(path, old, new):
        folder = tmp_path / str(next(copies))
        for part in ("bmm", "include"):
            copytree(SOURCES / part, folder / part)
        source = (folder / path).read_text()
        assert source.count(old) == 1
        (folder / path).write_text(source.replace(old, new))
        monkeypatch.setattr(gpu.compile, "_PACKAGE", folder)

    return edit


@pytest.fixture
def plant_fault(plant):
    return lambda name: plant(FAULTS[name].path, FAULTS[name].old, FAULTS[name].new)


def line_of(path, text):
    lines = [i for i, line in enumerate((SOURCES / path).read_text().splitlines(), 1) if text in line]
    assert len(lines) == 1
    return lines[0]


def ask(name, item):
    """The mismatches of the simulator on one of our inputs."""
    case = replace(CASES[name], draw=lambda draw: item)
    return check(case, 0, 0, {"simulator": simulator}, ["simulator"]).mismatches


def assert_written_by(place, kernel, tile, lane, store):
    """Assert that the mismatch names the warp of the tile, its lane, and the line of the store."""
    assert (place.kernel, place.block, place.warp, place.lane) == (
        kernel, (tile // WARPS_PER_BLOCK, 0, 0), tile % WARPS_PER_BLOCK, lane
    )  # fmt: skip
    assert_stored_at(place, store)


def assert_stored_at(place, store):
    assert (place.source_file, place.source_line) in [(path, line_of(path, text)) for path, text in store]


def assert_product_traced(found, scheme, element, columns):
    """Assert that the mismatch names where the scheme computes an element of int32 output."""
    tile_rows, tile_columns = TILES[scheme]
    row, column = element
    tile = row // tile_rows * -(-columns // tile_columns) + column // tile_columns
    assert_written_by(found.place, scheme, tile, column % 32, INT_STORE)


def assert_wrong(found, right, wrong):
    """Assert that first wrong element, number of wrong elements and wrong bits are reported."""
    element = tuple(int(i) for i in np.argwhere(right != wrong)[0])
    assert found.element == element
    assert (found.expected, found.got) == (right[element], wrong[element])
    width = right.itemsize * 8
    assert found.bits == tuple(b for b in range(width) if (int(found.expected) ^ int(found.got)) >> b & 1)
    assert (found.wrong, found.total) == ((right != wrong).sum(), right.size)
    return element


def product_input(m, n, k, scheme="bmm32", rule=()):
    draw = Draw(5, "planted", m * n * k)
    a, b = draw.matrix(m, k, "float32"), draw.matrix(k, n, "int8")
    return Product(a, b, False, False, (m, n, k), scheme, *rule)


def rule_input(m, n, k, scheme):
    """An input with bit output: thresholds of both signs, every third column flipped."""
    return product_input(m, n, k, scheme, (np.arange(n, dtype=np.int32) % 7 - 3, np.arange(n) % 3 == 0))


def words_of(bits, word):
    return reference.pack(np.where(bits, 1.0, -1.0), layout="column", word=word).words


# ----------------------------------------------------------------------------------- int32 as output


@pytest.mark.slow
def test_a_shuffle_from_the_wrong_lane_is_found(plant_fault):
    item = product_input(70, 100, 45)
    right = reference.bmm(item.a, item.b)
    rows = np.minimum(np.arange(70) ^ 1, 69)  # the neighbour's words; beyond the edge those of the last row
    # Words are loaded in pairs, of which the first comes from the neighbour.
    wrong = reference.bmm(item.a[rows, :32], item.b[:32]) + reference.bmm(item.a[:, 32:], item.b[32:])
    plant_fault("shuffle from the wrong lane")
    (found,) = ask("bmm", item)
    element = assert_wrong(found, right, wrong)
    assert_product_traced(found, "bmm32", element, 100)
    assert found.register.startswith("%r")


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["bmm32", "bmms64"])
def test_uncorrected_k_padding_is_found(plant_fault, scheme):
    item = product_input(33, 65, 37, scheme)
    right = reference.bmm(item.a, item.b)
    plant_fault("K padding not corrected")
    (found,) = ask("bmm", item)
    assert_wrong(found, right, right + (64 - 37))
    assert found.element == (0, 0)
    assert found.wrong == found.total == 33 * 65
    assert_product_traced(found, scheme, (0, 0), 65)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", ["bmm32", "bmm64", "bmms32"])
def test_a_write_past_c_is_found(plant_fault, scheme):
    plant_fault("write past C")
    (found,) = ask("bmm", product_input(70, 100, 45, scheme))
    # The nonexistent row 70 belongs to the last row of tiles; its first lane writes first.
    assert_product_traced(found, scheme, (70, 0), 100)
    assert "write of c[7000], past its end" in found.fault
    assert "0 bytes past the end of c (28000 bytes" in found.fault


def test_a_write_past_c_is_raised_as_a_fault(plant_fault):
    plant_fault("write past C")
    gpu_bmm = CASES["bmm"].answers["gpu"]
    # If C consists of whole tiles, no store leaves it, and the harmless twin is not reported.
    item = product_input(32, 32, 32)
    np.testing.assert_array_equal(gpu_bmm(item, simulator()), reference.bmm(item.a, item.b))
    with pytest.raises(OutOfBounds) as caught:
        gpu_bmm(product_input(31, 5, 3), simulator())
    assert caught.value.allocation == "c"
    assert caught.value.offset == 31 * 5 * 4
    assert caught.value.place.lane == 0


@pytest.mark.gate
def test_a_signed_16_bit_counter_is_found(plant_fault):
    k = 2**15 + 100
    a, b = np.ones((3, k), np.int8), np.ones((k, 70), np.int8)
    b[:, 3] = -1  # 32,868 bits differ, which signed 16 bits hold as 32,868 - 65,536
    b[: 2**15 - 1, 40] = -1  # the most that they hold: in the lane's second column, and right
    b[: 2**15, 66] = -1
    item = Product(a, b, False, False, (3, 70, k), "bmm64")
    right = reference.bmm(a, b)
    wrong = right.copy()
    wrong[:, [3, 66]] += 2 * 2**16
    plant_fault("signed 16-bit counter")
    (found,) = ask("bmm", item)
    assert assert_wrong(found, right, wrong) == (0, 3)
    assert found.wrong == 2 * 3
    assert_product_traced(found, "bmm64", (0, 3), 70)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.slow_cases("bmm32-A", "bmm64-A")
@pytest.mark.parametrize("side", ["A", "B"])
@pytest.mark.parametrize("scheme", ["bmm32", "bmm64"])
def test_padding_set_to_1_in_one_operand_is_found(plant_fault, scheme, side):
    word = TILES[scheme][1]
    item = product_input(21, 35, 2 * word + 7, scheme)
    right = reference.bmm(item.a, item.b)
    plant_fault(f"padding of {side} set to 1")
    (found,) = ask("bmm", item)
    assert_wrong(found, right, right - 2 * (word - 7))  # each of the padding's bits differs
    assert found.wrong == found.total
    assert_product_traced(found, scheme, (0, 0), 35)


# -------------------------------------------------------------------------------------- bits as output


def ask_for_bits(item, wrong):
    """The mismatch of an input with bit output, compared with the fields expected for the fault."""
    rows, word = TILES[item.scheme]
    n = item.sizes[1]
    right = reference.threshold(
        reference.bmm(item.a, item.b), item.thresholds, item.flip, word=word, first="msb"
    ).words
    (found,) = ask("bmm", item)
    at, row = assert_wrong(found, right, wrong)
    tile = row // rows * -(-n // word) + at
    assert_written_by(found.place, item.scheme, tile, row % rows % 32, BITS_STORE)
    column = at * word + word - 1 - max(found.bits)
    assert found.meaning == f"bit of C[{row}, {column}]" + ("" if column < n else ", which is padding")


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("bmm64")
@pytest.mark.parametrize("scheme", TILES)
def test_an_unsigned_threshold_compare_is_found(plant_fault, scheme):
    item = rule_input(70, 101, 45, scheme)
    dots = reference.bmm(item.a, item.b)
    wrong = (dots.astype(np.uint32) >= item.thresholds.astype(np.uint32)) != item.flip
    plant_fault("unsigned compare")
    ask_for_bits(item, words_of(wrong, TILES[scheme][1]))


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("bmm64-flip inverted-invert")
@pytest.mark.parametrize(("fault", "taken"), [("flip ignored", np.zeros_like), ("flip inverted", np.invert)])
@pytest.mark.parametrize("scheme", ["bmm64", "bmms32"])
def test_a_wrong_sign_of_gamma_is_found(plant_fault, scheme, fault, taken):
    item = rule_input(70, 101, 45, scheme)
    wrong = (reference.bmm(item.a, item.b) >= item.thresholds) != taken(item.flip)
    plant_fault(fault)
    ask_for_bits(item, words_of(wrong, TILES[scheme][1]))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", ["bmm32", "bmms64"])
def test_reversed_output_words_are_found(plant_fault, scheme):
    item = rule_input(70, 101, 45, scheme)
    word = TILES[scheme][1]
    bits = (reference.bmm(item.a, item.b) >= item.thresholds) != item.flip
    padded = np.zeros((70, -(-101 // word) * word), bool)
    padded[:, :101] = bits
    # A ballot has its first lane lowest: each 32 columns the other way round.
    wrong = padded.reshape(70, -1, 32)[..., ::-1].reshape(70, -1)
    plant_fault("output words reversed")
    ask_for_bits(item, words_of(wrong, word))


class SecondLaunch:
    """Two products with bit output, launched in sequence into one buffer."""

    def __init__(self, scheme):
        self.scheme, self.word = SCHEMES[scheme], TILES[scheme][1]
        first, second = rule_input(70, 101, 45, scheme), rule_input(70, 101, 51, scheme)
        self.items = first, replace(second, flip=~second.flip)
        self.answers = [
            words_of((reference.bmm(i.a, i.b) >= i.thresholds) != i.flip, self.word) for i in self.items
        ]

    def words(self, *observers):
        """Contents of the buffer after each launch."""
        device = simulator(observers=list(observers))
        c = device.upload(np.zeros_like(self.answers[0]), "c")
        ptx = product_ptx(self.scheme, "bits", "msb", device.compute_capability)
        rows, columns = TILES[self.scheme.name]
        tiles = -(-70 // rows) * -(-101 // columns)
        for item in self.items:
            a = reference.pack(item.a, layout="column", word=self.word).words
            b = reference.pack(item.b, layout="row", word=self.word).words
            device.load(ptx.text).kernel(self.scheme.name)(
                (-(-tiles // WARPS_PER_BLOCK), 1, 1),
                (WARPS_PER_BLOCK * 32, 1, 1),
                device.upload(a),
                device.upload(b),
                c,
                *(np.uint32(size) for size in item.sizes),
                device.upload(item.thresholds),
                device.upload(item.flip.astype(np.uint8)),
            )
            yield c.download()


@pytest.mark.parametrize("scheme", ["bmm32", "bmms64"])
def test_stale_output_of_a_second_launch_is_found(plant_fault, scheme):
    launches = SecondLaunch(scheme)
    (first_answer, second_answer), word = launches.answers, launches.word
    plant_fault("stale output")
    first, second = launches.words()
    np.testing.assert_array_equal(first, first_answer)  # the buffer was zero, so the fault is not visible yet
    np.testing.assert_array_equal(second, first_answer | second_answer)
    at, row = (int(i) for i in np.argwhere(second != second_answer)[0])
    observer = WriteObserver("c", (at * 70 + row) * word // 8, word // 8)
    list(launches.words(observer))
    rows, columns = TILES[scheme]
    tile = row // rows * -(-101 // columns) + at
    assert [write.value for write in observer.writes] == [first[at, row], second[at, row]]
    for write in observer.writes:
        assert_written_by(write.place, scheme, tile, row % rows % 32, BITS_STORE)


def test_stale_output_is_an_uninitialised_read(plant_fault):
    plant_fault("stale output")
    (found,) = ask("bmm", rule_input(70, 101, 45, "bmms32"))
    assert ", which nothing wrote" in found.fault
    assert_written_by(found.place, "bmms32", 0, 0, BITS_STORE)


# -------------------------------------------------------------------------------------------- packing


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("32")
@pytest.mark.parametrize("word", [32, 64])
def test_a_missing_brev_is_found(plant_fault, word):
    x = Draw(5, "planted", 1).matrix(70, 101, "float32")
    right = reference.pack(x, layout="column", word=word).words
    pieces = np.array([[f"{w:0{word}b}" for w in row] for row in right.tolist()])
    reverse = np.vectorize(lambda text: int("".join(p[::-1] for p in (text[:32], text[32:])), 2), otypes="Q")
    plant_fault("brev left out")
    (found,) = ask("pack-column", Packing(x, "column", word=word))
    at, row = assert_wrong(found, right, reverse(pieces).astype(right.dtype))
    column = at * word + word - 1 - max(found.bits)
    tile = row // 32 * (-(-101 // word) * word // 32) + column // 32
    assert_written_by(found.place, "pack_column", tile, row % 32, PIECE_OF_ROW_STORE)
    assert found.meaning.startswith(f"element ({row}, {column})")


# ---------------------------------------------------------------------------------------- the harness


def wrong_about(case, k):
    return check(CASES[case], 0, k, {"simulator": simulator}, ["simulator"]).mismatches


@cache
def correct(path, case, k):
    """Whether the planted twin agrees on an input; checked once, since all twins of a file are equal."""
    return wrong_about(case, k) == []


@pytest.mark.at_most(2)
@pytest.mark.gate_cases("signed 16-bit counter")
@pytest.mark.slow_cases("brev left out")
@pytest.mark.parametrize("name", FAULTS)
def test_the_harness_finds_only_the_planted_fault(plant, name):
    fault = FAULTS[name]
    plant(fault.path, fault.old, fault.new)
    inputs = range(fault.first, LEAST_SHAPES)  # every run tries at least these
    answers = ((k, wrong_about(fault.case, k)) for k in inputs)
    last, (found,) = next((k, mismatches) for k, mismatches in answers if mismatches)
    assert (found.case, found.input, found.tier) == (fault.case, last, "simulator")
    assert_stored_at(found.place, fault.store)

    plant(fault.path, fault.old, fault.old)
    assert [k for k in range(fault.first, last + 1) if not correct(fault.path, fault.case, k)] == []


@pytest.mark.parametrize("scheme", ["bmm32", "bmms64"])
def test_the_corrected_twin_of_stale_output_is_not_reported(plant, scheme):
    launches, fault = SecondLaunch(scheme), FAULTS["stale output"]
    plant(fault.path, fault.old, fault.old)
    for got, expected in zip(launches.words(), launches.answers, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_the_report_has_three_lines(plant_fault):
    plant_fault("shuffle from the wrong lane")
    (found,) = ask("bmm", product_input(70, 100, 45))
    first, second, third = str(found).splitlines()
    assert "simulator differs from reference" in first
    assert f"block {found.place.block}, warp {found.place.warp}, lane {found.place.lane}" in first
    assert f"expected {found.expected}" in second
    assert third == "replay: simwarp verify --case bmm --seed 0 --input 0"


def test_copied_sources_compile_to_the_same_ptx(plant):
    scheme = SCHEMES["bmm32"]
    original = product_ptx(scheme, "bits", "msb", (9, 0)).text
    plant(PRODUCT, "Counters differing;", "Counters differing;")
    assert product_ptx(scheme, "bits", "msb", (9, 0)).text == original
