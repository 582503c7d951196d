"""`simwarp ooc train`: a training, its checkpoint, plans without values, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")

from gpu.outofcore import Conv, Dense, Flatten, MaxPool, Network, Trainer
from simwarp.cli import main, ooc_train
from support.fake_gpus import gpus

__all__ = ["gpus"]

SMALL = ("--batch", "16", "--epochs", "2", "--budget", "60000", "--json")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images whose class is the place of a square."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 88)
    images = rng.random((88, 1, 8, 8), np.float32) / 4
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 4)
        image[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 1
    monkeypatch.setattr(ooc_train, "_digits", lambda: (images, labels))


def report(capsys: Any, *arguments: str) -> Any:
    assert main(["ooc", "train", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_training_reports_plan_bytes_times_and_accuracy(capsys: Any) -> None:
    facts = report(capsys, *SMALL)
    assert facts["steps"] == 8
    assert facts["device_bytes"] <= facts["budget"] == 60000
    assert abs(facts["predicted_seconds"] / facts["seconds"] - 1) < 0.1
    assert 0 <= facts["accuracy"] <= 1
    assert main(["ooc", "train", *SMALL[:-1]]) == 0
    text = capsys.readouterr().out
    assert "of the digits held back are recognised" in text
    assert facts["plan"][0] in text


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_resumed_training_ends_like_one_without_a_stop(capsys: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "net.npz")
    whole = report(capsys, *SMALL)
    report(capsys, *SMALL, "--epochs", "1", "--checkpoint", path)
    resumed = report(capsys, *SMALL, "--resume", path)
    assert (resumed["loss"], resumed["accuracy"]) == (whole["loss"], whole["accuracy"])
    assert main(["ooc", "train", *SMALL, "--resume", path, "--rate", "0.2"]) == 2
    assert "sgd=" in capsys.readouterr().err


@pytest.mark.gate
def test_the_digits_give_the_same_weights_in_core_and_out_of_core(capsys: Any, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    weights: list[dict[str, Any]] = []
    for name, budget, segments in (("in", "100000000", 1), ("out", "60000", 3)):
        path = str(tmp_path / f"{name}.npz")
        arguments = ("--budget", budget, "--epochs", "2", "--checkpoint", path, "--json")
        facts = report(capsys, *arguments, *([] if segments == 1 else ["--no-accumulation", "--batch", "64"]))
        assert facts["segments"] == segments
        assert facts["device_bytes"] <= int(budget)
        assert facts["accuracy"] > 0.8
        with np.load(path) as found:
            weights.append({key: found[key] for key in found.files if found[key].dtype == np.float32})
    inside, outside = weights
    assert inside.keys() == outside.keys()
    assert len(inside) >= 6
    for name, array in inside.items():
        np.testing.assert_array_equal(array, outside[name])


@pytest.mark.usefixtures("few")
def test_ctrl_c_exits_like_other_commands(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, x: Any, labels: Any) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "step", interrupted)
    assert main(["ooc", "train", *SMALL]) == 130
    assert capsys.readouterr().err.endswith("stopped\n")


@pytest.mark.gate
def test_vgg16_is_planned_and_timed_without_values(capsys: Any) -> None:
    arguments = "vgg16", "--explain", "--topology", "H100", "--no-accumulation"
    facts = report(capsys, *arguments, "--json")
    assert not facts["accumulates"]
    assert facts["seconds"] < 1.1 * facts["in_core_seconds"]
    assert facts["device_bytes"] <= 16 * 10**9


@pytest.mark.gate
def test_vgg16_with_batch_normalization_is_planned(capsys: Any) -> None:
    facts = report(capsys, "vgg16bn", "--explain", "--json")
    assert facts["segments"] == 14
    assert facts["seconds"] < 3 * facts["in_core_seconds"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("vgg16",), "give --explain"),
        (("--budget", "100"), "pass --budget"),
        (("--rate", "-1"), "rate is -1.0"),
        (("--depth", "99"), "depth is 99"),
        (("--topology", "none"), "none"),
        (("--resume", "none.npz"), "none.npz cannot be read"),
    ],
)
@pytest.mark.usefixtures("few")
def test_what_cannot_be_trained_is_refused(capsys: Any, arguments: tuple[str, ...], text: str) -> None:
    assert main(["ooc", "train", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_digits_need_scikit_learn(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["ooc", "train"]) == 2
    assert "pip install" in capsys.readouterr().err


@pytest.mark.gate  # two epochs, above, recognise eight of ten
def test_digits_are_recognised_after_a_few_epochs(capsys: Any) -> None:
    pytest.importorskip("sklearn")
    assert report(capsys, "--epochs", "5", "--json")["accuracy"] > 0.93


@pytest.mark.gate
def test_a_gpu_trains_on_drawn_images(capsys: Any, gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = gpus()
    small = Network((3, 8, 8), (Conv(4, activation="relu"), MaxPool(), Flatten(), Dense(5)))
    monkeypatch.setattr("gpu.outofcore.vgg16", lambda *, norm: small)
    arguments = ("vgg16", "--device", "cuda", "--batch", "4", "--budget", "1000000", "--epochs", "2")
    facts = report(capsys, *arguments, "--images", "9", "--json")
    assert (facts["steps"], facts["accuracy"], facts["device"]) == (4, None, "cuda")
    assert facts["loss"] > 0
    assert main(["ooc", "train", *arguments, "--explain"]) == 0
    assert "a step" not in capsys.readouterr().out
    assert main(["ooc", "train", *arguments]) == 0
    assert facts["machine"] in (text := capsys.readouterr().out)
    assert "2 steps" in text
    assert "recognised" not in text
    assert made.is_clean()


def test_images_are_not_drawn_for_digits(capsys: Any) -> None:
    assert main(["ooc", "train", "--images", "9"]) == 2
    assert "1,797" in capsys.readouterr().err
