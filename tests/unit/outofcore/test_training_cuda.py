"""Training on a driver and a cuDNN without a GPU, whose kernels run on the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpu.cuda_machine import CudaMachine
from gpu.machine import Tile
from gpu.outofcore.networks import engines
from gpu.outofcore.networks.phases import Key
from gpu.outofcore.networks.routines import ActivationGradient
from reference.errors import LaunchError, MachineError
from simwarp.machine import Machine
from support.fake_gpus import gpus
from support.training_networks import NETWORKS, Sample, passing, state_of
from support.training_routines import CUTS, RATES, WIDE, assert_kernels_are_right, assert_training_is_right

__all__ = ["gpus"]


@pytest.mark.at_most(2)
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_kernels_compute_what_their_routines_do(gpus, name: str, cut: str) -> None:
    made = gpus()
    with CudaMachine() as machine:
        assert_kernels_are_right(machine, NETWORKS[name], cut)
    assert made.is_clean()


def test_kernels_compute_large_planes(gpus) -> None:
    made = gpus()
    with CudaMachine() as machine:
        assert_kernels_are_right(machine, WIDE, "whole", batch=2)
    assert made.is_clean()


@pytest.mark.gate
@pytest.mark.at_most(2)
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", ["mixed", pytest.param("normalized", marks=pytest.mark.slow)])
def test_training_on_a_gpu_is_that_of_the_simulated_machine(gpus, name: str, cut: str) -> None:
    made = gpus()
    with CudaMachine() as machine:
        assert_training_is_right(machine, name, cut)
    assert made.is_clean()


@pytest.mark.gate
@pytest.mark.at_most(1)
@pytest.mark.parametrize("parameters", ["device", "host"])
def test_computing_again_on_a_gpu_is_that_of_the_simulated_machine(gpus, parameters: str) -> None:
    made, sample = gpus(), Sample(NETWORKS["normalized"], batch=5)
    options: Any = {
        "segments": passing(("passed", "again", "kept"), frozenset({1, 4}), (3, 5, 6)),
        "on_device": frozenset({Key("g", 6), Key("r", 4)}),
        "parameters": parameters,
    }
    expected = sample.trained(Machine(), **options)
    options |= {"rates": RATES, "transforms": False}
    with CudaMachine() as machine, sample.trainer(machine, **options) as trainer:
        losses = [trainer.step(sample.x, sample.labels) for _ in range(2)]
        found = state_of(trainer) | {"losses": np.array(losses)}
    assert made.is_clean()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, 1e-4, 1e-5, err_msg=name)


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, 70_000])
def test_logits_on_a_gpu_are_those_of_the_simulated_machine(gpus, budget: int | None) -> None:
    made, sample = gpus(), Sample(NETWORKS["normalized"], batch=5)
    found: list[Any] = []
    for machine in (Machine(), CudaMachine()):
        rates = None if isinstance(machine, Machine) else RATES
        with sample.trainer(machine, budget, rates=rates, transforms=False) as trainer:
            trainer.step(sample.x, sample.labels)
            found.append(trainer.logits(sample.x[:3]))
    machine.close()
    assert made.is_clean()
    np.testing.assert_allclose(*found, 1e-3, 1e-4)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"])
def test_a_kernel_that_fails_leaves_parameters_and_nothing_else(gpus, call: str) -> None:
    made, sample = gpus(failing=(call, 3, "OUT_OF_MEMORY")), Sample(NETWORKS["mixed"])
    with CudaMachine() as machine, sample.trainer(machine, rates=RATES) as trainer:
        with pytest.raises(MachineError, match=call):
            trainer.step(sample.x, sample.labels)
        assert machine.pinned() == len(machine.allocated(0)) == 0
        initial = sample.network.initial(0)
        assert all(np.array_equal(trainer.parameters[name], w) for name, w in initial.items())
    assert made.is_clean()


@pytest.mark.gate
def test_without_rates_those_of_stages_are_measured(gpus, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    monkeypatch.setattr(engines, "_PROBE_BYTES", 1 << 16)
    made, sample = gpus(), Sample(NETWORKS["mixed"])
    with CudaMachine() as machine, sample.trainer(machine) as trainer:
        rates: Any = trainer.explain().rates
        weighty = [stage for stage in sample.network.stages if stage.has_weights]
        assert {kind for kind, _ in rates.stages} > {
            f"{stage.name} {action}" for stage in weighty for action in ("forward", "data", "filters")
        }
        assert all(rates.of(kind) == of and of[1] > 0 for kind, of in rates.stages)
        assert rates.of("activation") == (rates.launch_seconds, rates.operations_per_second)
        assert rates.of("moments")[1] == pytest.approx(3 * rates.operations_per_second)
        assert trainer.step(sample.x, sample.labels) > 0
        assert trainer.statistics.predicted_seconds > 0
    assert made.is_clean()


@pytest.mark.slow
def test_in_tf32_operands_are_rounded(gpus) -> None:
    made, sample = gpus(), Sample(NETWORKS["mixed"])
    exact, rounded = (sample.trained(Machine(), math=math)["losses"] for math in ("fp32", "tf32"))
    assert 1e-6 < np.abs(rounded / exact - 1).max() < 1e-2
    with CudaMachine() as machine, sample.trainer(machine, rates=RATES, math="tf32") as trainer:
        losses = [trainer.step(sample.x, sample.labels) for _ in range(2)]
    assert 5 in {engine for engine, _ in made.cudnn.executed}
    np.testing.assert_allclose(losses, rounded, 2e-3)


def test_planes_that_kernels_cannot_count_are_refused(gpus) -> None:
    made = gpus()
    with CudaMachine() as machine:
        memory, rows = machine.allocate(0, 64), (1 << 31) - 1
        tile = Tile(memory, 0, rows, 1, rows, np.dtype(np.float32))
        routine = ActivationGradient("relu_gradient", (tile, tile), (tile,), (), 0.0, "relu")
        with pytest.raises(LaunchError, match="strips of rows"):
            machine.launch(machine.stream(0), routine)
        machine.free(memory)
    assert made.is_clean()
