"""Routines of training on a machine of GPUs, each beside what it computes on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gpu.machine import Tile
from gpu.outofcore import BatchNorm, Conv, Cut, Dense, Flatten, MaxPool, Network, Rates, Segment
from gpu.outofcore.networks import routines
from gpu.outofcore.networks.routines import Routine, StageRoutine
from simwarp.machine import Machine
from support.training_networks import NETWORKS, Sample

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
CUTS = {"whole": Cut(99, 99), "images": Cut(4, 99), "rows": Cut(1, 3)}
WIDE = Network(
    (1, 64, 36),
    (Conv(2, activation="relu"), MaxPool(), Conv(1), BatchNorm(activation="relu"), Flatten(), Dense(2)),
)
"""Planes of which threads have several pixels, and whose sums blocks share."""
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


def launched(network: Network, cut: Cut, batch: int) -> Iterator[Routine]:
    """Different routines of a step, except convolutions."""
    sample, machine, seen = Sample(network, batch), Listening(), set[Any]()
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
    before = [Segment(number, number, cut, cut) for number in range(1, dense)]
    return (*before, Segment(dense, len(stages), Cut(2, 99), Cut(2, 99)))


def assert_kernels_are_right(machine: Any, network: Network, cut: str, batch: int = 5) -> None:
    """Each routine of a step computes on a GPU what it does on the host, most of them to the bit."""
    rng = np.random.default_rng(3)
    for routine in launched(network, CUTS[cut], batch):
        expected, found = both_of(machine, routine, rng)
        for one, other in zip(found, expected, strict=True):
            stage = getattr(routine, "stage", None)
            is_rounded = isinstance(routine, SUMS) or (stage and stage.activation in ("tanh", "sigmoid"))
            tolerance = (1e-6, 1e-6) if is_rounded else (0, 0)
            np.testing.assert_allclose(one, other, *tolerance, err_msg=f"{routine.name} {routine.shapes}")


def assert_training_is_right(machine: Any, name: str, cut: str) -> None:
    """Two steps on a GPU are those of the simulated machine, within what cuDNN rounds."""
    is_strips = cut == "rows"
    sample = Sample(NETWORKS[name], batch=3 if is_strips else 5)
    segments = strips_of(sample, CUTS[cut]) if is_strips else sample.few_segments(CUTS[cut])
    expected = sample.trained(Machine(), segments=segments)
    with sample.trainer(machine, segments=segments, rates=RATES, transforms=False) as trainer:
        losses = [trainer.step(sample.x, sample.labels) for _ in range(2)]
        found = trainer.parameters
    assert machine.pinned() == len(machine.allocated(0)) == 0
    np.testing.assert_allclose(losses, expected["losses"], 1e-4)
    for parameter, array in found.items():
        np.testing.assert_allclose(array, expected[f"{parameter} w"], 1e-4, 1e-5, err_msg=parameter)


def both_of(machine: Any, routine: Routine, rng: Any) -> list[list[Any]]:
    """The results of a routine on the host and on a device, from the same random numbers."""
    tiles, end = dict[Tile, Tile](), 0
    memory = machine.allocate(0, 1 << 19)
    for tile in dict.fromkeys((*routine.reads, *routine.writes)):
        tiles[tile] = replace(tile, memory=memory, offset=end)
        end += -(-tile.columns * tile.stride * tile.dtype.itemsize // 256) * 256 + 256
    own: Any = replace(
        routine,
        reads=tuple(tiles[tile] for tile in routine.reads),
        writes=tuple(tiles[tile] for tile in routine.writes),
        workspace=Tile(memory, end, 60_000, 1, 60_000, np.dtype(np.float32)),
    )
    data = np.full(end, 0xFF, np.uint8)
    reads = [drawn(routine, "reads", at, rng) for at in range(len(routine.reads))]
    for tile, array in zip(own.reads, reads, strict=True):
        view_of(data, tile)[...] = array
    writes = [np.array(view_of(data, tile), order="F") for tile in own.writes]
    routine.compute([np.asfortranarray(one) for one in reads], writes)
    after = launched_on(machine, own, data, Tile(memory, 0, end, 1, end, np.dtype(np.uint8)))
    results = [np.array(view_of(after, tile), order="F") for tile in own.writes]
    for tile in own.writes:
        view_of(after, tile)[...] = view_of(data, tile)
    assert after.tobytes() == data.tobytes(), f"{routine.name} writes beside its tiles"
    machine.free(memory)
    doubled = range(9)[DOUBLES.get(type(routine), {}).get("writes", slice(0))]
    return [
        [one.reshape(-1).view(np.float64) if at in doubled else one for at, one in enumerate(side)]
        for side in (writes, results)
    ]


def launched_on(machine: Any, routine: Any, data: Any, memory: Tile) -> Any:
    """The bytes of a memory, which were ``data``, behind a routine."""
    host, stream = data.copy(), machine.stream(0)
    machine.pin(host)
    machine.copy_in(stream, host[:, None], memory)
    machine.launch(stream, routine)
    machine.copy_out(stream, memory, host[:, None])
    machine.settle()
    machine.unpin(host)
    return host


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
