"""Checkpoints of out-of-core training: resumed bits, broken and foreign files, interrupts."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu.outofcore import SGD, Trainer
from reference.errors import InputFileError
from simwarp.machine import CopyError, CopyFails, Machine
from support.training_networks import NETWORKS, Sample, is_clean, same_bits, state_of

SAMPLE = Sample(NETWORKS["dense"], 3)
IMAGES = np.random.default_rng(1).standard_normal((10, 3, 2, 2)).astype(np.float32)
LABELS = np.arange(10) % 3


def trainer(machine: Machine | None = None, **changes: Any) -> Trainer:
    given: dict[str, Any] = {"network": SAMPLE.network, "batch": 3, "sgd": SAMPLE.sgd, "seed": 4} | changes
    return Trainer(device=machine or Machine(), **given)


def test_a_resumed_training_has_the_bits_of_one_without_a_stop(tmp_path: Path) -> None:
    whole, path = trainer(), tmp_path / "net.npz"
    losses = whole.train(IMAGES, LABELS, epochs=4)
    first = trainer(memory_budget=3100)
    before = first.train(IMAGES, LABELS, epochs=2, checkpoint=path)
    resumed = trainer(Machine(seed=1, jitter=20.0))
    resumed.load(path)
    assert resumed.steps == first.steps == 6
    assert before + resumed.train(IMAGES, LABELS, epochs=4) == losses
    assert same_bits(state_of(resumed), state_of(whole))
    assert resumed.train(IMAGES, LABELS, epochs=4) == []


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_training_resumes_from_any_step(tmp_path: Path, steps: int) -> None:
    whole = trainer()
    losses = whole.train(IMAGES, LABELS, epochs=2)
    stopped, path = trainer(), tmp_path / "net.npz"

    def stop(progress: Any) -> None:
        if progress.step == steps:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.train(IMAGES, LABELS, epochs=2, progress=stop)
    stopped.save(path)
    resumed = trainer()
    resumed.load(path)
    assert resumed.train(IMAGES, LABELS, epochs=2) == losses[steps:]
    assert same_bits(state_of(resumed), state_of(whole))


@pytest.mark.gate
def test_a_checkpoint_has_running_means(tmp_path: Path) -> None:
    net, path = NETWORKS["normalized"], tmp_path / "net.npz"
    x = np.random.default_rng(1).standard_normal((6, *net.image)).astype(np.float32)
    labels = np.arange(6) % 4
    whole, first, resumed = (trainer(network=net) for _ in range(3))
    whole.train(x, labels, epochs=2)
    first.train(x, labels, epochs=1, checkpoint=path)
    resumed.load(path)
    resumed.train(x, labels, epochs=2)
    assert same_bits(state_of(resumed), state_of(whole))
    assert "batch_norm2.running v" in state_of(whole)
    assert np.array_equal(resumed.logits(x), whole.logits(x))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"network": NETWORKS["mixed"]}, "network"),
        ({"network": replace(SAMPLE.network, image=(12, 1, 1))}, "network"),
        ({"batch": 2}, "batch"),
        ({"seed": 5}, "seed"),
        ({"sgd": SGD(0.2)}, "sgd"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path, changes: Any, name: str) -> None:
    trainer().save(tmp_path / "net.npz")
    other = trainer(**changes)
    before = state_of(other)
    with pytest.raises(InputFileError, match=f"with {name}="):
        other.load(tmp_path / "net.npz")
    assert same_bits(state_of(other), before)


def test_a_broken_checkpoint_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path, broken = tmp_path / "net.npz", tmp_path / "broken.npz"
    saved = trainer()
    saved.train(IMAGES, LABELS, epochs=1)
    saved.save(path)
    whole, other = path.read_bytes(), trainer()
    before = state_of(other)
    parts = [whole[:size] for size in range(0, len(whole), 97)]
    flips = [whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :] for at in range(0, len(whole), 61)]
    for content in [*parts, *flips, b"not a checkpoint"]:
        broken.write_bytes(content)
        try:
            other.load(broken)
        except InputFileError:
            assert other.steps == 0
            assert same_bits(state_of(other), before)
        else:  # bytes of the archive's own fields that nobody reads
            assert same_bits(state_of(other), state_of(saved))
            other = trainer()
    with pytest.raises(InputFileError, match="cannot be read"):
        other.load(tmp_path / "none.npz")


def rewritten(path: Path, **changes: Any) -> None:
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def test_changed_values_of_a_checkpoint_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    for change in (
        {"w/dense1.w": np.zeros((6, 12), np.float32)},
        {"w/dense1.w": np.zeros((6, 12))},
        {"w/dense1.bias": np.zeros(7, np.float32)},
        {"velocity/dense1.bias": None},
        {"facts": np.zeros(3, np.uint8)},
        {"facts": np.frombuffer(b"[]", np.uint8)},
    ):
        trainer().save(path)
        rewritten(path, **change)
        with pytest.raises(InputFileError):
            trainer().load(path)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    np.savez(path, facts=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputFileError):
        trainer().load(path)


def test_a_training_that_fails_leaves_its_last_checkpoint(tmp_path: Path) -> None:
    path, counted = tmp_path / "net.npz", Machine()
    trainer(counted).train(IMAGES, LABELS, epochs=1)
    copies = sum(one.kind == "out" for one in counted.timeline)
    machine = Machine(injections=[CopyFails("out", 0, copies + 2)])
    failing = trainer(machine)
    with pytest.raises(CopyError):
        failing.train(IMAGES, LABELS, epochs=3, checkpoint=path)
    assert is_clean(machine)
    resumed = trainer()
    resumed.load(path)
    assert resumed.steps == 3
    expected = trainer()
    expected.train(IMAGES, LABELS, epochs=2)
    resumed.train(IMAGES, LABELS, epochs=2)
    assert same_bits(state_of(resumed), state_of(expected))


def test_an_interrupted_write_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: Any) -> None:
    path, saved = tmp_path / "net.npz", trainer()
    saved.save(path)
    content = path.read_bytes()

    def interrupted(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    saved.train(IMAGES, LABELS, epochs=1)
    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        saved.save(path)
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["net.npz"]
    with pytest.raises(InputFileError, match="another file for checkpoints"):
        saved.save(tmp_path / "none" / "net.npz")


def test_a_checkpoint_is_an_archive_of_plain_arrays(tmp_path: Path) -> None:
    trainer().save(tmp_path / "net.npz")
    assert zipfile.is_zipfile(tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz", allow_pickle=False) as found:
        assert found["w/dense1.w"].shape == (6, 12)
