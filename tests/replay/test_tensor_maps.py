"""Random copies through tensor maps, recorded on an H200, leave the simulator's bytes."""

import pytest

import simwarp
from simwarp.lab.recording import GOLDEN, recorded
from simwarp.lab.subjects import tensor_maps
from simwarp.lab.subjects.tensor_maps_by_chance import KERNELS, SEED
from simwarp.verify.draw import Draw

pytestmark = pytest.mark.skipif(
    not (GOLDEN / "sm_90" / "tensor-maps.json").exists(), reason="awaits its recording on a GPU"
)
AGAIN = "record again, on a GPU: simwarp record tensor-maps"
SAMPLE = KERNELS[Draw(0, "tensor-maps", 0).integer(0, 2) :: 3]
"""Every third of the 80 kernels; each operation, mode and rank."""


@pytest.fixture(scope="module")
def golden():
    return recorded("tensor-maps").meta


def test_enough_copies_were_recorded_without_a_difference(golden):
    rows = golden["kernels"]
    assert golden["seed"] == SEED, AGAIN
    assert {name: row["copies"] for name, row in rows.items()} == {k.name: k.copies for k in KERNELS}, AGAIN
    assert golden["copies"] == sum(row["copies"] for row in rows.values()) >= 20_000
    assert golden["executed"] >= 2_000
    assert golden["mismatches"] == golden["lost"] == 0
    assert len(golden["types"]) == 10
    assert min(golden["swizzles"].values()) >= 3_000
    assert min(golden["places"].values()) >= 2_000


def test_the_sample_has_every_operation_mode_and_rank():
    for part in ("operation", "images", "rank"):
        assert {getattr(k, part) for k in SAMPLE} == {getattr(k, part) for k in KERNELS}


@pytest.mark.parametrize("kernel", SAMPLE, ids=lambda kernel: kernel.name)
def test_the_simulator_reproduces_the_recorded_copies(golden, kernel):
    assert golden["ptx"][kernel.name] == tensor_maps.question(kernel), AGAIN
    assert golden["kernels"][kernel.name]["first"] == tensor_maps.again(simwarp.Device(), kernel)
