"""Training on a driver and a cuDNN without a GPU, whose kernels run on the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu.cuda_machine import CudaMachine
from gpu.machine import Tile
from gpu.outofcore import Cut, Rates, Segment
from gpu.outofcore.networks import routines
from gpu.outofcore.networks.routines import Routine, StageRoutine
from reference.errors import MachineError
from simwarp.machine import Machine
from support.fake_gpus import gpus
from support.training_networks import NETWORKS, Sample

__all__ = ["gpus"]

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
CUTS = {"whole": Cut(99, 99), "images": Cut(4, 99), "rows": Cut(1, 3)}
DOUBLES: dict[type, dict[str, slice]] = {
    routines.FilterGradient: {"reads": slice(2, 4), "writes": slice(0, 2)},
    routines.Moments: {"reads": slice(1, 2), "writes": slice(0, 1)},
    routines.Norm: {"reads": slice(1, 2)},
    routines.NormParameterGradient: {"reads": slice(4, 7), "writes": slice(0, 3)},
    routines.NormGradient: {"reads": slice(2, 6)},
    routines.Update: {"reads": slice(2, 3)},
}
"""The tiles of float32 that hold numbers of double precision."""
SUMS = routines.FilterGradient, routines.Moments, routines.NormParameterGradient, routines.Loss


class Listening(Machine):
    """A machine that keeps what it launches."""

    def launch(self, stream: Any, routine: Any) -> None:
        self.__dict__.setdefault("launched", []).append(routine)
        super().launch(stream, routine)


def launched(name: str, cut: Cut) -> Iterator[Routine]:
    """Different routines of a step, except convolutions."""
    sample, machine, seen = Sample(NETWORKS[name], batch=5), Listening(), set[Any]()
    segments = sample.few_segments(cut) if cut.rows == 99 else strips_of(sample, cut)
    sample.trained(machine, 1, segments=segments)
    for routine in machine.__dict__["launched"]:
        sizes = tuple((tile.shape, tile.stride) for tile in (*routine.reads, *routine.writes))
        key = type(routine), sizes, getattr(routine, "window", None), getattr(routine, "outputs", None)
        if not isinstance(routine, StageRoutine) and key not in seen:
            seen.add(key)
            yield routine


def strips_of(sample: Sample, cut: Cut) -> Any:
    """Segments whose first layers are cut into strips."""
    stages = sample.network.stages
    dense = next(stage.number for stage in stages if stage.kind == "dense")
    before = [segment for number in range(1, dense) for segment in [Segment(number, number, cut, cut)]]
    return (*before, Segment(dense, len(stages), Cut(2, 99), Cut(2, 99)))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_kernels_compute_what_their_routines_do(gpus, name: str, cut: str) -> None:
    driver, rng = gpus().driver, np.random.default_rng(3)
    with CudaMachine() as machine:
        for routine in launched(name, CUTS[cut]):
            expected, found = both_of(machine, driver, routine, rng)
            for one, other in zip(found, expected, strict=True):
                where = f"{routine.name} {routine.shapes}"
                stage = getattr(routine, "stage", None)
                is_rounded = isinstance(routine, SUMS) or (stage and stage.activation in ("tanh", "sigmoid"))
                tolerance = (1e-6, 1e-6) if is_rounded else (0, 0)
                np.testing.assert_allclose(one, other, *tolerance, err_msg=where)


def both_of(machine: Any, driver: Any, routine: Routine, rng: Any) -> list[list[Any]]:
    """What a routine computes on the host and on a device, from the same drawn numbers."""
    tiles, end = dict[Tile, Tile](), 0
    memory = machine.allocate(0, 1 << 19)
    for tile in dict.fromkeys((*routine.reads, *routine.writes)):
        tiles[tile] = replace(tile, memory=memory, offset=end)
        end += -(-tile.columns * tile.stride * tile.dtype.itemsize // 256) * 256 + 256
    space = Tile(memory, end, 60_000, 1, 60_000, np.dtype(np.float32))
    data = driver.allocations[-1].data
    data[:] = 0xFF
    reads = [drawn(routine, "reads", at, rng) for at in range(len(routine.reads))]
    for tile, array in zip(routine.reads, reads, strict=True):
        view_of(data, tiles[tile])[...] = array
    writes = [np.array(view_of(data, tiles[tile]), order="F") for tile in routine.writes]
    before = data.copy()
    own: Any = replace(
        routine,
        reads=tuple(tiles[tile] for tile in routine.reads),
        writes=tuple(tiles[tile] for tile in routine.writes),
        workspace=space,
    )
    routine.compute([np.asfortranarray(one) for one in reads], writes)
    machine.launch(machine.stream(0), own)
    machine.settle()
    found = [np.array(view_of(data, tiles[tile]), order="F") for tile in routine.writes]
    for tile in routine.writes:  # and nothing beside them
        view_of(data, tiles[tile])[...] = view_of(before, tiles[tile])
    assert data[:end].tobytes() == before[:end].tobytes(), routine.name
    machine.free(memory)
    doubled = range(9)[DOUBLES.get(type(routine), {}).get("writes", slice(0))]
    return [
        [one.reshape(-1).view(np.float64) if at in doubled else one for at, one in enumerate(side)]
        for side in (writes, found)
    ]


def view_of(data: Any, tile: Tile) -> Any:
    """A tile as a matrix."""
    item = tile.dtype.itemsize
    return np.ndarray(tile.shape, tile.dtype, data.data, tile.offset, (item, tile.stride * item))


def drawn(routine: Routine, side: str, at: int, rng: Any) -> Any:
    """Numbers for a tile: few different ones, so that some pixels are equal."""
    tile: Tile = getattr(routine, side)[at]
    if tile.dtype == np.int32:
        return rng.integers(0, routine.reads[0].rows, tile.shape).astype(np.int32)
    if at in range(9)[DOUBLES.get(type(routine), {}).get(side, slice(0))]:
        return (rng.integers(1, 9, tile.rows // 2) / 3).view(np.float32).reshape(-1, 1)
    return (rng.integers(-4, 5, tile.shape) / 4).astype(np.float32)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", ["mixed", "normalized"])
def test_training_on_a_gpu_is_that_of_the_simulated_machine(gpus, name: str, cut: str) -> None:
    made, sample = gpus(), Sample(NETWORKS[name], batch=5)
    segments = sample.few_segments(CUTS[cut]) if cut != "rows" else strips_of(sample, CUTS[cut])
    expected = sample.trained(Machine(), segments=segments)
    with CudaMachine() as machine:
        with sample.trainer(machine, segments=segments, rates=RATES, transforms=False) as trainer:
            losses = [trainer.step(sample.x, sample.labels) for _ in range(2)]
            found = trainer.parameters
        assert machine.pinned() == len(machine.allocated(0)) == 0
    assert made.is_clean()
    np.testing.assert_allclose(losses, expected["losses"], 1e-4)
    for parameter, array in found.items():  # terms of filters are rounded, piece by piece
        np.testing.assert_allclose(array, expected[f"{parameter} w"], 1e-4, 1e-5, err_msg=parameter)


@pytest.mark.parametrize("budget", [None, 70_000])
def test_logits_on_a_gpu_are_those_of_the_simulated_machine(gpus, budget: int | None) -> None:
    made, sample = gpus(), Sample(NETWORKS["normalized"], batch=5)
    found: list[Any] = []
    for machine in (Machine(), CudaMachine()):
        rates = None if isinstance(machine, Machine) else RATES
        with sample.trainer(machine, budget, rates=rates) as trainer:
            trainer.step(sample.x, sample.labels)
            found.append(trainer.logits(sample.x[:3]))
    machine.close()
    assert made.is_clean()
    np.testing.assert_allclose(*found, 1e-3, 1e-4)


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


def test_without_rates_those_of_stages_are_measured(gpus, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    made, sample = gpus(), Sample(NETWORKS["mixed"])
    with CudaMachine() as machine, sample.trainer(machine) as trainer:
        rates: Any = trainer.explain().rates
        weighty = [stage for stage in sample.network.stages if stage.has_weights]
        assert {kind for kind, _ in rates.stages} == {
            f"{stage.name} {action}" for stage in weighty for action in ("forward", "data", "filters")
        }
        assert all(rates.of(kind) == of and of[1] > 0 for kind, of in rates.stages)
        assert rates.of("") == (rates.launch_seconds, rates.operations_per_second)
        assert trainer.step(sample.x, sample.labels) > 0
        assert trainer.statistics.predicted_seconds > 0
    assert made.is_clean()
