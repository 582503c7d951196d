"""Measured rates of GPUs, and their file: what is kept, and what is measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu.outofcore
from gpu.cuda_machine import CudaMachine
from gpu.outofcore import Pieces, calibration, explain
from gpu.outofcore.calibration import key_of
from gpu.outofcore.rates import step_of
from gpu.outofcore.rates_file import RatesFile
from reference.errors import LaunchError
from simwarp.lab.machines import Host
from simwarp.lab.outofcore.filters import COUNTS, curve
from support.fake_gpus import gpus
from support.outofcore_calls import Layer

__all__ = ["gpus"]

LAYER: Any = (8, 6, 9, 8), (10, 6, 3, 3)


@pytest.fixture(autouse=True)
def small_probes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(calibration, "COPY_BYTES", 1 << 14)
    monkeypatch.setattr(calibration, "ROUTINE_BYTES", 1 << 17)


def rates_and_file(**call: Any) -> tuple[Any, Path]:
    """The rates of a plan on a new machine, and their file."""
    with CudaMachine() as machine:
        plan = explain("conv2d", *LAYER, device=machine, **call)
        assert not machine.allocated(0)
        assert not machine.pinned()
        return plan.rates, RatesFile(machine).path


def test_rates_are_measured_once_for_a_machine_and_a_layer(gpus) -> None:
    found = gpus()
    first, path = rates_and_file()
    assert found.is_clean()
    assert path.is_file()
    assert not list(path.parent.glob("*.tmp"))
    executed = len(found.cudnn.executed)
    again, _ = rates_and_file()
    assert again == first
    assert len(found.cudnn.executed) == executed
    other, _ = rates_and_file(stride=2)
    assert len(found.cudnn.executed) > executed
    assert vars(other) | {"launch_seconds": 0, "operations_per_second": 0} == vars(first) | {
        "launch_seconds": 0,
        "operations_per_second": 0,
    }
    assert len(json.loads(path.read_text())["routines"]) == 2


def test_the_file_of_a_machine_is_read_once_for_a_layer(gpus, monkeypatch) -> None:
    gpus()
    read, files = RatesFile.read, list[Path]()
    monkeypatch.setattr(RatesFile, "read", lambda self: (files.append(self.path), read(self))[1])
    with CudaMachine() as machine:
        plans = [explain("conv2d", *LAYER, device=machine) for _ in range(3)]
        assert plans[0] is plans[2]  # a plan is made once, too
        assert len(files) == 1
        assert explain("conv2d", *LAYER, device=machine, memory_budget=1 << 20) is not plans[0]
        explain("conv2d", *LAYER, device=machine, stride=2)
        assert len(files) == 2
    rates_and_file()
    assert len(files) == 3


def test_rates_are_of_a_layer_and_a_dtype_whatever_the_number_of_images(gpus) -> None:
    def key(images: int = 2, **more: Any) -> str:
        plan = explain("conv2d", (images, *LAYER[0][1:]), LAYER[1], device=machine, **more)
        return key_of(plan.problem)

    gpus()
    with CudaMachine() as machine:
        assert key(2) == key(3)
        options = gpu.outofcore.Options(math="tf32")
        transforms = gpu.outofcore.Options(transforms=True)
        keys = {key(), key(dtype="float16"), key(options=options), key(stride=2), key(padding="VALID")}
        assert len(keys | {key(options=transforms)}) == 6


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda content: "", "damaged"),
        (lambda content: "{", "damaged"),
        (lambda content: "[1]", "damaged"),
        (lambda content: json.dumps({**json.loads(content), "links": [1, 2]}), "damaged"),
        (lambda content: json.dumps({**json.loads(content), "links": [0, 0, 0, 1, 1, 1]}), "damaged"),
        (lambda content: json.dumps({**json.loads(content), "routines": {"a": [0, -1]}}), "damaged"),
        (lambda content: json.dumps({**json.loads(content), "routines": {"a": [0, "NaN"]}}), "damaged"),
        (lambda content: json.dumps({**json.loads(content), "filters_step": 0}), "damaged"),
        (lambda content: json.dumps({**json.loads(content), "filters_step": True}), "damaged"),
        (lambda content: json.dumps({**json.loads(content), "form": 0}), "another machine"),
        (lambda content: content.replace("A device that is not there", "Another"), "another machine"),
    ],
)
def test_a_damaged_or_foreign_file_is_measured_again(gpus, damage: Any, why: str) -> None:
    gpus()
    _, path = rates_and_file()
    path.write_text(damage(path.read_text()))
    with pytest.warns(RuntimeWarning, match=why):
        rates_and_file()
    rates_and_file()  # without a warning


@pytest.mark.parametrize("step", [1, 4, 32, 64])
def test_the_step_of_filters_explains_their_times(step: int) -> None:
    """Seconds by the paper's formula, with errors of 2 %, at the study's numbers of filters."""
    rng = np.random.default_rng(step)
    times = [(n, (2e-6 + 3e-5 * -(-n // step) * step) * rng.uniform(0.98, 1.02)) for n in (*COUNTS, 1, 2, 5)]
    assert step_of(times) == step


def test_a_measured_step_goes_into_the_rates(gpus, monkeypatch) -> None:
    """The time of all filters of a layer stays as it was measured; fewer take as long up to the step."""

    def timed(machine: Any, problem: Any, pieces: Pieces) -> tuple[float, float]:
        assert problem.workspace is None
        return float(pieces.filters), -(-pieces.filters // 4) * 1e-3

    gpus()
    before, path = rates_and_file()
    with CudaMachine() as machine:
        explain("conv2d", *LAYER, device=machine)
        monkeypatch.setattr(calibration, "_timed", timed)
        found = curve(Host(machine, "fake", ("fake",), "cuda"), (2, 6, 9, 8), (1, 3, 4, 5, 8, 9))
        assert found["step"] == 4
        assert [row["seconds"] for row in found["rows"]] == [1e-3, 1e-3, 1e-3, 2e-3, 2e-3, 3e-3]
        again = explain("conv2d", *LAYER, device=machine).rates
    after, _ = rates_and_file()
    assert json.loads(path.read_text())["filters_step"] == 4
    assert again == after
    assert (before.filters_step, after.filters_step) == (1, 4)
    assert after.routine(1e6, filters=10) == pytest.approx(before.routine(1e6, filters=10))
    assert after.routine(1e9, filters=5) > 1.5 * after.routine(1e9, filters=8)
    assert RatesFile(machine).read().routines


def test_a_folder_that_cannot_be_written_is_not_an_error(gpus, monkeypatch, tmp_path: Path) -> None:
    gpus()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="not used"):
        rates, _ = rates_and_file()
    assert rates.operations_per_second > 0


def test_a_small_budget_is_kept_to_and_its_rates_are_not(gpus, monkeypatch) -> None:
    monkeypatch.setattr(calibration, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(calibration, "ROUTINE_BYTES", 1 << 20)
    found, least = gpus(), 20_000
    with CudaMachine(budget=least) as machine:
        plan = explain("conv2d", *LAYER, device=machine, pieces=Pieces(1, 1, 1, 1), memory_budget=least)
        assert plan.buffers.total <= least
        assert not RatesFile(machine).path.exists()
        with pytest.raises(LaunchError, match="pass memory_budget="):
            explain("conv2d", *LAYER, device=machine, memory_budget=100)
    assert found.is_clean()


def test_a_call_without_rates_is_right(gpus) -> None:
    gpus()
    layer, statistics = Layer(), gpu.outofcore.Statistics()
    with CudaMachine() as machine:
        for routine in ("conv2d", "conv2d_backward_data", "conv2d_backward_filter"):
            found = layer.run(routine, machine, statistics=statistics)
            assert layer.error(routine, found) <= 1
            assert statistics.predicted_seconds > 0


@pytest.mark.parametrize("call", ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemAlloc"])
def test_a_failed_measurement_leaves_nothing_behind(gpus, call: str) -> None:
    for number in (1, 2) if call != "cuMemAlloc" else (1,):
        found = gpus(failing=(call, number, "INVALID_VALUE"))
        machine = CudaMachine()
        with pytest.raises(Exception, match="device 0"):
            Layer().run("conv2d", machine)
        assert not machine.allocated(0)
        assert not machine.pinned()
        assert not RatesFile(machine).path.exists() or number > 1
        machine.close()
        assert found.is_clean()


def test_rates_of_zero_images_are_not_measured(gpus) -> None:
    """One image of a layer of one image gives one time, and a rate all the same."""
    gpus()
    with CudaMachine() as machine:
        plan = explain("conv2d", (1, 6, 9, 8), (10, 6, 3, 3), device=machine)
    assert plan.rates.operations_per_second > 0
    assert np.isfinite(plan.seconds)
