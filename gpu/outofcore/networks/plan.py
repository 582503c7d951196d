"""The plan of a training step: segments, pieces, the home of each tensor, and all memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from gpu.outofcore.networks.engines import SIMULATED, Engines
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.lifetimes import Block, Packed, pack
from gpu.outofcore.networks.phases import ITEM, LABELS, LOSS, Cut, Key, Phase, Tensors, nbytes_of
from gpu.outofcore.networks.planned import Parameter, Parts
from gpu.outofcore.networks.strips import target_of
from gpu.outofcore.rates import Rates
from gpu.outofcore.workspace import aligned
from reference.devices.timeline import Timeline
from reference.values import shortened

Life: TypeAlias = tuple[Key, int, int]
"""The contents of a buffer, with the first and the last phase that need them."""
NONE = frozenset[int]()
Result: TypeAlias = Literal["kept", "passed", "again"]


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
        The stages whose results are kept for the backward phase; others are computed again. The last one is
        needed, and can be kept, only if `BatchNorm` follows.
    result : {"kept", "passed", "again"}
        Whether its result is kept for the backward phase of the next segment, too; or only passed to the
        forward phase of that, so that backward phases compute it again, from what is kept before; or not even
        that. If it is not kept but in ``kept``, the backward phase of the next segment passes it on.
    above : int, optional
        The gradient that the backward phase loads: by default that behind the segment. One behind stages
        without weights that follow may be smaller, as of pooling; it is taken through them twice.

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
    result: Result = "kept"
    above: int | None = None


@shortened
@dataclass(frozen=True)
class TrainingPlan:
    """The plan of a step of training.

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
        """The forward phases of the segments, then the backward phases, of the last segment first."""
        count = len(self.segments)
        return (
            *(
                self.phase(index, is_forward=True)
                for index, segment in enumerate(self.segments)
                if self.goes_forward(segment)
            ),
            *(self.phase(index, is_forward=False) for index in reversed(range(count))),
        )

    @cached_property
    def forward(self) -> tuple[Phase, ...]:
        """The phases that compute the logits alone."""
        count = len(self.segments)
        return *self.phases[: count - 1], self.phase(count - 1, is_forward=True)

    def goes_forward(self, segment: Segment) -> bool:
        """True if a segment has a forward phase; with a loss, the last segment has only a backward phase."""
        return self.network.loss is None or segment.last < len(self.network.stages)

    def phase(self, index: int, *, is_forward: bool) -> Phase:
        """The forward or backward phase of segment ``index``."""
        segment, (forward, backward) = self.segments[index], self.sources[index]
        if is_forward:
            kept = (
                segment.kept - {segment.last} if segment.result == "again" else segment.kept | {segment.last}
            )
            near = {Key("x", tensor) for tensor in (forward, *kept)} if self.on_device else set[Key]()
            return self._phase(segment, Tensors(kept, self.on_device & near, source=forward))
        kept, again = segment.kept | {backward} | self._kept_above(index), self._again(index)
        top, below = self.top(index), self.top(index - 1) if index else 0
        near = set[Key]()
        if self.on_device:
            near = {Key("r" if tensor in again else "x", tensor) for tensor in (*kept, *again)}
            near |= {Key("g", top), Key("g", below)}
        return self._phase(segment, Tensors(kept, self.on_device & near, backward, top, below, again))

    def _phase(self, segment: Segment, tensors: Tensors) -> Phase:
        """A phase; phases that differ only in their cut share results."""
        kind: Literal["forward", "backward"] = "backward" if tensors.top else "forward"
        cut = segment.backward if tensors.top else segment.forward
        alike = self.known.setdefault((kind, segment.first, segment.last, tensors, self.depth), {})
        if not alike:
            first, last, depth = segment.first, segment.last, self.depth
            shared = {"alike": alike}
            alike[cut] = Phase(
                self.network, self.batch, kind, first, last, cut, depth, tensors, self.engines, shared
            )
        return self.recut(next(iter(alike.values())), cut)

    @cached_property
    def sources(self) -> list[tuple[int, int]]:
        """The activations that the forward and the backward phase of each segment begin with."""
        sources, passed, kept = list[tuple[int, int]](), 0, 0
        for segment in self.segments:
            sources.append((max(passed, kept), kept))
            kept = max((tensor for tensor in segment.kept if tensor < segment.last), default=kept)
            if segment.result == "kept":
                kept = segment.last
            passed = 0 if segment.result == "again" else segment.last
        return sources

    def recut(self, phase: Phase, cut: Cut) -> Phase:
        """Replace a phase's cut, which sets its pieces' sizes."""
        alike = phase.shared["alike"]
        if cut not in alike:
            alike[cut] = replace(phase, cut=cut)
        return alike[cut]

    def _again(self, index: int) -> frozenset[int]:
        """Activations that a segment's backward phase loads from the one before, or stores for the next."""
        near = self.segments[max(index - 1, 0) : index + 1]
        return frozenset(one.last for one in near if one.result != "kept" and one.last in one.kept)

    def _kept_above(self, index: int) -> frozenset[int]:
        """Activations that the next segment keeps and the backward phase of this one uses."""
        between = range(self.segments[index].last + 1, self.top(index))
        if not between:
            return NONE
        following = self.segments[index + 1]
        gone = NONE if following.result == "kept" else {following.last}
        return following.kept & {*between} - gone

    def top(self, index: int) -> int:
        """The number of the activation whose gradient a segment's backward phase begins with."""
        segment = self.segments[index]
        after = segment.last + self.network.normalizes(segment.last + 1)
        return after if segment.above is None else segment.above

    def tops(self, index: int) -> tuple[int, ...]:
        """The gradients with which a segment's backward phase may begin: no weights are between them."""
        first = self.segments[index].last + self.network.normalizes(self.segments[index].last + 1)
        gradients = [first]
        for stage in self.network.stages[first : self.top(index + 1)]:
            if stage.has_weights:
                break
            gradients.append(stage.number)
        return tuple(gradients)

    def inner(self, segment: Segment) -> range:
        """The activations that a segment can keep."""
        if not self.goes_forward(segment):
            return range(0)
        return range(segment.first, segment.last + self.network.normalizes(segment.last + 1))

    @property
    def accumulates(self) -> bool:
        """True if only the batch is cut, over the whole network: gradient accumulation."""
        return len(self.segments) == 1 and len(self.phases[0].strips) == 1

    @property
    def end(self) -> int:
        """The index of the last phase."""
        return 2 * len(self.segments) - 1 - (self.network.loss is not None)

    def lifetimes(self) -> Iterator[Life]:
        """Yield the tensors that live across phases, each with its first and its last phase."""
        every = (life for index in range(len(self.segments)) for life in self.lives(index))
        lifetime = merged([(Key("x", 0), 0, self.end), *every])
        yield from ((key, *life) for key, life in lifetime.items())

    def lives(self, index: int) -> Iterator[Life]:
        """Yield lifetimes that a segment, or the next one by its kept tensors, changes; a key may repeat."""
        segment, backward = self.segments[index], self.end - index
        last, top = segment.last, self.top(index)
        if last == len(self.network.stages):
            yield from ((Key("x", tensor), index, backward) for tensor in segment.kept)
            return
        if segment.result != "again":
            yield Key("x", last), index, index + 1 if segment.result == "passed" else backward - 1
        if Key("g", top) not in self.results:
            yield Key("g", top), backward - 1, backward
        for tensor in segment.kept - {last}:
            yield Key("x", tensor), index, backward
        if last in segment.kept and segment.result == "kept":
            yield Key("x", last), index, backward
        elif last in segment.kept:
            yield Key("r", last), backward - 1, backward
        for tensor in self._kept_above(index):
            yield Key("x", tensor), index + 1, backward

    # ------------------------------------------------------------------------------------------ memory

    @cached_property
    def device(self) -> Packed[Key | int | str]:
        """The slab of the device: parameters, what stays, and a block for each phase."""
        end, blocks = self.end, list[Block[Key | int | str]]()
        lives = {key: life for key, *life in self.lifetimes() if key in self.on_device}
        takes = takers({key: (life[0], life[1]) for key, life in lives.items()}, self.nbytes)
        leads = self._leads(lives, takes)
        for key, life in lives.items():
            blocks.append(Block(key, leads[key] + self.nbytes(key), life[0], life[1], takes.get(key)))
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
        offsets, nbytes = pack(blocks)
        return Packed({key: start + leads.get(key, 0) for key, start in offsets.items()}, nbytes)

    def _leads(self, lives: Mapping[Key, Sequence[int]], takes: Mapping[Key, Key]) -> dict[Any, int]:
        """Offset of each tensor in its block; one that overwrites another must be a piece ahead of it."""
        leads = dict.fromkeys(lives, 0)
        for key in sorted(takes, key=lambda one: -lives[one][0]):
            images = min(self.phases[lives[key][0]].cut.images, self.batch)
            leads[takes[key]] = leads[key] + aligned(images * (self.nbytes(key) // self.batch))
        return leads

    @cached_property
    def host(self) -> Packed[Key]:
        """The layout of the host's slab of page-locked memory, without parameters."""
        sums = (Key("moments", number) for number in self.moments[0])
        lives = [life for life in self.lifetimes() if life[0] not in self.on_device]
        lives += [(key, 0, self.end) for key in (*self.results, *sums)]
        return pack([Block(key, self.nbytes(key), first, last) for key, first, last in lives])

    @property
    def results(self) -> tuple[Key, ...]:
        """The host's tensors besides images: the result, labels, and loss or last gradient, and others."""
        last = len(self.network.stages)
        images = (Key("g", 0),) if self.network.image_gradient else ()
        return Key("x", last), *((LABELS, LOSS) if self.network.loss else (Key("g", last),)), *images

    @cached_property
    def moments(self) -> tuple[dict[int, int], int]:
        """Offsets of each batch normalization's sums, by stage, and the bytes of all of them.

        For each channel these are the sums of x and of its squares, the two gradients, and the weight before
        its update, all of double precision.
        """
        offsets, start = dict[int, int](), 0
        for stage in self.network.stages:
            if stage.kind == "batch_norm":
                offsets[stage.number] = start
                start += aligned(5 * 2 * ITEM * stage.shape[0])
        return offsets, start

    def nbytes(self, key: Key) -> int:
        """The bytes of a tensor for the whole batch."""
        if key.kind == "moments":
            return 2 * 2 * ITEM * self.network.shape(key.tensor)[0]
        rows = self.network.shape(key.tensor)[1] if key.kind in "xgr" else 1
        return nbytes_of(self.network, key, self.batch, rows)

    def block(self, phase: Phase) -> int:
        """The bytes of a phase's block: the parameters that it loads, its buffers, and its workspace."""
        return self.loaded(phase)[1] + phase.buffers.nbytes + phase.workspace

    def loaded(self, phase: Phase) -> tuple[dict[str, Parameter], int]:
        """The parameters that a phase loads, from the start of its block, and their bytes."""
        if self.resident:
            return {}, 0
        own, size = self.parameters(self.names(phase), "w" if phase.kind == "forward" else "all")
        again, others = self.parameters(self.names_again(phase), "w", size)
        return own | again, others

    def names(self, phase: Phase) -> tuple[str, ...]:
        """The names of the parameters of a phase's segment."""
        return self._names(range(phase.first, phase.last + 1))

    def names_again(self, phase: Phase) -> tuple[str, ...]:
        """The names of other segments' parameters that a phase needs to recompute their results."""
        return self._names(stage for stage in phase.again_stages if not phase.first <= stage <= phase.last)

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        stages = {self.network.stages[number - 1].name for number in numbers}
        return tuple(name for name in self.network.parameters if name.split(".")[0] in stages)

    @cached_property
    def updates(self) -> tuple[tuple[str, ...], ...]:
        """The names of the parameters that are updated behind each phase.

        Those that are on the device are updated behind the last phase that uses them; others are read from
        the host as they were before the step.
        """
        if not self.resident:
            return tuple(self.names(phase) for phase in self.phases)
        updates, later = list[tuple[str, ...]](), set[str]()
        for phase in reversed(self.phases):
            used = *self.names(phase), *self.names_again(phase)
            updates.append(tuple(name for name in used if name not in later))
            later.update(used)
        return tuple(reversed(updates))

    def parameters(
        self, names: tuple[str, ...], parts: Parts = "all", start: int = 0
    ) -> tuple[dict[str, Parameter], int]:
        """The named parameters in a block, and their bytes; without a loss they have no velocities."""
        blocks = dict[str, Parameter]()
        shapes = self.network.parameters | self.network.running
        for name in names:
            elements = math.prod(shapes[name])
            size = aligned(ITEM * elements)
            velocity = size if self.network.loss or parts == "state" else 0
            blocks[name] = Parameter(elements, start, start + size, start + size + velocity)
            gradient = aligned(2 * ITEM * elements) if parts == "all" else 0
            start += size if parts == "w" else size + velocity + gradient
        return blocks, start

    # -------------------------------------------------------------------------------------------- time

    @cached_property
    def seconds(self) -> float:
        """The predicted seconds of a step, in closed form; the planner minimises them."""
        return sum(self.phase_seconds(phase) for phase in self.phases)

    def phase_seconds(self, phase: Phase, images: int | None = None) -> float:
        """The predicted seconds of a phase, in closed form, with ``images`` in a piece."""
        seconds = phase.costs(self.rates, images).seconds(self.depth)
        if self.resident:
            return seconds
        loaded, own = self.loaded(phase)[0], set(self.names(phase))
        copies = 1 if phase.kind == "forward" else 2
        elements = sum(one.elements * (copies if name in own else 1) for name, one in loaded.items())
        return seconds + (self.rates.into(ITEM * elements) if elements else 0.0)

    @cached_property
    def in_core_seconds(self) -> float:
        """The seconds of a step's routines in one piece, as if everything were on the device."""
        last, segments = len(self.network.stages), list[Segment]()
        ends = [number - 1 for number in self.moments[0]] + [last]
        for first, end in zip([1, *(one + 1 for one in ends)], ends, strict=False):
            rows = self.network.shape(end)[1], self.network.shape(target_of(self.network, first))[1]
            segment = Segment(first, end, Cut(self.batch, rows[0]), Cut(self.batch, rows[1]))
            segments.append(replace(segment, kept=frozenset(self.inner(segment))))
        plan = replace(self, segments=tuple(segments), known={})
        return sum(phase.costs(self.rates).compute for phase in plan.phases)

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline that the model predicts for a step: three streams, each at its rates."""
        from gpu.outofcore.networks.rehearsal import predict

        return predict(self)

    def __str__(self) -> str:
        from gpu.outofcore.networks.table import table_of

        return table_of(self)


def merged(lives: Iterable[Life]) -> dict[Key, tuple[int, int]]:
    """Merge each buffer's lifetimes into one from its first to its last phase."""
    lifetime: dict[Key, tuple[int, int]] = {}
    for key, first, last in lives:
        begin, end = lifetime.get(key, (first, last))
        lifetime[key] = min(begin, first), max(end, last)
    return lifetime


def takers(lives: Mapping[Key, tuple[int, int]], nbytes: Callable[[Key], int]) -> dict[Key, Key]:
    """Tensors that overwrite another one, at least as large, piece by piece at its last use: {new: old}."""
    taken, ending = dict[Key, Key](), dict[int, list[Key]]()
    for key, (first, last) in lives.items():
        if first < last:
            ending.setdefault(last, []).append(key)
    beginning = [key for key, (first, last) in lives.items() if first in ending and first < last]
    for key in sorted(beginning, key=nbytes, reverse=True):
        read = ending[lives[key][0]]
        other = next((one for one in read if nbytes(one) >= nbytes(key)), None)
        if other is not None:
            taken[key] = other
            read.remove(other)
    return taken
