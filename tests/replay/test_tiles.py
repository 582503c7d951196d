"""Results of matrix instructions on tiles, recorded on an H200, equal the simulator's word for word."""

from dataclasses import replace

import numpy as np
import pytest

import simwarp
from simwarp.fragments import fragments_of
from simwarp.lab.recording import recorded
from simwarp.lab.subjects import tiles
from simwarp.products import floats, rule_of
from simwarp.products.rules import Rule
from simwarp.testing.fragments import FragmentDifference

GOLDEN = recorded("tiles").meta
AGAIN = "record again, on a GPU: simwarp record tiles"


@pytest.fixture(scope="module")
def device():
    return simwarp.Device(cc=(9, 0))


@pytest.fixture(scope="module")
def raw():
    return recorded("tiles").arrays


def test_the_recording_belongs_to_the_current_forms(raw):
    assert sorted(GOLDEN["forms"]) == sorted(tiles.OPCODES) == sorted(raw), AGAIN
    assert GOLDEN["seed"] == tiles.SEED
    assert GOLDEN["gpu"]["name"] == "NVIDIA H200"


def test_every_recorded_tile_equalled_the_model():
    assert GOLDEN["mismatches"] == sum(row["mismatches"] for row in GOLDEN["forms"].values()) == 0


def test_enough_tiles_were_recorded():
    counts = {opcode: row["tiles"] for opcode, row in GOLDEN["forms"].items()}
    assert sum(n for opcode, n in counts.items() if tiles.kind_of(opcode) == "integers") >= 1_000_000
    assert min(n for opcode, n in counts.items() if tiles.kind_of(opcode) == "floats, 16 x 8") >= 100_000
    assert GOLDEN["tiles"] == sum(counts.values())


@pytest.mark.parametrize("opcode", tiles.OPCODES)
def test_the_simulator_reproduces_the_recorded_tiles(device, raw, opcode):
    row = GOLDEN["forms"][opcode]
    assert GOLDEN["ptx"][opcode] == tiles.question(opcode), AGAIN
    made = tiles.by_hand.tiles(opcode)
    tiles.check(opcode, made, raw[opcode], tiles.answers(device, opcode, made))
    first = tiles.answers(device, opcode, tiles.drawn(opcode, 0))
    assert tiles.digest(first) == row["first"], AGAIN


def test_a_difference_names_operand_lane_register_and_element(device):
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    made = tiles.drawn(opcode, 0)
    chip = tiles.answers(device, opcode, made)
    wrong = chip.copy()
    wrong[1, 5, 2] ^= 1
    with pytest.raises(
        FragmentDifference, match=r"operand d of .*: lane 5, register 2, .* element \[9, 2\]"
    ) as found:
        tiles.check(opcode, made, chip, wrong)
    assert f"expected {chip[1, 5, 2]:#010x}" in str(found.value)
    assert f"got {wrong[1, 5, 2]:#010x}" in str(found.value)
    assert f"c {made['c'][1, 9, 2]:#x}" in found.value.__notes__[0]


class Floorless(Rule):
    """A sum rule without a minimum for the largest exponent."""

    floor = -1000


HALVES = tuple(tuple(range(start, start + 8)) for start in (0, 8))
CHANGES = {
    "24 bits": lambda rule: replace(rule, fraction_bits=24),
    "26 bits": lambda rule: replace(rule, fraction_bits=26),
    "two sums": lambda rule: replace(rule, groups=HALVES),
    "to nearest": lambda rule: replace(rule, rounding="rn"),
    "C added at the end": lambda rule: replace(rule, addend="last"),
    "no floor": lambda rule: Floorless(**vars(rule)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_handmade_tiles_distinguish_rounding_rules(raw, change):
    opcode, types = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", ("f32", "bf16", "bf16", "f32")
    layout, made = fragments_of(opcode).operands["d"].layout, tiles.by_hand.tiles(opcode)
    rule = rule_of((9, 0), types, (16, 8, 16))
    right = floats(made["a"], made["b"], made["c"], types, rule)
    tiles.check(opcode, made, raw[opcode], layout.pack(right))
    wrong = floats(made["a"], made["b"], made["c"], types, CHANGES[change](rule))
    with pytest.raises(FragmentDifference, match="operand d"):
        tiles.check(opcode, made, raw[opcode], layout.pack(wrong))


FUSED = [
    o for o in tiles.OPCODES if "m16n8k16" in o and "f64" not in o
]  # f64 chains stay infinite after an overflow


@pytest.mark.parametrize("opcode", FUSED)
def test_every_class_of_tiles_has_varied_results(device, opcode):
    registers = tiles.answers(device, opcode, tiles.drawn(opcode, 0))
    classes = len(tiles.by_chance.classes_of(opcode))
    assert min(len(np.unique(registers[i::classes])) for i in range(classes)) > 20
