"""Tasks in processes: one that fails, or ends its process, is lost, and the others are done."""

import os
import time

import pytest

import simwarp
from simwarp.lab.crew import Crew, Lost, perform

pytestmark = pytest.mark.slow


def task(device, kind):
    if kind == "raise":
        raise ValueError("an illegal instruction")
    if kind == "die":
        os._exit(7)
    if kind == "hang":
        time.sleep(60)
    return f"{kind} on {device.name}"


def process(device):
    return os.getpid(), id(device)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("processes", [1, 3])
def test_a_task_that_fails_loses_no_other(processes):
    kinds = ["one", "raise", "two", "die", "three"]
    found = list(perform(simwarp.Device, task, [(kind,) for kind in kinds], processes))
    assert [found[i] for i in (0, 2, 4)] == [
        f"{kind} on simwarp simulator (sm_90)" for kind in ("one", "two", "three")
    ]
    assert isinstance(found[1], Lost)
    assert "ValueError: an illegal instruction" in found[1].reason
    assert found[3] == Lost("the process ended with exit code 7")


def test_a_task_without_an_answer_is_given_up():
    found = list(perform(simwarp.Device, task, [("hang",), ("one",)], 2, patience=5))
    assert found == [Lost("no answer after 5 seconds"), "one on simwarp simulator (sm_90)"]


def test_a_crew_keeps_its_processes_and_their_devices():
    crew = Crew(simwarp.Device, 1)
    first, second = (list(crew.perform(process, [(), ()])) for _ in range(2))
    crew.close()
    assert len({*first, *second}) == 1
    assert first[0][0] != os.getpid()
