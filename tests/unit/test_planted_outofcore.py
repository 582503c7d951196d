"""Faults planted in one place of `gpu.outofcore`, each found by its type; without it nothing is found.

A fault of the pipeline has a typed error of the machine. One of the pieces has a result outside the bound of
`reference.training.error_of`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpu.outofcore import Options, Pieces, halo, pieces, pipeline
from gpu.outofcore.pipeline import Pipeline
from gpu.outofcore.slots import Slots
from reference.errors import MachineError, SimwarpError
from simwarp.machine import Machine, TileRaceError, UnwrittenTileError
from support.outofcore_calls import Layer

Patch = pytest.MonkeyPatch
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

    def run(self, seed: int) -> None:
        machine, options = Machine(seed=seed, jitter=20.0), Options(depth=2)
        result = self.layer.run(self.routine, machine, pieces=self.pieces, options=options, **self.fused)
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


# ------------------------------------------------------------------------------------------ the faults


def halo_one_row_short(patch: Patch) -> None:
    """A piece of the images lacks its last row."""
    image_rows = halo.image_rows

    def wrong(plane: Any, outputs: range) -> range:
        rows = image_rows(plane, outputs)
        return rows if rows.stop == plane.height else rows[:-1]

    patch.setattr(pieces, "image_rows", wrong)


def halo_of_gradients_one_row_short(patch: Patch) -> None:
    """A piece of the gradient by the result lacks its first row."""
    output_rows = halo.output_rows
    patch.setattr(
        pieces, "output_rows", lambda plane, rows: output_rows(plane, rows)[1 if rows.start else 0 :]
    )


def partial_sums_without_accumulation(patch: Patch) -> None:
    """Each term overwrites the sum of the terms before it."""
    routine = Pipeline._routine
    patch.setattr(
        Pipeline, "_routine", lambda self, *step: dataclasses.replace(routine(self, *step), updates=False)
    )


def accumulation_from_the_first_term(patch: Patch) -> None:
    """The first term is added to what the buffer held."""
    routine = Pipeline._routine
    patch.setattr(
        Pipeline, "_routine", lambda self, *step: dataclasses.replace(routine(self, *step), updates=True)
    )


def operand_reused_early(patch: Patch) -> None:
    """A buffer is filled again before the routine that reads it has ended."""
    wait = Pipeline._wait

    def wrong(self: Any, stream: Any, event: Any) -> None:
        if stream is not self._loads:
            wait(self, stream, event)

    patch.setattr(Pipeline, "_wait", wrong)


def output_reused_early(patch: Patch) -> None:
    """A routine writes a buffer whose copy to the host has not ended."""
    store = Pipeline._store

    def wrong(self: Any, piece: Any, slot: Any) -> None:
        used = slot.used
        store(self, piece, slot)
        slot.used = used

    patch.setattr(Pipeline, "_store", wrong)


def routine_before_its_copy(patch: Patch) -> None:
    """A routine does not wait for the copies of its operands."""
    load = Pipeline._load

    def wrong(self: Any, piece: Any) -> Any:
        slot = load(self, piece)
        slot.filled = None
        return slot

    patch.setattr(Pipeline, "_load", wrong)


def copy_out_before_the_last_term(patch: Patch) -> None:
    """A piece is copied to the host when its first term has been queued."""
    store = Pipeline._store

    def wrong(self: Any, piece: Any, slot: Any) -> None:
        slot.used = None
        store(self, piece, slot)

    patch.setattr(Pipeline, "_store", wrong)


def stale_buffer(patch: Patch) -> None:
    """A buffer that was filled again still counts as that of its old piece."""
    following = Slots.next

    def wrong(self: Any, piece: Any) -> Any:
        held = dict(self._held)
        slot = following(self, piece)
        self._held.update({old: of for old, of in held.items() if of is slot})
        self._held.move_to_end(piece)
        return slot

    patch.setattr(Slots, "next", wrong)


def wrong_last_piece(patch: Patch) -> None:
    """The last piece of an axis is one shorter than what is left; if that is nothing, it is left out."""
    cut = pieces.cut

    def wrong(size: int, piece: int) -> list[range]:
        *before, last = cut(size, piece)
        return [*before, last[:-1]] if len(last) > 1 else before or [last]

    patch.setattr(pieces, "cut", wrong)


def offset_of_filters(patch: Patch) -> None:
    """The filters of a block are those of the block before it."""
    piece_at = pieces.piece_at

    def wrong(problem: Any, tensor: Any, at: Any) -> Any:
        piece = piece_at(problem, tensor, at)
        if tensor != "w" or problem.form.output == "w" or not piece.first.start:
            return piece
        first = range(piece.first.start - 1, piece.first.stop - 1)
        return dataclasses.replace(piece, first=first)

    patch.setattr(pieces, "piece_at", wrong)


def gradient_that_ignores_the_stride(patch: Patch) -> None:
    """The rows of the gradient are where they were without a stride."""
    offset = halo.offset

    def wrong(plane: Any, rows: range, outputs: range) -> int:
        return plane.pad_top + rows.start - outputs.start if outputs.start else offset(plane, rows, outputs)

    patch.setattr(pipeline, "offset", wrong)


def activation_of_every_term(patch: Patch) -> None:
    """The activation follows each term instead of the last one."""
    routine = Pipeline._routine
    patch.setattr(
        Pipeline,
        "_routine",
        lambda self, *step: dataclasses.replace(routine(self, *step), activation=self._problem.activation),
    )


# -------------------------------------------------------------------------------------------- the tests

FORWARD = World()
DATA = World("conv2d_backward_data")
FILTER = World("conv2d_backward_filter")
FUSED = World(fused={"activation": "relu"})
STRIDED = World("conv2d_backward_data", Layer(options={"stride": 2}))
STRIDED_FILTER = World("conv2d_backward_filter", Layer(options={"stride": 2}), Pieces(2, 2, 3, 4))
WORLDS = [FORWARD, FUSED, DATA, FILTER, STRIDED, STRIDED_FILTER]

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
]
"""The fault, where it is planted, the errors that find it, and what their messages contain."""


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.routine)
def test_the_same_seeds_without_a_fault_find_nothing(world: World) -> None:
    assert world.found() == []


@pytest.mark.parametrize(
    ("plant", "world", "kinds", "text"),
    CASES,
    ids=[f"{plant.__name__}-{world.routine}" for plant, world, *_ in CASES],
)
def test_a_planted_fault_is_found(
    plant: Any, world: World, kinds: Any, text: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    found = world.found()
    assert len(found) == 4, "some seeds find nothing"
    for error in found:
        assert isinstance(error, kinds), error
        assert text in str(error)
