"""Faults of `gpu.outofcore.networks`, each planted in one place of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gpu.outofcore.networks import kernels, phases, plan, routines, strips
from gpu.outofcore.networks.kernels import Kernels
from gpu.outofcore.networks.lifetimes import Packed, aligned
from gpu.outofcore.networks.phases import Key
from gpu.outofcore.networks.work import Work

Patch = pytest.MonkeyPatch


def halo_one_row_short(patch: Patch) -> None:
    """A strip of activations lacks its last row."""
    read, image_rows = strips._read, strips.image_rows

    def wrong(stage: Any, outputs: Any, height: int) -> Any:
        rows = read(stage, outputs, height)
        return rows._replace(stops=rows.stops - ((rows.stops < height) & (rows.sizes > 1)))

    def wrong_one(plane: Any, outputs: range) -> range:
        rows = image_rows(plane, outputs)
        return rows[:-1] if rows.stop < plane.height and len(rows) > 1 else rows

    patch.setattr(strips, "_read", wrong)
    patch.setattr(strips, "image_rows", wrong_one)


def halo_of_gradients_one_row_short(patch: Patch) -> None:
    """A strip of gradients lacks its first row."""
    written = strips._written

    def wrong(stage: Any, rows: Any, height: int) -> Any:
        outputs = written(stage, rows, height)
        return outputs._replace(starts=outputs.starts + ((rows.starts > 0) & (outputs.sizes > 1)))

    patch.setattr(strips, "_written", wrong)


def gradients_without_accumulation(patch: Patch) -> None:
    """The terms of each piece overwrite those of the pieces before it."""
    _gradients_that_start(patch, True)


def accumulation_from_the_first_piece(patch: Patch) -> None:
    """The first piece is added to what the accumulators held."""
    filters = Kernels._filters

    def wrong(self: Any, *args: Any) -> Any:
        routine: Any = filters(self, *args)
        reads = (*routine.reads[:2], *routine.writes)
        return dataclasses.replace(routine, starts=False, reads=reads)

    patch.setattr(Kernels, "_filters", wrong)


def _gradients_that_start(patch: Patch, starts: bool) -> None:
    filters = Kernels._filters
    patch.setattr(
        Kernels, "_filters", lambda self, *args: dataclasses.replace(filters(self, *args), starts=starts)
    )


def gradients_rounded_in_each_piece(patch: Patch) -> None:
    """Accumulators hold no more than single precision between pieces."""
    compute = routines.FilterGradient.compute

    def wrong(self: Any, reads: Any, writes: Any) -> None:
        compute(self, reads, writes)
        for array in writes:
            sums = routines.doubles(array)
            sums[...] = sums.astype(np.float32)

    patch.setattr(routines.FilterGradient, "compute", wrong)


def statistics_of_the_last_piece(patch: Patch) -> None:
    """Batch normalization takes the sums of a piece for those of the batch."""
    moments = Kernels._moments

    def wrong(self: Any, *args: Any) -> Any:
        routine: Any = moments(self, *args)
        return dataclasses.replace(routine, starts=True)

    patch.setattr(Kernels, "_moments", wrong)


def weight_after_its_update(patch: Patch) -> None:
    """The input gradient of batch normalization takes the weight of the next step."""
    data = Kernels._norm_data

    def wrong(self: Any, stage: Any, at: Any) -> Any:
        routine: Any = data(self, stage, at)
        w = self._space.parameter(f"{stage.name}.w")[0]

        class Later:
            name, writes, operations = routine.name, routine.writes, routine.operations
            reads = (*routine.reads, w)

            def compute(self, reads: Any, writes: Any) -> None:
                weight = reads[-1].reshape(-1).astype(float).view(np.float32)
                routine.compute([*reads[:-2], weight], writes)

        return Later()

    patch.setattr(Kernels, "_norm_data", wrong)


def loaded_buffer_reused_early(patch: Patch) -> None:
    """A buffer is filled again before the routines that read it have ended."""
    _without_waits(patch, "_loads")


def copy_out_before_its_routine(patch: Patch) -> None:
    """A result is copied before it is computed."""
    _without_waits(patch, "_stores")


def _without_waits(patch: Patch, name: str) -> None:
    wait = Work._wait

    def wrong(self: Any, stream: Any, event: Any) -> None:
        if stream is not getattr(self, name):
            wait(self, stream, event)

    patch.setattr(Work, "_wait", wrong)


def stored_buffer_reused_early(patch: Patch) -> None:
    """A buffer is overwritten before its copy to the host has ended."""
    _forgetting(patch, "_store_piece", "stored")


def routine_before_its_copy(patch: Patch) -> None:
    """A routine reads a buffer before it is filled."""
    _forgetting(patch, "_load_piece", "filled")


def _forgetting(patch: Patch, method: str, event: str) -> None:
    copy = getattr(Work, method)

    def wrong(self: Any, phase: Any, space: Any, op: Any, piece: Any, number: int) -> None:
        copy(self, phase, space, op, piece, number)
        setattr(space.copied(op.key, number), event, None)

    patch.setattr(Work, method, wrong)


def phases_that_do_not_wait(patch: Patch) -> None:
    """A phase begins while the one before uses its memory."""
    patch.setattr(Work, "_join", lambda self, events: None)


def wrong_last_piece(patch: Patch) -> None:
    """The last piece of images begins one image too early."""
    cut = phases.cut

    def wrong(size: int, piece: int) -> list[range]:
        *others, last = cut(size, piece)
        return [*others, range(last.start - 1, last.stop - 1) if others else last]

    patch.setattr(phases, "cut", wrong)


def lifetimes_ignored(patch: Patch) -> None:
    """All of a phase's scratch starts at one place."""

    def wrong(blocks: Any) -> Any:
        offsets = dict.fromkeys((block.key for block in blocks), 0)
        return Packed(offsets, max(aligned(block.nbytes) for block in blocks))

    patch.setattr(phases, "pack", wrong)


def host_lifetimes_ignored(patch: Patch) -> None:
    """A tensor that goes to the host overwrites one that is still needed there."""
    pack = plan.pack

    def wrong(blocks: Any) -> Any:
        if not all(isinstance(block.key, Key) for block in blocks):
            return pack(blocks)  # the device's
        return pack([dataclasses.replace(block, last=block.first) for block in blocks])

    patch.setattr(plan, "pack", wrong)


def places_taken_before_they_are_read(patch: Patch) -> None:
    """The successor of a tensor in memory is written over the piece that is read."""
    leads = plan.TrainingPlan._leads
    patch.setattr(plan.TrainingPlan, "_leads", lambda *args: dict.fromkeys(leads(*args), 0))


def parameters_updated_before_their_last_use(patch: Patch) -> None:
    """A phase updates its parameters though a later one computes results of its stages again."""
    early = property(lambda self: tuple(self.names(phase) for phase in self.phases))
    patch.setattr(plan.TrainingPlan, "updates", early)


def activation_gradient_left_out(patch: Patch) -> None:
    """The gradient of an activation is that of the identity."""
    patch.setattr(routines.ActivationGradient, "compute", lambda self, reads, writes: None)


def padding_of_strips(patch: Patch) -> None:
    """Every strip has the padding of the first."""
    patch.setattr(kernels, "_ranges", lambda stage, rows, outputs: (range(len(rows)), range(len(outputs))))
