"""Random reads of textures, recorded on hardware, are the simulator's, bit for bit."""

import pytest

import simwarp
from reference.devices.texture import FORMATS
from simwarp.lab.recording import GOLDEN, recorded
from simwarp.lab.subjects import textures

pytestmark = pytest.mark.skipif(
    not (GOLDEN / "sm_90" / "textures.json").exists(), reason="awaits its recording on a GPU"
)
AGAIN = "record again, on a GPU: simwarp record textures"


@pytest.fixture(scope="module")
def golden():
    return recorded("textures").meta


def test_enough_reads_were_recorded_without_a_difference(golden):
    assert golden["seed"] == textures.SEED, AGAIN
    assert golden["textures"] == textures.CASES, AGAIN
    assert golden["reads"] + golden["cube_reads"] == textures.CASES * textures.PLACES > 12_000_000
    assert golden["mismatches"] == 0
    assert golden["cube_mismatches"] <= golden["cube_reads"] / 100_000  # an approximate reciprocal
    assert set(golden["texels"]) == set(FORMATS)
    assert len(golden["geometries"]) == 9
    assert min(golden["geometries"].values()) >= 150
    assert set(golden["operations"]) == {"tex", "fetch", "tld4"}


def test_the_simulator_reproduces_the_recorded_reads(golden):
    assert golden["ptx"]["cases"] == textures.question(), AGAIN
    assert golden["first"] == textures.again(simwarp.Device())
