"""Faults planted in one place of `gpu.outofcore`, each found by its type; without it nothing is found.

A fault of the pipeline has a typed error of the machine. One of the pieces has a result outside the bound of
`reference.training.error_of`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gpu.outofcore import AveragePool, MaxPool, Options, Pieces
from reference.errors import MachineError, SimwarpError
from simwarp.machine import Machine, TileRaceError, UnwrittenTileError
from support.outofcore_calls import Layer, pooled
from support.outofcore_faults import (
    accumulation_from_the_first_term,
    activation_of_every_term,
    copy_out_before_the_last_term,
    gaps_on_the_device_are_ignored,
    gradient_that_ignores_the_stride,
    halo_of_gradients_one_row_short,
    halo_one_row_short,
    offset_of_filters,
    operand_reused_early,
    output_reused_early,
    partial_sums_without_accumulation,
    places_on_the_device_of_the_piece_before,
    pooled_result_reused_early,
    pooling_before_the_last_term,
    pooling_one_row_late,
    routine_before_its_copy,
    stale_buffer,
    wrong_last_piece,
)

LAYER = Layer()
PIECES = Pieces(2, 3, 3, 4)


class WrongResultError(SimwarpError):
    """A result outside the bound."""


@dataclass(frozen=True)
class World:
    """A call, cut into several pieces along every axis, the last of them smaller."""

    routine: str = "conv2d"
    layer: Layer = LAYER
    pieces: Pieces = PIECES
    fused: dict[str, Any] = field(default_factory=dict[str, Any])
    on_device: tuple[str, ...] = ()

    def run(self, seed: int) -> None:
        machine, options = Machine(seed=seed, jitter=20.0), Options(depth=2)
        how: Any = {"pieces": self.pieces, "options": options, "on_device": self.on_device}
        result = self.layer.run(self.routine, machine, **how, **self.fused)
        if pool := self.fused.get("pool"):  # the bits of pooling the result
            bare = self.layer.run(self.routine, Machine(), pieces=self.pieces)
            error = 2.0 * (not np.array_equal(result, pooled(pool, bare)))
        else:
            error = self.layer.error(self.routine, result, **self.fused)
        if not error <= 1:
            raise WrongResultError(f"{error} of the bound")

    def found(self) -> list[SimwarpError]:
        """The error of each seed that has one."""
        errors: list[SimwarpError] = []
        for seed in range(4):
            try:
                self.run(seed)
            except (MachineError, WrongResultError) as error:
                errors.append(error)
        return errors


FORWARD = World()
DATA = World("conv2d_backward_data")
FILTER = World("conv2d_backward_filter")
FUSED = World(fused={"activation": "relu"})
STRIDED = World("conv2d_backward_data", Layer(options={"stride": 2}))
STRIDED_FILTER = World("conv2d_backward_filter", Layer(options={"stride": 2}), Pieces(2, 2, 3, 4))
READ = World(on_device=("x", "w"))
WRITTEN = World("conv2d_backward_data", on_device=("out",))
SUMMED = World("conv2d_backward_filter", on_device=("gradient", "out"))
MOVED = World(fused={"activation": "relu"}, on_device=("out",))
POOLED = World(pieces=Pieces(2, 2, 3, 4), fused={"pool": MaxPool((2, 1))})
AVERAGED = World(pieces=Pieces(2, 1, 3, 4), fused={"pool": AveragePool(3, stride=2)}, on_device=("out",))
WORLDS = [
    FORWARD,
    FUSED,
    DATA,
    FILTER,
    STRIDED,
    STRIDED_FILTER,
    READ,
    WRITTEN,
    SUMMED,
    MOVED,
    POOLED,
    AVERAGED,
]

CASES = [
    (halo_one_row_short, FORWARD, WrongResultError, ""),
    (halo_one_row_short, FILTER, WrongResultError, ""),
    (halo_of_gradients_one_row_short, DATA, WrongResultError, ""),
    (partial_sums_without_accumulation, FORWARD, WrongResultError, ""),
    (partial_sums_without_accumulation, DATA, WrongResultError, ""),
    (partial_sums_without_accumulation, FILTER, WrongResultError, ""),
    (accumulation_from_the_first_term, FORWARD, UnwrittenTileError, "conv2d"),
    (operand_reused_early, FORWARD, TileRaceError, "copy in"),
    (operand_reused_early, DATA, TileRaceError, "copy in"),
    (operand_reused_early, FILTER, TileRaceError, "copy in"),
    (output_reused_early, FORWARD, TileRaceError, "copy out"),
    (output_reused_early, DATA, TileRaceError, "copy out"),
    (routine_before_its_copy, FORWARD, (TileRaceError, UnwrittenTileError), "conv2d"),
    (copy_out_before_the_last_term, FORWARD, (TileRaceError, UnwrittenTileError), "copy out"),
    (stale_buffer, FORWARD, WrongResultError, ""),
    (wrong_last_piece, FORWARD, WrongResultError, ""),
    (wrong_last_piece, DATA, WrongResultError, ""),
    (wrong_last_piece, FILTER, WrongResultError, ""),
    (offset_of_filters, FORWARD, WrongResultError, ""),
    (offset_of_filters, DATA, WrongResultError, ""),
    (gradient_that_ignores_the_stride, STRIDED, WrongResultError, ""),
    (gradient_that_ignores_the_stride, STRIDED_FILTER, WrongResultError, ""),
    (activation_of_every_term, FUSED, WrongResultError, ""),
    (places_on_the_device_of_the_piece_before, READ, WrongResultError, ""),
    (places_on_the_device_of_the_piece_before, WRITTEN, WrongResultError, ""),
    (places_on_the_device_of_the_piece_before, SUMMED, WrongResultError, ""),
    (places_on_the_device_of_the_piece_before, MOVED, WrongResultError, ""),
    (gaps_on_the_device_are_ignored, READ, WrongResultError, ""),
    (gaps_on_the_device_are_ignored, SUMMED, WrongResultError, ""),
    (partial_sums_without_accumulation, WRITTEN, WrongResultError, ""),
    (accumulation_from_the_first_term, SUMMED, (WrongResultError, UnwrittenTileError), ""),
    (pooling_one_row_late, POOLED, WrongResultError, ""),
    (pooling_one_row_late, AVERAGED, WrongResultError, ""),
    (pooling_before_the_last_term, POOLED, WrongResultError, ""),
    (pooled_result_reused_early, POOLED, TileRaceError, "_pool"),
    (output_reused_early, POOLED, TileRaceError, "copy out"),
    (halo_one_row_short, POOLED, (WrongResultError, ValueError), ""),
]
"""The fault, where it is planted, the errors that find it, and what their messages contain."""


@pytest.mark.at_most(4)
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.routine)
def test_the_same_seeds_without_a_fault_find_nothing(world: World) -> None:
    assert world.found() == []


@pytest.mark.at_most(15)
@pytest.mark.parametrize(
    ("plant", "world", "kinds", "text"),
    CASES,
    ids=[f"{plant.__name__}-{world.routine}" for plant, world, *_ in CASES],
)
def test_a_planted_fault_is_found(
    plant: Any, world: World, kinds: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = world.found()
    assert len(found) == 4, "some seeds find nothing"
    for error in found:
        assert isinstance(error, kinds), error
        assert text in str(error)
