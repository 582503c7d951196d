"""The campaign of mbarriers: its programs, their model, and that it sees a difference."""

import re
import shutil
import subprocess
from collections import Counter

import numpy as np
import pytest

import simwarp
from simwarp.lab.recording import Asking
from simwarp.lab.subjects import mbarriers
from simwarp.lab.subjects.mbarriers_by_chance import generate, module

WORDS = (
    *(
        "init",
        "inval",
        "arrive",
        "arrive.noComplete",
        "arrive.expect_tx",
        "arrive_drop",
        "arrive_drop.noComplete",
    ),
    *("arrive_drop.expect_tx", "expect_tx", "complete_tx", "test_wait", "test_wait.parity"),
    *("try_wait", "try_wait.parity", "pending_count"),
)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("schedule", mbarriers.SCHEDULES)
def test_the_simulator_gives_what_the_model_knows(schedule):
    programs = [generate(3, number) for number in range(3)]
    device = simwarp.Device(schedule=schedule)
    found = mbarriers.answers(device, programs)
    for program, answer in zip(programs, found, strict=True):
        assert mbarriers.unexpected(program, answer) is None, program.number


def test_no_result_depends_on_the_schedule():
    programs = [generate(4, number) for number in range(2)]
    first, *others = (
        [
            mbarriers.digest(one)
            for one in mbarriers.answers(simwarp.Device(schedule=schedule, seed=5), programs)
        ]
        for schedule in mbarriers.SCHEDULES
    )
    assert all(other == first for other in others)


def test_programs_have_every_operation_and_the_model_knows_most_results():
    programs = [generate(mbarriers.SEED, number) for number in range(300)]
    words = Counter(
        word
        for program in programs
        for word in WORDS
        if re.search(rf"mbarrier\.{word}(\.(release|relaxed|acquire|shared|b64))", program.body)
    )
    assert set(words) == set(WORDS)
    assert min(words.values()) >= 10
    assert sum("cp.async.bulk" in program.body for program in programs) >= 100
    assert {program.threads for program in programs} == {32, 64, 96, 128}
    assert all(program.known for program in programs)
    assert sum(len(program.known) for program in programs) > 0.8 * sum(program.slots for program in programs)


def test_a_seed_and_a_number_determine_a_program():
    assert mbarriers.text_digest(generate(1, 2)) == mbarriers.text_digest(generate(1, 2))
    assert len({mbarriers.text_digest(generate(1, number)) for number in range(20)}) == 20


@pytest.mark.gate
def test_a_wrong_result_is_described_with_its_program(monkeypatch):
    right = mbarriers.answers

    def answers(device, programs):
        found = right(device, programs)
        if len(programs) > 1:
            found[2][1, 0, :] ^= 1
        return found

    monkeypatch.setattr(mbarriers, "answers", answers)
    rows, counted, (text,) = mbarriers.compare(simwarp.Device(), range(4))
    assert len(rows) == 4
    assert counted["counts"]["mismatches"] == 1
    first, second, *_ = text.splitlines()
    assert first == "program 2"
    assert re.match(r"\d+ results differ; block 1, slot 0, thread 0: chip 0x\w+, simulator 0x\w+", second)


class Broken(simwarp.Device):
    """A device that cannot execute one program."""

    def load(self, text, *rest, **options):
        if "program1(" in text:
            raise RuntimeError("an illegal instruction was encountered")
        return super().load(text, *rest, **options)


@pytest.mark.gate
def test_a_program_that_a_device_cannot_execute_loses_no_other(monkeypatch):
    monkeypatch.setattr(Asking, "number", lambda self, full, small: 3)
    found = mbarriers.ask(Asking(Broken, small=True))
    assert found.facts["lost"] == 1
    assert [bool(row.any()) for row in found.arrays["digests"]] == [True, False, True]
    assert found.arrays["texts"].any(axis=1).all()
    (text,) = found.differences
    assert text.startswith("program 1: no answer")
    assert "an illegal instruction was encountered" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas of the CUDA toolkit")
def test_ptxas_accepts_the_programs(tmp_path):
    path = tmp_path / "module.ptx"
    path.write_text(module([generate(mbarriers.SEED, number) for number in range(0, mbarriers.COUNT, 160)]))
    command = ["ptxas", "-arch=sm_90", "-o", str(tmp_path / "out"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_result_that_is_not_the_models_is_named():
    program = generate(0, 3)
    answer = mbarriers.simulated(program)
    slot, threads, value = program.known[0]
    answer[0, slot, np.flatnonzero(threads)[0]] += 1
    assert mbarriers.unexpected(program, answer).startswith(f"slot {slot}: ")
    assert mbarriers.unexpected(program, answer).endswith(f"the model {value}")
