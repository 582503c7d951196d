"""The benchmark of training: a row on a GPU that is not there, and its checks."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmark_scripts import scripts
from gpu.outofcore import Conv, Dense, Flatten, MaxPool, Network, calibration
from support.fake_gpus import gpus

__all__ = ["gpus"]

(training,) = scripts("training")


def small() -> Network:
    return Network((3, 8, 8), (Conv(4, activation="relu"), MaxPool(), Conv(4), Flatten(), Dense(5)))


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    monkeypatch.setattr(calibration, "COPY_BYTES", 1 << 14)
    monkeypatch.setattr(calibration, "ROUTINE_BYTES", 1 << 17)
    monkeypatch.setitem(training.ROWS, "ooc/small", training.Case(small, 4, 200_000, 1.1))


@pytest.mark.gate
def test_a_row_has_losses_times_and_the_model(gpus):
    found = gpus()
    *_, row = training.rows_of("ooc/small", 3, (), records=True)
    facts = row.params
    assert len(facts["losses"]) == len(facts["runs"]) == 3
    assert facts["losses"][-1] < facts["losses"][0]
    assert facts["device_bytes"] <= facts["budget"]
    assert not facts["accumulates"]
    assert (
        facts["by_routine"].keys() == facts["model_by_routine"].keys() >= {"conv2d", "max_pool", "sgd", "all"}
    )
    assert min(facts["by_routine"].values()) >= 0
    assert row.ours > 0
    assert found.is_clean()


def test_losses_that_differ_are_wrong():
    row = training.Row("ooc/small", {"loss_error": 2e-3}, "s", "lower", 1.0)
    assert training.is_wrong(row)
    assert not training.is_wrong(replace(row, params={"loss_error": 5e-4}))
    assert not training.is_wrong(replace(row, params={}))


def test_a_large_image_has_the_layers_of_vgg16():
    network = training.convolutions(64)
    assert [stage.kind for stage in network.stages].count("conv") == 13
    assert network.shape(len(network.stages) - 1) == (512, 1, 1)
