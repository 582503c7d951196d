"""MTTKRP results and decompositions recorded on a GPU equal the simulator's bits, without atomics."""

import pytest

import reference
import simwarp
from simwarp.lab.recording import recorded
from simwarp.lab.subjects import mttkrp as recorder
from simwarp.testing.golden import sha256
from simwarp.verify import CASES
from simwarp.verify.cases.mttkrp import DTYPES, FORMATS
from simwarp.verify.tensors import KINDS

AGAIN = "record again, on a GPU: simwarp record mttkrp-tensors"
CASE = CASES["mttkrp"]
SAME_FIT = 1e-4

GOLDEN = recorded("mttkrp-tensors").meta


def test_the_gpu_was_right_for_every_recorded_tensor():
    assert GOLDEN["mismatches"] == 0
    assert 0 < GOLDEN["worst"] <= 1


def test_enough_tensors_were_recorded():
    assert GOLDEN["tensors"] >= 2_000
    assert GOLDEN["large"] >= 14
    assert GOLDEN["nonzeros"] > 10_000_000
    counts = {
        (name, dtype): GOLDEN["by_format"][name][dtype]["tensors"] for name in FORMATS for dtype in DTYPES
    }
    assert min(counts.values()) >= 100
    assert sum(counts.values()) == GOLDEN["tensors"]


@pytest.mark.parametrize(
    ("by", "values"),
    [
        ("kind", KINDS),
        ("order", recorder.ORDERS),
        ("rank", recorder.RANKS),
        ("dtype", DTYPES),
        ("deterministic", (False, True)),
    ],
)
def test_every_kind_of_tensor_was_recorded(by, values):
    counts = GOLDEN[f"by_{by}"]
    assert set(counts) == {str(value) for value in values}
    assert min(counts.values()) >= 150
    assert sum(counts.values()) == GOLDEN["tensors"]


@pytest.mark.slow
def test_the_recording_belongs_to_the_current_kernels():
    assert GOLDEN["ptx"] == CASE.kernels(tuple(GOLDEN["arch"])), AGAIN


def test_the_recording_names_gpu_driver_and_date():
    assert GOLDEN["gpu"]["name"].startswith("NVIDIA")
    assert len(GOLDEN["gpu"]["uuid"]) == 32
    assert all(GOLDEN[key] for key in ("driver", "nvrtc", "date", "command", "arch", "seed"))
    assert len(GOLDEN["first"]) == recorder.FIRST
    assert set(GOLDEN["cpd"]) == {str(planted) for planted in recorder.PLANTED}


@pytest.mark.parametrize("k", range(recorder.FIRST))
def test_the_simulator_gives_the_recorded_bits(k):
    device = simwarp.Device(cc=tuple(GOLDEN["arch"]))
    answer = CASE.answers["gpu"](recorder.first_input(k), device)
    assert sha256(answer) == GOLDEN["first"][k]


@pytest.mark.at_most(2)
@pytest.mark.slow
@pytest.mark.parametrize("planted", recorder.PLANTED, ids=str)
def test_the_simulator_decomposition_gives_the_recorded_bits(planted):
    chip = GOLDEN["cpd"][str(planted)]
    row = recorder.cpd_row(recorder.decomposed(planted, simwarp.Device(cc=tuple(GOLDEN["arch"]))))
    assert row["sha256"] == chip["sha256"]
    assert row["fits"] == pytest.approx(chip["fits"], abs=SAME_FIT)


@pytest.mark.parametrize("planted", recorder.PLANTED, ids=str)
def test_the_reference_reaches_the_recorded_fits(planted):
    chip = GOLDEN["cpd"][str(planted)]
    cpd = reference.cpd_als(
        planted.tensor, planted.rank, seed=recorder.SEED, iterations=planted.iterations, tolerance=0.0
    )
    assert list(cpd.fits) == pytest.approx(chip["fits"], abs=SAME_FIT)
    assert chip["fits"][-1] == pytest.approx(1 - planted.noise, abs=0.02)
