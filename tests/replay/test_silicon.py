"""Results of hardware where the PTX ISA leaves a question open (docs/silicon.md), and the simulator's."""

import pytest

import simwarp
from simwarp.lab.recording import recorded
from simwarp.lab.subjects import silicon

GOLDEN = recorded("silicon").meta


def test_the_recording_belongs_to_the_current_kernels():
    assert GOLDEN["ptx"]["kernels"] == silicon.digest(), "record again: simwarp record silicon"
    assert set(GOLDEN["answers"]) == set(silicon.CASES)
    assert "NVIDIA" in GOLDEN["gpu"]["name"]


@pytest.mark.parametrize("name", silicon.CASES)
def test_the_simulator_gives_the_recorded_outputs(name):
    assert silicon.answer(simwarp.Device(), name) == GOLDEN["answers"][name]
