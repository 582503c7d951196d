"""The plan of a step of training: segments, pieces, what is kept where, and all memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from gpu.outofcore.networks.engines import SIMULATED, Engines
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.lifetimes import Block, Packed, pack
from gpu.outofcore.networks.phases import ITEM, LABELS, LOSS, Cut, Key, Phase
from gpu.outofcore.networks.strips import target_of
from gpu.outofcore.rates import Rates
from gpu.outofcore.workspace import aligned
from reference.types.timeline import Timeline


@dataclass(frozen=True)
class Segment:
    """Consecutive stages that a piece passes through without the host.

    Parameters
    ----------
    first, last : int
        Its stages, counted from 1 without `Flatten`.
    forward, backward : Cut
        The pieces of its two phases. The segment before a loss has a backward phase alone, which computes it
        forward, too; ``forward`` cuts the pieces of `Trainer.logits` there.
    kept : frozenset of int
        The stages whose results are kept from the forward to the backward phase; others are computed again.
        The last one is needed, and can be kept, only if `BatchNorm` follows.

    Examples
    --------
    >>> Segment(1, 3, Cut(16, 8), Cut(8, 8), frozenset({2})).kept
    frozenset({2})
    """

    first: int
    last: int
    forward: Cut
    backward: Cut
    kept: frozenset[int] = frozenset()


class Parameter(NamedTuple):
    """Where a weight or a bias is in a block of parameters, in bytes: itself, velocity, gradient.

    The gradient is of double precision. Some blocks have less: see `Parts`.
    """

    elements: int
    w: int
    velocity: int
    gradient: int


Parts: TypeAlias = Literal["w", "state", "all"]
"""What a block of parameters has: themselves, with velocities, and with gradients, too."""


@dataclass(frozen=True)
class TrainingPlan:
    """What a step of training does.

    Attributes
    ----------
    network : Network
    batch : int
    segments : tuple of Segment
    on_device : frozenset of Key
        What stays on the device for the whole batch.
    resident : bool
        Whether parameters stay on the device; otherwise each phase loads those of its segment.
    depth : int
        The buffers of what is copied.
    budget : int
        The bytes that the device may use.
    rates : Rates
    engines : Engines
        How convolutions are computed.
    known : dict
        Phases, which plans of one network and batch share.

    Examples
    --------
    >>> import simwarp
    >>> from gpu.outofcore import Trainer, vgg16
    >>> plan = Trainer(vgg16(), 8, device=simwarp.Machine(), memory_budget=4 << 30).explain()
    >>> plan.accumulates
    True
    """

    network: Network
    batch: int
    segments: tuple[Segment, ...]
    on_device: frozenset[Key]
    resident: bool
    depth: int
    budget: int
    rates: Rates
    engines: Engines = SIMULATED
    known: dict[Any, dict[Cut, Phase]] = field(
        default_factory=dict[Any, dict[Cut, Phase]], repr=False, compare=False
    )

    # ------------------------------------------------------------------------------------------ phases

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Forward phases of all segments that have one, then the backward phases, the last first."""
        return (
            *(
                self.phase(segment, is_forward=True)
                for segment in self.segments
                if self.goes_forward(segment)
            ),
            *(self.phase(segment, is_forward=False) for segment in reversed(self.segments)),
        )

    @cached_property
    def forward(self) -> tuple[Phase, ...]:
        """The phases that compute the logits alone."""
        return *self.phases[: len(self.segments) - 1], self.phase(self.segments[-1], is_forward=True)

    def goes_forward(self, segment: Segment) -> bool:
        """Whether a step has a forward phase of a segment: the loss makes that of the last one needless."""
        return self.network.loss is None or segment.last < len(self.network.stages)

    def phase(self, segment: Segment, *, is_forward: bool) -> Phase:
        """A phase of a segment."""
        kind: Literal["forward", "backward"] = "forward" if is_forward else "backward"
        cut = segment.forward if is_forward else segment.backward
        on_device = self.on_device & self._near(segment, is_forward) if self.on_device else self.on_device
        key = kind, segment.first, segment.last, segment.kept, on_device, self.depth
        alike = self.known.setdefault(key, {})
        if cut not in alike:
            shared = next(iter(alike.values())).shared if alike else dict[Any, Any]()
            alike[cut] = Phase(
                self.network,
                self.batch,
                kind,
                segment.first,
                segment.last,
                cut,
                segment.kept,
                on_device,
                self.depth,
                self.engines,
                shared,
            )
        return alike[cut]

    def _near(self, segment: Segment, is_forward: bool) -> frozenset[Key]:
        """What a phase of a segment uses of what may stay on the device."""
        first, last = segment.first, segment.last
        near = {Key(kind, tensor) for kind in ("x", "g") for tensor in range(first - 1, last + 1)}
        if self.network.normalizes(last + 1):
            near.add(Key("g", last + 1))
        if not is_forward and last not in segment.kept:
            near.discard(Key("x", last))  # it is computed again
        return frozenset(near)

    def inner(self, segment: Segment) -> range:
        """What a segment can keep."""
        if not self.goes_forward(segment):
            return range(0)
        return range(segment.first, segment.last + self.network.normalizes(segment.last + 1))

    @property
    def accumulates(self) -> bool:
        """Whether only the batch is cut, over the whole network: gradient accumulation."""
        return len(self.segments) == 1 and len(self.phases[0].strips) == 1

    def lifetimes(self) -> Iterator[tuple[Key, int, int]]:
        """What lives from phase to phase, with its first and its last phase."""
        found: dict[Key, tuple[int, int]] = {}
        for key, first, last in self._lives():
            begin, end = found.get(key, (first, last))
            found[key] = min(begin, first), max(end, last)
        yield from ((key, *life) for key, life in found.items())

    def _lives(self) -> Iterator[tuple[Key, int, int]]:
        """The same, a key once for each use."""
        end = len(self.phases) - 1
        yield Key("x", 0), 0, end
        for index, segment in enumerate(self.segments):
            if segment.last < len(self.network.stages):
                yield Key("x", segment.last), index, end - index - 1
                gradient = Key("g", segment.last + self.network.normalizes(segment.last + 1))
                if gradient not in self._results:
                    yield gradient, end - index - 1, end - index
            for tensor in segment.kept:
                yield Key("x", tensor), index, end - index

    # ------------------------------------------------------------------------------------------ memory

    @cached_property
    def device(self) -> Packed[Key | int | str]:
        """The slab of the device: parameters, what stays, and a block for each phase."""
        end = len(self.phases) - 1
        blocks: list[Block[Key | int | str]] = [
            Block(key, self.nbytes(key), *life) for key, *life in self.lifetimes() if key in self.on_device
        ]
        if self.resident:
            names = tuple(self.network.parameters)
            blocks.append(Block("parameters", self.parameters(names)[1], 0, end))
        if self.network.running:
            blocks.append(Block("moments", self.moments[1], 0, end))
        for index, phase in enumerate(self.phases):
            size = self.block(phase)
            if index == len(self.segments) - 1:
                size = max(size, self.block(self.forward[-1]))
            blocks.append(Block(index, size, index, index))
        return pack(blocks)

    @cached_property
    def host(self) -> Packed[Key]:
        """The slab of the host, without parameters."""
        end = len(self.phases) - 1
        blocks = [
            Block(key, self.nbytes(key), *life)
            for key, *life in self.lifetimes()
            if key not in self.on_device
        ]
        sums = (Key("moments", number) for number in self.moments[0])
        return pack([*blocks, *(Block(key, self.nbytes(key), 0, end) for key in (*self._results, *sums))])

    @property
    def _results(self) -> tuple[Key, ...]:
        """What the host reads and writes beside images: labels and loss or the last gradient, and others."""
        last = len(self.network.stages)
        images = (Key("g", 0),) if self.network.image_gradient else ()
        return Key("x", last), *((LABELS, LOSS) if self.network.loss else (Key("g", last),)), *images

    @cached_property
    def moments(self) -> tuple[dict[int, int], int]:
        """Where the sums of each batch normalization start, by its stage, and their bytes.

        For each channel these are the sums of x and of its squares, the two gradients, and the weight before
        its update, all of double precision.
        """
        found, start = dict[int, int](), 0
        for stage in self.network.stages:
            if stage.kind == "batch_norm":
                found[stage.number] = start
                start += aligned(5 * 2 * ITEM * stage.shape[0])
        return found, start

    def nbytes(self, key: Key) -> int:
        """The bytes of a tensor for the whole batch."""
        if key.kind == "moments":
            return 2 * 2 * ITEM * self.network.shape(key.tensor)[0]
        rows = self.network.shape(key.tensor)[1] if key.kind in "xg" else 1
        return self.phases[0].nbytes(key, self.batch, rows)

    def block(self, phase: Phase) -> int:
        """The bytes of a phase's block: its parameters, if it loads them, its buffers, and its workspace."""
        return self.loaded(phase)[1] + phase.buffers.nbytes + phase.workspace

    def loaded(self, phase: Phase) -> tuple[dict[str, Parameter], int]:
        """The parameters that a phase loads, from the start of its block, and their bytes."""
        if self.resident:
            return {}, 0
        return self.parameters(self.names(phase), "w" if phase.kind == "forward" else "all")

    def names(self, phase: Phase) -> tuple[str, ...]:
        """The names of a phase's parameters."""
        stages = {stage.name for stage in self.network.stages[phase.first - 1 : phase.last]}
        return tuple(name for name in self.network.parameters if name.split(".")[0] in stages)

    def parameters(self, names: tuple[str, ...], parts: Parts = "all") -> tuple[dict[str, Parameter], int]:
        """The parameters of a block from its start, and their bytes; without a loss there is no update."""
        found, start = dict[str, Parameter](), 0
        shapes = self.network.parameters | self.network.running
        for name in names:
            elements = math.prod(shapes[name])
            size = aligned(ITEM * elements)
            velocity = size if self.network.loss or parts == "state" else 0
            found[name] = Parameter(elements, start, start + size, start + size + velocity)
            gradient = aligned(2 * ITEM * elements) if parts == "all" else 0
            start += size if parts == "w" else size + velocity + gradient
        return found, start

    # -------------------------------------------------------------------------------------------- time

    @cached_property
    def seconds(self) -> float:
        """The closed form, by which the planner chooses."""
        return sum(self.phase_seconds(phase) for phase in self.phases)

    def phase_seconds(self, phase: Phase) -> float:
        """The closed form of a phase."""
        seconds = phase.costs(self.rates).seconds(self.depth)
        loaded = sum(ITEM * one.elements for one in self.loaded(phase)[0].values())
        copies = 1 if phase.kind == "forward" else 2
        return seconds + (self.rates.into(copies * loaded) if loaded else 0.0)

    @cached_property
    def in_core_seconds(self) -> float:
        """The routines of a step in one piece, which copies nothing: what a device that holds all takes."""
        last, found = len(self.network.stages), list[Segment]()
        ends = [number - 1 for number in self.moments[0]] + [last]
        for first, end in zip([1, *(one + 1 for one in ends)], ends, strict=False):
            rows = self.network.shape(end)[1], self.network.shape(target_of(self.network, first))[1]
            segment = Segment(first, end, Cut(self.batch, rows[0]), Cut(self.batch, rows[1]))
            found.append(replace(segment, kept=frozenset(self.inner(segment))))
        plan = replace(self, segments=tuple(found), known={})
        return sum(phase.costs(self.rates).compute for phase in plan.phases)

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline that the model predicts for a step: three streams, each at its rates."""
        from gpu.outofcore.networks.rehearsal import predict

        return predict(self)

    def __str__(self) -> str:
        from gpu.outofcore.networks.table import table_of

        return table_of(self)
