"""The kernels of `examples/pipelines` are right under all schedules; a mutant without a wait is not."""

import json
import re
import runpy
import sys
from functools import cache, partial

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import CopyInFlight, MemoryFault, Race, UninitialisedRead
from simwarp.lab import recording as lab
from simwarp.testing import assert_same_bits
from simwarp.verify import Draw

example = partial(lab.example, "pipelines")
pipelines, module = example("pipelines"), example("gemm_cp_async")
FOLDER = lab.examples("pipelines")
NAMES = sorted(path.stem for path in FOLDER.glob("*.cu"))
SCHEDULES = ["lowest pc", "stack", "random"]
COMPARED = ["lowest pc", "stack", "random 0", "random 1"]
EQUAL = f"equal under {', '.join(COMPARED)}"
RAGGED = ((1, 1, 1), (7, 9, 8), (64, 64, 31), (17, 71, 97), (65, 3, 33))


def operands(m, n, k):
    source = Draw(3, "pipelines", 0)
    return [pipelines.eighths(source, *shape).astype(np.float16) for shape in ((m, k), (k, n))]


def product(a, b):
    """The product in integers: 64 times each sum."""
    a, b = (np.rint(8 * x.astype(np.float32)).astype(np.int64) for x in (a, b))
    return (a @ b / 64).astype(np.float32)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shape", RAGGED)
def test_gemm_cp_async_equals_numpy(shape, schedule):
    a, b = operands(*shape)
    got = module.gemm(simwarp.Device((8, 0), schedule=schedule), a, b)
    assert_same_bits(product(a, b), got)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gemm_cp_async_takes_any_number_of_stages(stages, schedule):
    a, b = operands(40, 70, 200)
    got = module.gemm(simwarp.Device((8, 0), schedule=schedule), a, b, stages)
    assert_same_bits(product(a, b), got)


def test_gemm_cp_async_runs_on_a_gpu_too(simwarp_device):
    a, b = operands(96, 80, 72)
    assert_same_bits(product(a, b), module.gemm(simwarp_device, a, b))


def test_gemm_cp_async_has_no_bank_conflict():
    device = simwarp.Device((8, 0), observe="banks")
    module.gemm(device, *operands(64, 64, 96))
    assert any("ldmatrix" in opcode for opcode in device.report.bank_conflicts.opcodes)
    assert device.report.bank_conflicts.total == 0


# ---- each wait and each barrier is needed --------------------------------------------------------------


@cache
def mutant(line, replacement):
    """The PTX of the kernel with one line replaced."""
    source = (FOLDER / "gemm_cp_async.cu").read_text()
    assert source.count(line) == 1
    return compile(source.replace(line, replacement), "mutant.cu", arch=(8, 0))


@pytest.mark.at_most(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("line", "replacement", "kind"),
    [
        ("wait<STAGES - 2>();", "wait<STAGES - 1>();", CopyInFlight),
        ("__syncthreads();  ", "__syncwarp();", (Race, UninitialisedRead)),
        ("fetch_step(step + STAGES - 1);", "fetch_step(step + STAGES);", CopyInFlight),
        ("const unsigned bytes = min(left, (unsigned)piece)", "const unsigned bytes = piece", MemoryFault),
    ],
)
def test_a_mutant_of_gemm_cp_async_is_found(line, replacement, kind, schedule, monkeypatch):
    monkeypatch.setattr(module, "ptx", lambda *_: mutant(line, replacement))
    with pytest.raises(kind):
        module.gemm(simwarp.Device((8, 0), schedule=schedule), *operands(40, 30, 170))


# ---- the runner ----------------------------------------------------------------------------------------


def test_every_pipeline_has_a_script():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*NAMES, "pipelines"}


def test_inputs_are_multiples_of_an_eighth_within_2():
    numbers = pipelines.eighths(Draw(0, "x", 0), 40, 50)
    assert set((8 * numbers).ravel()) == set(range(-16, 16))


def run_script(name, monkeypatch, *args):
    """Exit status of a script that runs in this process."""
    path = FOLDER / f"{name}.py"
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [str(path), *args])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(path), run_name="__main__")
    return stopped.value.code


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.gate_cases(but=("gemm_cp_async", "gemm_b1_stream_k"))
@pytest.mark.parametrize("name", NAMES)
def test_the_script_succeeds(name, monkeypatch, capsys):
    assert run_script(name, monkeypatch) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"{name} on simwarp simulator \(sm_\d+\)", first)
    assert len(lines) == len(example(name).EXAMPLE.shapes)
    assert all(line.endswith(f"right; {EQUAL}; no findings") for line in lines)


def test_a_script_prints_json(monkeypatch, capsys):
    assert run_script("gemm_cp_async", monkeypatch, "--json", "--shape", "5", "6", "7", "--seed", "2") == 0
    printed = json.loads(capsys.readouterr().out)
    case = {"shape": [5, 6, 7], "right": True, "schedules": COMPARED, "equal": True, "findings": []}
    assert printed == {
        "example": "gemm_cp_async",
        "device": "simwarp simulator (sm_80)",
        "cases": [case],
    }


@pytest.mark.gate
def test_a_script_draws_timelines(monkeypatch, capsys):
    assert run_script("gemm_cp_async", monkeypatch, "--timeline", "--shape", "5", "6", "70") == 0
    verdict, _, _, *rows = capsys.readouterr().out.splitlines()[1:]
    assert verdict.startswith("5x6x70: right")
    assert [row.split()[:3] for row in rows] == [["bytes", "from", str(8192 * i)] for i in range(3)]
    assert run_script("gemm_cp_async", monkeypatch, "--timeline", "--json", "--shape", "5", "6", "70") == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert len(case["timeline"]["turns"]) == 3
    assert run_script("gemm_cp_async", monkeypatch, "--timeline", "--device", "cuda") == 2


def outcome_of(run):
    """What the runner says of a device function in place of an example."""
    made = pipelines.Example("made", (8, 0), ((1,),), run, lambda _shape, _seed: np.zeros(1, np.float32))
    return pipelines.simulate(made, (1,), 0)


def test_a_wrong_result_is_reported():
    outcome = outcome_of(lambda *_: np.ones(1, np.float32))
    assert (outcome.right, outcome.equal, outcome.good) == (False, True, False)
    assert outcome.to_text() == f"1: WRONG; {EQUAL}; no findings"


def test_a_result_that_depends_on_the_schedule_is_reported():
    outcome = outcome_of(lambda device, *_: np.full(1, device.schedule == "stack", np.float32))
    assert (outcome.right, outcome.equal, outcome.good) == (False, False, False)
    assert "DIFFERENT" in outcome.to_text()


def test_the_findings_of_a_mutant_are_reported(monkeypatch):
    monkeypatch.setattr(module, "ptx", lambda *_: mutant("__syncthreads();  ", "__syncwarp();"))
    outcome = pipelines.simulate(module.EXAMPLE, (20, 10, 40), 0)
    assert not outcome.good
    assert any("race" in finding for finding in outcome.findings)
