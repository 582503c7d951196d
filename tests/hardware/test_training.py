"""Training out of core on real GPUs: its kernels, small networks, and plans that the planner makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpu
from gpu.cuda_machine import default_machine
from gpu.outofcore import Conv, Cut, Dense, Flatten, MaxPool, Network, Segment
from simwarp.machine import Machine
from support.training_networks import NETWORKS, Sample
from support.training_routines import CUTS, assert_kernels_are_right, assert_training_is_right

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def machine() -> Iterator[Any]:
    default_machine()
    with gpu.CudaMachine([0]) as made:
        yield made


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_kernels_compute_what_their_routines_do(machine: Any, name: str, cut: str) -> None:
    assert_kernels_are_right(machine, NETWORKS[name], cut)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_training_is_that_of_the_simulated_machine(machine: Any, name: str, cut: str) -> None:
    assert_training_is_right(machine, name, cut)


@pytest.mark.parametrize("transforms", [False, True])
def test_strips_of_rows_are_the_whole(machine: Any, transforms: bool) -> None:
    layers = (
        Conv(40, activation="relu"),
        Conv(48, activation="relu"),
        MaxPool(),
        Conv(32),
        Flatten(),
        Dense(9),
    )
    sample, found = Sample(Network((16, 48, 40), layers), batch=4), list[Any]()
    for cut in (Cut(9, 99), Cut(2, 99), Cut(1, 7)):
        segments = Segment(1, 4, cut, cut), Segment(5, 5, Cut(9, 99), Cut(9, 99))
        with sample.trainer(machine, segments=segments, transforms=transforms) as trainer:
            losses = [trainer.step(sample.x, sample.labels) for _ in range(3)]
            found.append(losses + [float(np.abs(w).sum()) for w in trainer.parameters.values()])
    np.testing.assert_allclose(found[1:], [found[0]] * 2, 2e-3)


def test_the_planner_takes_the_rates_of_stages(machine: Any) -> None:
    sample = Sample(NETWORKS["mixed"], batch=5)
    expected = sample.trained(Machine())["losses"]
    for budget in (None, 120_000):
        with sample.trainer(machine, budget) as trainer:
            losses = [trainer.step(sample.x, sample.labels) for _ in range(2)]
            assert trainer.explain().rates.of("conv1 forward")[1] > 0
        np.testing.assert_allclose(losses, expected, 1e-3)


def test_a_model_of_torch_has_the_gradients_of_torch(machine: Any) -> None:
    torch = pytest.importorskip("torch")
    from gpu.outofcore.in_torch import outofcore

    torch.manual_seed(3)
    layers = [torch.nn.Conv2d(3, 24, 3, padding=1), torch.nn.BatchNorm2d(24), torch.nn.ReLU()]
    layers += [torch.nn.MaxPool2d(2), torch.nn.Conv2d(24, 16, 3), torch.nn.ReLU(), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(16 * 14 * 10, 7))
    x, labels = torch.rand(12, 3, 32, 24), torch.arange(12) % 7
    expected = torch.nn.functional.cross_entropy(model(x), labels)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    for where in ("cpu", "cuda"):
        with outofcore(model, 3_000_000, device=machine) as wrapped:
            loss = torch.nn.functional.cross_entropy(wrapped(x.to(where)), labels.to(where))
            loss.backward()
        assert abs(loss.item() / expected.item() - 1) < 1e-4
        for found, other in zip(model.parameters(), gradients, strict=True):
            scale = other.abs().max() + 1e-3  # the bias in front of a norm has none
            assert ((found.grad - other).abs() / scale).max() < 2e-3
        model.zero_grad()
