"""Outputs recorded on hardware are compared with every tier, without a GPU."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simwarp
from simwarp.lab.subjects import SUBJECTS
from simwarp.testing import Golden, load, replay
from simwarp.verify import CASES
from support.unrecorded import UNRECORDED

FOLDER = Path(__file__).parents[1] / "golden" / "sm_90"
LARGEST_FILE = 1 << 20
FIRST = 4
"""So many answers of each golden are replayed by `make test`."""

UNANSWERED = pytest.mark.skip(reason="no GPU has answered yet: record it")
EXACT = [
    pytest.param(name, marks=UNANSWERED if name in UNRECORDED else ())
    for name, case in CASES.items()
    if case.differs is None
]


@pytest.fixture(params=EXACT)
def case(request):
    return CASES[request.param]


@pytest.fixture
def golden(case):
    return load(FOLDER / f"{case.name}.json")


@pytest.fixture(params=["first", pytest.param("others", marks=pytest.mark.slow)])
def part(request, golden):
    """A golden with its first outputs, or with the remaining ones."""
    some = slice(FIRST) if request.param == "first" else slice(FIRST, None)
    return replace(golden, outputs={k: golden.outputs[k] for k in sorted(golden.outputs)[some]})


@pytest.mark.gate_cases("*-others")
@pytest.mark.slow_cases("bnn-first", "bnn-layers-first", "bnn-whole-fsb-first")
def test_the_simulator_reproduces_hardware_outputs(case, part):
    """In CI the reference gives the others, below, and `make verify` compares it with the simulator."""
    assert replay(part, case, lambda item: case.answers["gpu"](item, simwarp.Device())) == []


@pytest.mark.at_most(6)
@pytest.mark.gate_cases("*-others-listing")
@pytest.mark.parametrize("tier", ["reference", "listing"])
def test_the_other_tiers_reproduce_hardware_outputs(case, part, tier):
    if tier not in case.answers:
        pytest.skip(f"{case.name} has no {tier}")
    assert replay(part, case, case.answers[tier]) == []


@pytest.mark.slow
def test_a_wrong_output_is_reported(case, golden):
    def wrong(item):
        answer = case.answers["reference"](item).copy()
        answer.flat[-1] ^= 1
        return answer

    assert replay(golden, case, wrong) == sorted(golden.outputs)


@pytest.mark.slow
def test_goldens_belong_to_the_current_kernels(case, golden):
    recorded = golden.meta["ptx"]
    assert recorded == case.kernels(tuple(golden.meta["arch"])), (
        f"the PTX of {case.name} is not what the golden was recorded from: record it again on a GPU with\n"
        f"{golden.meta['command']}"
    )


def test_goldens_name_gpu_driver_and_date(golden):
    meta = golden.meta
    assert meta["gpu"]["name"].startswith("NVIDIA")
    assert len(meta["gpu"]["uuid"]) == 32
    assert all(meta[key] for key in ("driver", "nvrtc", "date", "command", "arch", "ptx"))
    assert all(len(digest) == 64 for digest in meta["ptx"].values())


def test_goldens_cover_enough_inputs(golden):
    assert len(golden.outputs) >= 50
    whole = [output for output in golden.outputs.values() if output.dtype != np.uint8]
    assert len(whole) >= 30


def test_every_golden_has_a_case_and_is_small():
    names = {path.stem for path in FOLDER.iterdir() if path.suffix in (".npz", ".json")}
    exact = {name for name, case in CASES.items() if case.differs is None}
    assert exact - UNRECORDED <= names
    assert all(path.stat().st_size <= LARGEST_FILE for path in FOLDER.rglob("*"))


def test_a_recorded_case_is_not_listed_as_unrecorded():
    assert not [name for name in UNRECORDED if (FOLDER / f"{name}.json").exists() or name not in SUBJECTS]


def test_large_outputs_are_compared_by_digest():
    case = CASES["bmm"]
    reference = case.answers["reference"]
    outputs = {4: np.zeros(32, np.uint8)}
    golden = Golden({"seed": 0}, outputs)
    assert replay(golden, case, reference) == [4]
