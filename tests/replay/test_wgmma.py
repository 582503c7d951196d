"""Products of warpgroups, recorded on an H200, equal the simulator's bit for bit."""

import pytest

import simwarp
from simwarp.lab.recording import GOLDEN, recorded
from simwarp.lab.subjects import wgmma
from simwarp.verify.draw import Draw

pytestmark = pytest.mark.skipif(
    not (GOLDEN / "sm_90" / "wgmma.json").exists(), reason="awaits its recording on a GPU"
)
AGAIN = "record again, on a GPU: simwarp record wgmma"
SAMPLE = wgmma.OPCODES[Draw(0, "wgmma", 0).integer(0, 16) :: 17]
"""32 of the 546 forms, with every pair of types."""


@pytest.fixture(scope="module")
def golden():
    return recorded("wgmma").meta


def test_enough_tiles_of_each_type_were_recorded_without_a_difference(golden):
    assert sorted(golden["forms"]) == sorted(wgmma.OPCODES), AGAIN
    assert golden["tiles"] == sum(row["tiles"] for row in golden["forms"].values()) >= 1_000_000
    assert min(golden["types"].values()) >= 50_000
    assert golden["executed"] >= 2_000
    assert golden["mismatches"] == golden["lost"] == 0


def test_the_sample_has_every_pair_of_types():
    assert {opcode.split("k", 1)[1] for opcode in SAMPLE} == {o.split("k", 1)[1] for o in wgmma.OPCODES}


@pytest.mark.at_most(16)
@pytest.mark.slow
@pytest.mark.parametrize("opcode", SAMPLE)
def test_the_simulator_reproduces_the_recorded_tiles(golden, opcode):
    assert golden["ptx"][opcode] == wgmma.question(opcode), AGAIN
    assert golden["forms"][opcode]["first"] == wgmma.again(simwarp.Device(), opcode)
