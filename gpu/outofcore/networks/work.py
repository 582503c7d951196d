"""A step of training on a machine: copies in, routines and copies out, each kind in a stream of its own.

Events order them, as in `gpu.outofcore.pipeline`. Between two phases each stream waits for the others,
because the memory of phases overlaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpu.cuda_machine.queues import PreparedRoutine
from gpu.machine import Event, Memory, Stream
from gpu.outofcore.networks.engines import ROUTINES
from gpu.outofcore.networks.kernels import Kernels, update_of
from gpu.outofcore.networks.layers import SGD
from gpu.outofcore.networks.memory import HostMemory, Space
from gpu.outofcore.networks.phases import LOSS, Key, Op, Phase, Piece
from gpu.outofcore.networks.planned import Planned
from gpu.outofcore.pipeline import AHEAD, Queues


class Work:
    """The work of one step, or of the logits of a batch, on a machine's first device.

    ``memory`` is the device's slab.
    """

    def __init__(self, machine: Queues, plan: Planned, memory: Memory, host: HostMemory) -> None:
        self._machine, self._plan, self._memory, self._host = machine, plan, memory, host
        self._loads, self._computes, self._stores = (machine.stream(0) for _ in range(3))
        self._queued: deque[Event] = deque()

    def step(self, sgd: SGD | None, *, loads: bool, part: slice = slice(None)) -> Iterator[Event]:
        """Queue the phases of a step, or some of them; yields the events that the host waits for.

        ``loads``: resident parameters come first. Without ``sgd`` gradients go to the host.
        """
        updates = sgd is not None
        for index, phase in [*enumerate(self._plan.phases)][part]:
            space = Space(self._plan, phase, index, self._memory)
            names = self._plan.names(phase)
            if loads and self._plan.resident and index == 0:
                self._load(space, tuple(space.parameters), is_whole=updates)
            elif not self._plan.resident:
                self._load(space, names, is_whole=updates and phase.kind == "backward")
                if again := self._plan.names_again(phase):
                    self._load(space, again, is_whole=False)
            yield from self._pieces(phase, space)
            if phase.kind == "forward" and phase.feeds_norm:
                self._store_moments(space, phase.last + 1)
            between = [self._machine.record(one) for one in (self._loads, self._stores)]
            if phase.kind == "backward" and sgd is not None:
                self._update(space, self._plan.updates[index], sgd)
            elif phase.kind == "backward":
                self._store_gradients(space, names)
            if not self._plan.resident:
                between[1] = self._machine.record(self._stores)
            self._join([*between, self._machine.record(self._computes)])
        yield self._machine.record(self._stores)

    def logits(self, *, loads: bool) -> Iterator[Event]:
        """Run the forward pass only; yield the events to wait for."""
        for index, phase in enumerate(self._plan.forward):
            space = Space(self._plan, phase, index, self._memory)
            if loads and self._plan.resident and index == 0:
                self._load(space, tuple(space.parameters), is_whole=True)
            elif not self._plan.resident:
                self._load(space, tuple(space.parameters), is_whole=False)
            if self._plan.network.normalizes(phase.first):
                self._load_moments(space, phase.first)
            yield from self._pieces(phase, space, without="moments")
            self._join([self._machine.record(one) for one in (self._loads, self._stores, self._computes)])
        yield self._machine.record(self._stores)

    def prepared(self) -> Iterator[PreparedRoutine]:
        """The routines of a step, and of logits, that choose an engine of cuDNN."""
        phases = [*enumerate(self._plan.phases), (len(self._plan.segments) - 1, self._plan.forward[-1])]
        for index, phase in phases:
            kernels = Kernels(self._plan, phase, Space(self._plan, phase, index, self._memory))
            for number, piece in enumerate(phase.pieces()):
                for op in phase.ops:
                    if op.action in ROUTINES and phase.rows(op, piece.strip):
                        routine: Any = kernels.routine(op, piece, number)
                        if hasattr(routine, "prepare_on"):
                            yield routine

    # ------------------------------------------------------------------------------------------ pieces

    def _pieces(self, phase: Phase, space: Space, without: str = "") -> Iterator[Event]:
        kernels = Kernels(self._plan, phase, space)
        for number, piece in enumerate(phase.pieces()):
            ops = [op for op in phase.ops if phase.rows(op, piece.strip) and op.action != without]
            for op in ops:
                if op.action == "load":
                    self._load_piece(phase, space, op, piece, number)
            for op in ops:
                if op.action == "store":
                    self._store_piece(phase, space, op, piece, number)
                elif op.action != "load":
                    self._compute(phase, space, kernels, op, piece, number)
            self._queued.append(self._machine.record(self._computes))
            if len(self._queued) > AHEAD:
                yield self._queued.popleft()

    def _compute(
        self, phase: Phase, space: Space, kernels: Kernels, op: Op, piece: Piece, number: int
    ) -> None:
        """Queue a routine behind copies of its operands, and behind uses of what it overwrites."""
        copied = [(key, found) for key in phase.uses(op) if (found := space.buffer(key, number))]
        for key, buffer in copied:
            self._wait(self._computes, buffer.filled)
            buffer.filled = None
            if key == LOSS or (key == op.key and op.action not in ("filters", "moments")):
                self._wait(self._computes, buffer.stored)
                buffer.stored = None
        self._machine.launch(self._computes, kernels.routine(op, piece, number))
        if copied:
            done = self._machine.record(self._computes)
            for _, buffer in copied:
                buffer.computed = done

    def _load_piece(self, phase: Phase, space: Space, op: Op, piece: Piece, number: int) -> None:
        """Queue the copy of a piece to the device."""
        buffer, rows = space.copied(op.key, number), phase.rows(op, piece.strip)
        self._wait(self._loads, buffer.computed)
        tile = space.tile(op.key, piece, number, rows)
        matrix = self._host.matrix(phase.storage(op.key), piece.images, rows)
        self._machine.copy_in(self._loads, matrix, tile)
        buffer.filled = self._machine.record(self._loads)

    def _store_piece(self, phase: Phase, space: Space, op: Op, piece: Piece, number: int) -> None:
        """Queue the copy of a piece to the host."""
        buffer, rows = space.copied(op.key, number), phase.rows(op, piece.strip)
        self._wait(self._stores, buffer.computed)
        tile = space.tile(op.key, piece, number, rows)
        matrix = self._host.matrix(phase.storage(op.key), piece.images, rows)
        self._machine.copy_out(self._stores, tile, matrix)
        buffer.stored = self._machine.record(self._stores)

    # -------------------------------------------------------------------------------------- parameters

    def _load(self, space: Space, names: Sequence[str], *, is_whole: bool) -> None:
        """Queue copies of parameters to the device; velocities, too, if ``is_whole``."""
        for name in names:
            tiles, arrays = space.parameter(name), self._host.state(name)
            for tile, array in list(zip(tiles[:2], arrays, strict=True))[: 1 + is_whole]:
                self._machine.copy_in(self._loads, array.reshape(-1, 1), tile)
        self._machine.wait(self._computes, self._machine.record(self._loads))

    def _update(self, space: Space, names: Sequence[str], sgd: SGD) -> None:
        """Queue the update of a segment's parameters, and their copies to the host's next state."""
        for name in names:
            tiles, arrays = space.parameter(name), self._host.state(name, after=True)
            self._machine.launch(self._computes, update_of(tiles, sgd))
            self._machine.wait(self._stores, self._machine.record(self._computes))
            for tile, array in zip(tiles[:2], arrays, strict=True):
                self._machine.copy_out(self._stores, tile, array.reshape(-1, 1))

    def _store_gradients(self, space: Space, names: Sequence[str]) -> None:
        """Queue copies of the gradients with respect to a segment's parameters to the host."""
        self._machine.wait(self._stores, self._machine.record(self._computes))
        for name in names:
            gradient = self._host.gradient(name).reshape(-1, 1).view(np.float32).reshape(-1, 1)
            self._machine.copy_out(self._stores, space.parameter(name)[2], gradient)

    def _store_moments(self, space: Space, stage: int) -> None:
        """Queue the copy of the sums of a batch normalization to the host, for running means."""
        self._machine.wait(self._stores, self._machine.record(self._computes))
        sums = self._host.tensor(Key("moments", stage)).view(np.float32).reshape(-1, 1)
        self._machine.copy_out(self._stores, space.moments(stage)[0], sums)

    def _load_moments(self, space: Space, stage: int) -> None:
        """Queue a copy of sums, computed from running means, to the device."""
        sums = self._host.tensor(Key("moments", stage)).view(np.float32).reshape(-1, 1)
        self._machine.copy_in(self._loads, sums, space.moments(stage)[0])
        self._machine.wait(self._computes, self._machine.record(self._loads))

    # ------------------------------------------------------------------------------------------ events

    def _join(self, events: Sequence[Event]) -> None:
        """Make the three streams wait for all of the events."""
        for stream in (self._loads, self._computes, self._stores):
            for event in events:
                self._machine.wait(stream, event)

    def _wait(self, stream: Stream, event: Event | None) -> None:
        if event is not None:
            self._machine.wait(stream, event)
