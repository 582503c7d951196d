"""`simwarp run --device both`: its report, its exit codes and its errors; a simulated device is the GPU."""

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from reference.errors import NoGpuError
from simwarp.cli import main
from simwarp.device.device import Device
from simwarp.run import ChipTimeoutError
from simwarp.run.both.devices import Here

SCALE = """\
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __fmul_rn(x[i], 1.1f);
}
"""
RACE = "__global__ void race(int* x) { x[threadIdx.x / 2] = threadIdx.x; }\n"


@dataclass(frozen=True)
class Edited(Here):
    """A chip that runs PTX with an edit."""

    old: str = ""
    new: str = ""

    def answer(self, work, dump=None):
        ptx = work.source.ptx.replace(self.old, self.new) if self.old else work.source.ptx
        return super().answer(replace(work, source=replace(work.source, ptx=ptx)), dump)


class Hangs(Here):
    """A chip that does not answer."""

    def answer(self, work, dump=None):
        raise ChipTimeoutError("scale did not end on it within 1 seconds\ngone\ngive it more time")


@pytest.fixture
def chip(tmp_path, monkeypatch):
    """Set the chip of ``--device both``; the folder has the kernels and x.npy."""
    (tmp_path / "scale.cu").write_text(SCALE)
    (tmp_path / "race.cu").write_text(RACE)
    np.save(tmp_path / "x.npy", np.arange(64, dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def use(made):
        @contextmanager
        def second_device(both):
            use.asked = both
            yield made

        monkeypatch.setattr("simwarp.run.both.devices.second_device", second_device)

    use(Edited(Device(checks="off"), "mul.rn.f32", "mul.rz.f32"))
    return use


def scale(*options):
    args = ["--arg", "x.npy", "--arg", "y=out:float32:64", "--arg", "64", "-o", "out"]
    return ["run", "scale.cu", "--grid", "2", "--block", "32", *args, "--device", "both", *options]


def test_a_difference_is_shown_with_its_writer_and_the_command(chip, capsys):
    assert main(scale()) == 1
    text = capsys.readouterr().err
    wrong = np.arange(64, dtype=np.float32) * np.float32(1.1)
    assert "y: " in text
    assert "elements differ, the first is y[" in text
    assert "written last from %f" in text
    assert "scale.cu:3" in text
    assert "the simulator calls it exact" in text
    assert f"replay: simwarp {' '.join(scale())}" in text
    assert "the devices part" not in text
    np.testing.assert_array_equal(np.load("out/y.npy"), wrong)


def test_the_bisection_names_the_instruction(chip, capsys):
    assert main(scale("--bisect", "--json")) == 1
    both = json.loads(capsys.readouterr().out)["both"]
    assert both["compared"] is True
    assert both["equal"] is False
    assert both["parting"]["what"] == "register"
    assert both["parting"]["place"]["text"].startswith("mul.rn.f32")
    assert both["parting"]["executed"] == ""  # both were given the same PTX
    assert both["parting"]["place"]["source_line"] == 3
    assert both["replay"].endswith("--device both --bisect")


def test_equal_bits_are_said_and_a_tolerance_counts(chip, capsys):
    assert main(scale("--bound")) == 0
    assert main(scale("--rtol", "1e-6")) == 0
    assert "floats" not in capsys.readouterr().out
    assert main(scale("--rtol", "1e-9")) == 1
    chip(Edited(Device(checks="off")))
    assert main(scale("--bits", "--chip-seconds", "5")) == 0
    assert "x, y: equal bits on both devices" in capsys.readouterr().err
    assert chip.asked.seconds == 5
    assert main(scale("--json")) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["both"]["equal"], data["both"]["allowed"]) == (True, "equal bits")


def test_an_answer_that_another_schedule_gives_is_legal(chip, capsys):
    code = "__global__ void total(const float* x, float* y) { atomicAdd(y, x[threadIdx.x]); }\n"
    Path("total.cu").write_text(code)
    np.save("x.npy", np.float32(np.arange(64) % 7) / 3)
    words = [
        "run",
        "total.cu",
        "--grid",
        "1",
        "--block",
        "64",
        "--arg",
        "x.npy",
        "--device",
        "both",
        "-o",
        "out",
    ]
    words += ["--arg", "y=zeros:float32:1"]
    chip(Here(Device(schedule="random", seed=2)))
    assert main(words) == 1
    assert "the simulator calls it free" in capsys.readouterr().err
    assert main([*words, "--schedules", "3", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["both"]["equal"], data["both"]["legal"][:13]) == (True, "random, seed ")
    assert (data["schedules"], data["findings"]) == (None, [])  # the simulator was not held against itself


def test_a_kernel_with_a_finding_is_not_compared(chip, capsys):
    race = ["run", "race.cu", "--grid", "1", "--block", "64", "--arg", "x=zeros:int32:64", "--device", "both"]
    chip(Edited(Device(checks="off")))
    assert main(race) == 1
    text = capsys.readouterr().err
    assert "race: write of x[0]" in text
    assert "race is not compared: the simulator has a finding: race" in text
    assert "--compare-anyway" in text
    assert main([*race, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)["both"]
    assert data["compared"] is False
    assert "is not compared" in data["reason"]
    assert main([*race, "--compare-anyway"]) == 1  # the finding stays one
    assert "compared in spite of race" in capsys.readouterr().err


def test_a_chip_that_hangs_is_said(chip, capsys):
    chip(Hangs(Device()))
    assert main(scale()) == 1
    assert "did not end on it within 1 seconds" in capsys.readouterr().err
    assert np.load("out/y.npy").shape == (64,)


def test_wrong_requests_are_typed(chip, capsys):
    alone = [word for word in scale() if word not in ("--device", "both")]
    assert main([*alone, "--bisect", "--compare-anyway"]) == 2
    assert "--bisect, --compare-anyway with --device sim" in capsys.readouterr().err
    assert main(scale("--bits", "--rtol", "1")) == 2
    assert "equal bits allow no tolerance" in capsys.readouterr().err
    assert main(scale("--bound", "--atol", "1")) == 2
    assert "the arithmetic's bound is a tolerance, too" in capsys.readouterr().err
    chip(Edited(Device(cc=(8, 0))))
    assert main(scale("--cc", "9.0")) == 2
    assert "the target needs sm_90" in capsys.readouterr().err


def test_without_a_gpu_the_error_says_what_to_do(tmp_path, monkeypatch, capsys):
    def nothing(both):
        raise NoGpuError("no CUDA device can be used: none found\npass device=simwarp.Device()")

    (tmp_path / "scale.cu").write_text(SCALE)
    np.save(tmp_path / "x.npy", np.zeros(64, np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("simwarp.run.both.devices.second_device", nothing)
    assert main(scale()) == 2
    assert capsys.readouterr().err.splitlines() == [
        "no CUDA device can be used: none found",
        "--device both needs a GPU beside the simulator",
        "give --device sim, or run it on a machine with one",
    ]
