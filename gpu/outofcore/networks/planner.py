"""The search for a plan: segments by dynamic programming, then what is kept, and the pieces, step by step.

The goal is the least time by the closed form, within the budget. A segment's time depends on no other segment
while all that is kept goes to the host: so borders are found one segment after the other. From there the best
of all single changes of the plan is taken as long as one helps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpu.outofcore.networks.engines import Engines
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.options import TrainingOptions
from gpu.outofcore.networks.phases import Cut, Key, Phase
from gpu.outofcore.networks.plan import Segment, TrainingPlan
from gpu.outofcore.networks.strips import target_of
from gpu.outofcore.planners import candidates
from gpu.outofcore.rates import Rates
from reference.errors import LaunchError

SHARES = (1.0, 0.25)
"""Parts of the free memory that pieces may take at first."""
LEAST_GAIN, MUCH_WORSE = 2e-4, 1.05
ANY, IMAGES = Cut(1, 1), Key("x", 0)
FEW = 8
"""Networks with no more stages may be cut behind each one, others behind the smallest results."""


def training_plan(
    network: Network,
    batch: int,
    budget: int,
    rates: Rates,
    options: TrainingOptions,
    engines: Engines,
) -> TrainingPlan:
    """The plan of a step; LaunchError if none fits the budget."""
    base = TrainingPlan(network, batch, (), frozenset(), True, options.depth, budget, rates, engines)
    where = {"auto": (True, False), "device": (True,), "host": (False,)}[options.parameters]
    least = {
        resident: replace(base, resident=resident, depth=1, segments=_smallest(network)).device.nbytes
        for resident in where
    }
    for resident in (one for one in where if least[one] <= budget):
        for depth in dict.fromkeys((options.depth, 1)):
            plan = replace(base, resident=resident, depth=depth)
            found = _Search(plan, options.accumulation).best()
            if found is not None:
                return found
    needed = min(least.values())
    raise LaunchError(
        f"training with a budget of {budget} bytes\nthe smallest pieces need {needed}\n"
        f"pass memory_budget={needed} or more"
    )


def _smallest(network: Network) -> tuple[Segment, ...]:
    """Each stage by itself, image by image and row by row."""
    return tuple(Segment(n, n, Cut(1, 1), Cut(1, 1)) for n in range(1, len(network.stages) + 1))


class _Search:
    """The search with parameters in one place.

    Parameters
    ----------
    plan : TrainingPlan
        Without segments.
    accumulation : bool
    """

    def __init__(self, plan: TrainingPlan, accumulation: bool) -> None:
        self._plan, self._accumulation = plan, accumulation
        self._network, self._last = plan.network, len(plan.network.stages)
        resident = plan.parameters(tuple(plan.network.parameters))[1] if plan.resident else 0
        self._free = plan.budget - resident - plan.moments[1]

    def best(self) -> TrainingPlan | None:
        """The best plan found; None if none fits."""
        for borders in dict.fromkeys((self._few(), tuple(range(1, self._last)))):
            starts = [self._start((0, *borders, self._last), int(share * self._free)) for share in SHARES]
            found = [self._improved(_on_device(plan)) for plan in starts if plan is not None]
            if found:
                return min(found, key=lambda plan: plan.seconds)
        return None

    def _few(self) -> tuple[int, ...]:
        """Borders where little is copied: results smaller than the one before, no larger than the next."""
        every = range(1, self._last)
        norms = {n for n in every if self._network.normalizes(n + 1)}
        if self._last <= FEW:
            return tuple(every)
        sizes = [math.prod(self._network.shape(tensor)) for tensor in range(self._last + 1)]
        small = {n for n in every if sizes[n - 1] > sizes[n] <= sizes[n + 1]}
        return tuple(sorted(small | norms | {self._last - 1}))

    # ------------------------------------------------------------------------------------------ borders

    def _start(self, borders: Sequence[int], limit: int) -> TrainingPlan | None:
        """The best segments between these borders, whose phases need no more than a limit."""
        best: dict[int, tuple[float, tuple[Segment, ...]]] = {0: (0.0, ())}
        for end, start in ((b, a) for b in borders for a in borders if a < b):
            if start not in best or (not self._accumulation and end - start == self._last):
                continue
            if any(map(self._network.normalizes, range(start + 2, end + 1))):
                continue  # it begins a segment
            found = self._segment(start + 1, end, limit)
            if found is not None:
                seconds = best[start][0] + found[0]
                if end not in best or seconds < best[end][0]:
                    best[end] = seconds, (*best[start][1], found[1])
        if self._last not in best:
            return None
        plan = replace(self._plan, segments=best[self._last][1])
        return plan if plan.device.nbytes <= plan.budget else None

    def _segment(self, first: int, last: int, limit: int) -> tuple[float, Segment] | None:
        """The best segment of some stages, with its seconds."""
        inner = frozenset(self._plan.inner(Segment(first, last, ANY, ANY)))
        starts = dict.fromkeys((frozenset[int](), inner))
        found = [one for kept in starts if (one := self._with_cuts(first, last, kept, limit))]
        if found and inner:
            better = self._keeping(min(found, key=lambda one: one[0])[1], inner)
            found += [one] if (one := self._with_cuts(first, last, better, limit)) else []
        return min(found, key=lambda one: one[0], default=None)

    def _with_cuts(
        self, first: int, last: int, kept: frozenset[int], limit: int
    ) -> tuple[float, Segment] | None:
        """A segment with the best cuts, and its seconds."""
        of = Segment(first, last, ANY, ANY, kept)
        forward, backward = self._cut(of, True, limit), self._cut(of, False, limit)
        if forward is None or backward is None:
            return None
        seconds = backward[0] + (forward[0] if self._plan.goes_forward(of) else 0.0)
        return seconds, replace(of, forward=forward[1], backward=backward[1])

    def _keeping(self, segment: Segment, inner: frozenset[int]) -> frozenset[int]:
        """What a segment best keeps if it is cut a little finer, by the best of all single changes."""
        fine = replace(segment, forward=_finer(segment.forward), backward=_finer(segment.backward))

        def seconds(kept: frozenset[int]) -> float:
            of = replace(fine, kept=kept)
            phases = (self._plan.phase(of, is_forward=one) for one in (True, False))
            return sum(self._plan.phase_seconds(phase) for phase in phases)

        best = seconds(fine.kept)
        while True:
            found, kept = min(
                ((seconds(fine.kept ^ {tensor}), fine.kept ^ {tensor}) for tensor in inner),
                key=lambda one: one[0],
            )
            if found >= best:
                return fine.kept
            best, fine = found, replace(fine, kept=kept)

    def _cut(self, segment: Segment, is_forward: bool, limit: int) -> tuple[float, Cut] | None:
        """The best cut of a phase, of rows only if whole images do not fit."""
        height = self._height(segment, is_forward)
        for cuts in (
            [Cut(images, height) for images in candidates(self._plan.batch)],
            [Cut(1, rows) for rows in self._rows(segment, is_forward)[1:]],
        ):
            best: tuple[float, Cut] | None = None
            for cut in cuts:
                phase = self._plan.phase(_with(segment, is_forward, cut), is_forward=is_forward)
                seconds = self._plan.phase_seconds(phase)
                if best is not None and seconds > MUCH_WORSE * best[0]:
                    break  # still smaller pieces launch still more
                if (best is None or seconds < best[0]) and self._holds(phase, limit):
                    best = seconds, cut
            if best is not None:
                return best
        return None

    def _holds(self, phase: Phase, limit: int) -> bool:
        """Whether a limit holds a phase's block."""
        return phase.least_bytes <= limit and self._plan.block(phase) <= limit

    def _height(self, segment: Segment, is_forward: bool) -> int:
        """The rows that a phase may be cut along."""
        target = target_of(self._network, segment.first)
        return self._network.shape(segment.last if is_forward else target)[1]

    def _rows(self, segment: Segment, is_forward: bool) -> list[int]:
        """The heights of strips that are tried."""
        stages = self._network.stages[segment.first - 1 : segment.last]
        height = self._height(segment, is_forward)
        return [height] if any(stage.kind == "dense" for stage in stages) else candidates(height)

    # ---------------------------------------------------------------------------------------- changes

    def _improved(self, plan: TrainingPlan) -> TrainingPlan:
        """The plan after the best changes."""
        while True:
            for other in sorted(self._changes(plan), key=lambda one: one.seconds):
                if other.seconds > plan.seconds * (1 - LEAST_GAIN):
                    return plan
                if _fits(other):
                    plan = other
                    break
            else:
                return plan

    def _changes(self, plan: TrainingPlan) -> Iterator[TrainingPlan]:
        """The plans that differ in one decision."""
        for key, _, _ in plan.lifetimes():
            if key != IMAGES:
                yield replace(plan, on_device=plan.on_device ^ {key})
        for index, segment in enumerate(plan.segments):
            for tensor in plan.inner(segment):
                key, kept = Key("x", tensor), segment.kept ^ {tensor}
                yield self._changed(plan, index, replace(segment, kept=kept), plan.on_device - {key})
                if tensor in kept:
                    yield self._changed(plan, index, replace(segment, kept=kept), plan.on_device | {key})
            for is_forward in (True, False) if plan.goes_forward(segment) else (False,):
                for cut in self._near(segment, is_forward):
                    yield self._changed(plan, index, _with(segment, is_forward, cut), plan.on_device)

    def _near(self, segment: Segment, is_forward: bool) -> Iterator[Cut]:
        """The next larger and smaller pieces of a phase."""
        cut, height = _of(segment, is_forward), self._height(segment, is_forward)
        sizes = candidates(self._plan.batch)
        every = [Cut(images, height) for images in sizes]
        every += [Cut(1, rows) for rows in self._rows(segment, is_forward)[1:]]
        at = every.index(cut)
        yield from every[max(at - 1, 0) : at] + every[at + 1 : at + 2]

    def _changed(
        self, plan: TrainingPlan, index: int, segment: Segment, on_device: frozenset[Key]
    ) -> TrainingPlan:
        """A plan with another segment."""
        segments = *plan.segments[:index], segment, *plan.segments[index + 1 :]
        if not plan.goes_forward(segment):  # the pieces of the logits are those of the only phase
            segments = *segments[:-1], replace(segment, forward=self._forward(segment))
        return replace(plan, segments=segments, on_device=on_device)

    def _forward(self, segment: Segment) -> Cut:
        """The cut of the forward phase of the last segment."""
        rows = segment.backward.rows == self._height(segment, False)
        return Cut(segment.backward.images, self._height(segment, True)) if rows else segment.forward


def _on_device(plan: TrainingPlan) -> TrainingPlan:
    """The plan with everything on the device, if that fits."""
    whole = replace(plan, on_device=frozenset(key for key, _, _ in plan.lifetimes() if key != IMAGES))
    return whole if _fits(whole) else plan


def _fits(plan: TrainingPlan) -> bool:
    """Whether a plan fits its budget; what stays on the device is not cut along rows."""
    return all(len(phase.strips) == 1 for phase in plan.phases if phase.on_device) and (
        plan.device.nbytes <= plan.budget
    )


def _finer(cut: Cut) -> Cut:
    return Cut(-(-cut.images // 4), cut.rows)


def _of(segment: Segment, is_forward: bool) -> Cut:
    return segment.forward if is_forward else segment.backward


def _with(segment: Segment, is_forward: bool, cut: Cut) -> Segment:
    return replace(segment, forward=cut) if is_forward else replace(segment, backward=cut)
