"""The search for a plan: segments by dynamic programming, then kept tensors and pieces, step by step.

The goal is the least time by the closed form, within the budget. A segment's time depends on no other segment
while all that is kept goes to the host: so borders are found one segment after the other. From there the best
of all single changes of the plan is taken as long as one helps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from gpu.outofcore.networks.changes import Improvement, seconds_for_a_byte
from gpu.outofcore.networks.cuts import Cuts
from gpu.outofcore.networks.engines import Engines
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.options import TrainingOptions
from gpu.outofcore.networks.phases import Cut
from gpu.outofcore.networks.plan import Segment, TrainingPlan
from gpu.outofcore.rates import Rates
from reference.errors import LaunchError

SHARES = (1.0, 0.25)
"""Shares of the free memory that pieces may take in the first plans."""
ANY = Cut(1, 1)
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
    """The plan of a training step; LaunchError if none fits the budget."""
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
    """The smallest segments: one stage each, image by image and row by row; dense ones read whole images."""
    whole = max(network.shape(tensor)[1] for tensor in range(len(network.stages) + 1))
    cuts = (Cut(1, whole if stage.kind == "dense" else 1) for stage in network.stages)
    return tuple(Segment(number, number, cut, cut) for number, cut in enumerate(cuts, 1))


class _Search:
    """Searches plans with the parameters in one home (device or host), beginning without segments."""

    def __init__(self, plan: TrainingPlan, accumulation: bool) -> None:
        self._plan, self._accumulation = plan, accumulation
        self._network, self._last = plan.network, len(plan.network.stages)
        resident = plan.parameters(tuple(plan.network.parameters))[1] if plan.resident else 0
        self._free = plan.budget - resident - plan.moments[1]
        self._cuts = Cuts(plan)

    def best(self) -> TrainingPlan | None:
        """The best plan found; None if none fits."""
        for borders in dict.fromkeys((self._few(), tuple(range(1, self._last)))):
            starts = [self._start((0, *borders, self._last), int(share * self._free)) for share in SHARES]
            alike = {_uncut(plan): plan for plan in starts if plan is not None}
            plans = [Improvement(plan, self._cuts, self._free).best(plan) for plan in alike.values()]
            if plans:
                return min(plans, key=lambda plan: plan.seconds)
        return None

    def _few(self) -> tuple[int, ...]:
        """Borders with few bytes to copy: results smaller than the one before, no larger than the next."""
        every = range(1, self._last)
        norms = {n for n in every if self._network.normalizes(n + 1)}
        if self._last <= FEW:
            return tuple(every)
        sizes = [math.prod(self._network.shape(tensor)) for tensor in range(self._last + 1)]
        small = {n for n in every if sizes[n - 1] > sizes[n] <= sizes[n + 1]}
        return tuple(sorted(small | norms | {self._last - 1}))

    # ------------------------------------------------------------------------------------------ borders

    def _start(self, borders: Sequence[int], limit: int) -> TrainingPlan | None:
        """The best segments between these borders whose phases fit in ``limit`` bytes."""
        best: dict[int, tuple[float, tuple[Segment, ...]]] = {0: (0.0, ())}
        for end, start in ((b, a) for b in borders for a in borders if a < b):
            if start not in best or (not self._accumulation and end - start == self._last):
                continue
            if any(map(self._network.normalizes, range(start + 2, end + 1))):
                continue  # batch normalization must begin a segment
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
        """The fastest segment of stages ``first`` to ``last`` within ``limit`` bytes, with its seconds."""
        inner = frozenset(self._plan.inner(Segment(first, last, ANY, ANY)))
        starts = dict.fromkeys((frozenset[int](), inner))
        segments = [one for kept in starts if (one := self._with_cuts(first, last, kept, limit))]
        if segments and inner:
            better = self._keeping(min(segments, key=lambda one: one[0])[1], inner)
            segments += [one] if (one := self._with_cuts(first, last, better, limit)) else []
        return min(segments, key=lambda one: one[0], default=None)

    def _with_cuts(
        self, first: int, last: int, kept: frozenset[int], limit: int
    ) -> tuple[float, Segment] | None:
        """A segment with the best cuts, and its seconds."""
        plan, index = self._alone(Segment(first, last, ANY, ANY, kept))
        seconds, segment = 0.0, plan.segments[index]
        for is_forward in (True, False):
            best = self._cuts.best(plan.phase(index, is_forward=is_forward), limit)
            if best is None:
                return None
            seconds += best[0] if plan.goes_forward(segment) or not is_forward else 0.0
            segment = _with(segment, is_forward, best[1])
        return seconds, segment

    def _alone(self, segment: Segment) -> tuple[TrainingPlan, int]:
        """A plan with a segment independent of all others, and the segment's index."""
        before = (Segment(1, segment.first - 1, ANY, ANY),) if segment.first > 1 else ()
        after = (Segment(segment.last + 1, self._last, ANY, ANY),) if segment.last < self._last else ()
        return replace(self._plan, segments=(*before, segment, *after)), len(before)

    def _keeping(self, segment: Segment, inner: frozenset[int]) -> frozenset[int]:
        """The best activations to keep in a segment cut slightly finer: those that pay most for a byte.

        How many is found by steps that are halved: the time of one phase falls, that of the other rises.
        """
        fine = replace(segment, forward=_finer(segment.forward), backward=_finer(segment.backward))
        order = sorted(inner, key=lambda tensor: seconds_for_a_byte(self._plan, tensor), reverse=True)

        @cache
        def seconds(count: int) -> float:
            plan, index = self._alone(replace(fine, kept=frozenset(order[:count])))
            return sum(plan.phase_seconds(plan.phase(index, is_forward=one)) for one in (True, False))

        best = min((0, len(order)), key=seconds)
        step = 1 << (len(order) - 1).bit_length()
        while step := step // 2:
            near = (best, best - step, best + step)
            best = min((one for one in near if 0 <= one <= len(order)), key=seconds)
        return frozenset(order[:best])


def _finer(cut: Cut) -> Cut:
    return Cut(-(-cut.images // 4), cut.rows)


def _with(segment: Segment, is_forward: bool, cut: Cut) -> Segment:
    return replace(segment, forward=cut) if is_forward else replace(segment, backward=cut)


def _uncut(plan: TrainingPlan) -> tuple[Segment, ...]:
    """The plan's segments with arbitrary instead of chosen cuts."""
    return tuple(replace(segment, forward=ANY, backward=ANY) for segment in plan.segments)
