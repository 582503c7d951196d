"""Faults of `gpu.outofcore`, each planted in one place of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gpu.outofcore import halo, pieces, pipeline
from gpu.outofcore.pipeline import Pipeline
from gpu.outofcore.slots import Slots

Patch = pytest.MonkeyPatch


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


def places_on_the_device_of_the_piece_before(patch: Patch) -> None:
    """A piece that lies on the device begins a row too early, unless it is the first one."""
    tiles_of = pipeline.tiles_of

    def wrong(x: Any, outline: Any, view: Any) -> Any:
        for tile in tiles_of(x, outline, view):
            start = max(tile.offset - x.shape[-1] * x.itemsize, x.offset)
            yield dataclasses.replace(tile, offset=start)

    patch.setattr(pipeline, "tiles_of", wrong)


def gaps_on_the_device_are_ignored(patch: Patch) -> None:
    """The columns of a piece that lies on the device are read as if nothing were between them."""
    tiles_of = pipeline.tiles_of
    patch.setattr(
        pipeline,
        "tiles_of",
        lambda *given: (dataclasses.replace(tile, stride=tile.rows) for tile in tiles_of(*given)),
    )


def pooling_one_row_late(patch: Patch) -> None:
    """Windows begin a row below where they are, in all pieces but the first."""
    pool = pipeline.Pool

    def wrong(*given: Any) -> Any:
        made = pool(*given)
        down, across = made.window.offset
        late = dataclasses.replace(made.window, offset=(down - 1, across))
        return dataclasses.replace(made, window=late) if made.outputs.start else made

    patch.setattr(pipeline, "Pool", wrong)


def pooling_before_the_last_term(patch: Patch) -> None:
    """Sums are pooled before their last term is added."""
    compute, pool = Pipeline._compute, Pipeline._pool
    early: list[Any] = []

    def wrong(self: Any, task: Any, output: Any, number: int, step: Any) -> Any:
        if task.pooled and number == len(task.steps) - 1:
            early.append(pool(self, task, task.pooled))
        return compute(self, task, output, number, step)

    patch.setattr(Pipeline, "_compute", wrong)
    patch.setattr(Pipeline, "_pool", lambda *given: early.pop())


def pooled_result_reused_early(patch: Patch) -> None:
    """Pooling does not wait for the copy of the result that its buffer held."""
    emptied = Pipeline._emptied

    def wrong(self: Any, piece: Any) -> Any:
        wait = self._wait
        self._wait = (lambda *given: None) if piece.tensor == "z" else wait
        try:
            return emptied(self, piece)
        finally:
            self._wait = wait

    patch.setattr(Pipeline, "_emptied", wrong)


def activation_of_every_term(patch: Patch) -> None:
    """The activation follows each term instead of the last one."""
    routine = Pipeline._routine
    patch.setattr(
        Pipeline,
        "_routine",
        lambda self, *step: dataclasses.replace(routine(self, *step), activation=self._problem.activation),
    )
