"""What silicon said where the PTX ISA leaves a question open (docs/silicon.md): the simulator's answers."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

import simwarp

TESTS = Path(__file__).parents[1]
silicon = SimpleNamespace(**runpy.run_path(str(TESTS / "record_silicon.py")))
GOLDEN = json.loads((TESTS / "golden" / "silicon.json").read_text())


def test_the_answers_belong_to_these_kernels():
    assert GOLDEN["kernels"] == silicon.digest(), (
        "record again: python tests/record_silicon.py --out tests/golden"
    )
    assert set(GOLDEN["answers"]) == set(silicon.CASES)
    assert "NVIDIA" in GOLDEN["gpu"]["name"]


@pytest.mark.parametrize("name", silicon.CASES)
def test_the_simulator_answers_alike(name):
    assert silicon.answer(simwarp.Device(), name) == GOLDEN["answers"][name]
