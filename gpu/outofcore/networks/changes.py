"""The search for the tensors that a plan keeps, on device or host: the best single changes first.

Behind the last change that helps, what takes the most memory of the device for the longest time is kept away
from it while other changes are tried: so what blocks better plans finds its way out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, product
from typing import NamedTuple, TypeAlias, get_args

from gpu.outofcore.networks.cuts import Cuts
from gpu.outofcore.networks.engines import kind_of
from gpu.outofcore.networks.phases import ITEM, Cut, Key, Phase
from gpu.outofcore.networks.plan import Life, Result, Segment, TrainingPlan, merged, takers
from gpu.outofcore.workspace import aligned

LEAST_GAIN = 2e-4
TRIES, KICKS = 4, 12
FEW, SOME = 8, 4
"""Of segments with more than a few inner activations a round changes some in each order."""
ROUNDS = (2, 1 << 10)
"""The most changes of a round, for two searches: neither finds the best plan of every network."""
RESULTS: tuple[Result, ...] = get_args(Result)
Change: TypeAlias = tuple[int, Segment, tuple[tuple[Key, bool], ...]]
"""The index of a segment, its replacement, and keys: True if they are then on the device."""


class Trial(NamedTuple):
    """A training plan that the search evaluates, with its best cuts."""

    plan: TrainingPlan  # the plan; its cuts are not used
    phases: list[Phase]  # all phases of the plan, with arbitrary cuts
    lives: list[tuple[Life, ...]]  # `TrainingPlan.lives` of each segment
    cuts: tuple[Cut, ...] = ()  # the best cut of each phase
    seconds: float = math.inf  # predicted time with these cuts

    @property
    def enough(self) -> float:
        """The predicted time that another plan must beat to count as an improvement."""
        return self.seconds * (1 - LEAST_GAIN)

    def cut(self) -> TrainingPlan:
        """The trial's plan with the best cut of each phase."""
        segments = [
            replace(segment, forward=self.cuts[index], backward=self.cuts[-1 - index])
            for index, segment in enumerate(self.plan.segments)
        ]
        last = segments[-1]
        if not self.plan.goes_forward(last):  # the last segment has one phase, whose pieces the logits share
            rows = self.plan.network.shape(last.last)[1]
            segments[-1] = replace(last, forward=Cut(last.backward.images, rows))
        known = {key for of in self.lives for key, _, _ in of}
        return replace(self.plan, segments=tuple(segments), on_device=self.plan.on_device & known)


class Improvement:
    """The search with all segments fixed, for the network and batch of ``plan``.

    ``free`` are the bytes of the device for memory that is not in use during the whole step.
    """

    def __init__(self, plan: TrainingPlan, cuts: Cuts, free: int) -> None:
        self._plan, self._cuts, self._free = plan, cuts, free
        self._sizes: dict[Key, int] = {}
        self._most = ROUNDS[0]

    def best(self, plan: TrainingPlan) -> TrainingPlan:
        """The best plan reached from ``plan``, which keeps no tensors on the device."""
        start = self._packed(_as_trial(plan))
        if start is None:
            return plan
        trials = list[Trial]()
        for most in ROUNDS:
            self._most = most
            trials.append(self._kicked(self._improved(start)))
        return min(trials, key=lambda trial: trial.seconds).cut()

    def _improved(self, trial: Trial, is_tried: Callable[[Change], bool] = lambda change: True) -> Trial:
        """Apply the best change of each round, as long as one improves the plan."""
        while True:
            enough, found = trial.enough, list[tuple[float, Change]]()
            for change in filter(is_tried, _changes(trial.plan)):
                other = self._tried(trial, change, enough)
                if other is not None:
                    found.append((other.seconds, change))
            left = self._most
            for _, change in sorted(found, key=lambda one: one[0]):
                other = self._tried(trial, change, trial.enough)
                if better := other and self._packed(other, trial.enough):
                    trial, left = better, left - 1
                if not left:
                    break
            if trial.seconds > enough:
                return trial

    def _kicked(self, trial: Trial) -> Trial:
        """The plan after trials that each take one tensor off the device, largest bytes × steps first."""
        tried = set[Key]()
        while len(tried) < KICKS:
            lives = self._lives(trial)
            sizes = {key: self._nbytes(key) * (last + 1 - first) for key, (first, last) in lives.items()}
            key = max(lives.keys() - tried, key=lambda one: (sizes[one], one), default=None)
            if key is None:
                return trial
            tried.add(key)
            other = self._improved_without(trial, key)
            trial = other if other is not None and other.seconds <= trial.enough else trial
        return trial

    def _improved_without(self, trial: Trial, key: Key) -> Trial | None:
        """Improve the plan without a tensor on the device, then with that tensor allowed again."""
        at = next(index for index, of in enumerate(trial.lives) if key in (life[0] for life in of))
        other = self._tried(trial, (at, trial.plan.segments[at], ((key, False),)), math.inf)
        other = other and self._packed(other)
        if other is None:
            return None
        place = key, True
        without = self._improved(other, lambda change: place not in change[2])
        again = self._improved(without, lambda change: place in change[2])
        return without if again is without else self._improved(again)

    def _packed(self, trial: Trial, enough: float = math.inf) -> Trial | None:
        """The plan with the best cuts for which all blocks fit in the slab; None if it is too slow."""
        excess = 0
        for _ in range(TRIES):
            fitted = self._fitted(trial, enough, excess)
            if fitted is None:
                return None
            plan = fitted.cut()
            if plan.device.nbytes <= plan.budget:
                return fitted
            excess += plan.device.nbytes - plan.budget
        return None

    def _tried(self, trial: Trial, change: Change, enough: float) -> Trial | None:
        """The plan after a change, with its best cuts; None if it is invalid, does not fit or is too slow."""
        at, segment, places = change
        old, keys = trial.plan, {key for key, _ in places}
        on_device = (old.on_device - keys) | {key for key, is_there in places if is_there}
        if segment == old.segments[at] and on_device == old.on_device:
            return None
        plan = replace(
            old, segments=(*old.segments[:at], segment, *old.segments[at + 1 :]), on_device=on_device
        )
        if at and plan.top(at - 1) not in plan.tops(at - 1):
            return None
        phases, lives = list(trial.phases), list(trial.lives)
        for index in _touched(plan, old, at, {key.tensor for key in keys}):
            phases[index], phases[-1 - index] = _both(plan, index)
        for index in range(max(at - 1, 0), min(at + 2, len(lives))):
            lives[index] = tuple(plan.lives(index))
        return self._fitted(Trial(plan, phases, lives), enough)

    def _fitted(self, trial: Trial, enough: float, excess: int = 0) -> Trial | None:
        """The best cuts for a plan's tensors on the device; None if none fits or all are too slow."""
        seconds, cuts, lives = 0.0, list[Cut](), self._lives(trial)
        free = self._free_bytes(trial, lives, excess)
        takes = {lives[key][0]: (key, other) for key, other in takers(lives, self._nbytes).items()}
        leads = dict.fromkeys(lives, 0)
        # a piece that a phase prefetches needs memory in earlier phases
        for at in reversed(range(len(free))):
            key, other = takes.get(at, (None, None))
            of_image = self._nbytes(key) // trial.plan.batch if key else 0
            best = self._cuts.best(trial.phases[at], free[at] + of_image * trial.plan.batch, of_image)
            if best is None or (seconds := seconds + best[0]) > enough:
                return None
            cuts.append(best[1])
            if key and other:
                leads[other] = leads[key] + aligned(best[1].images * of_image)
                for before in range(lives[other][0], at):
                    free[before] -= leads[other]
        return trial._replace(cuts=tuple(reversed(cuts)), seconds=seconds)

    def _free_bytes(self, trial: Trial, lives: Mapping[Key, tuple[int, int]], excess: int) -> list[int]:
        """The bytes that each phase has for its block."""
        changes = [self._free - excess] + [0] * len(trial.phases)
        for key, (first, last) in lives.items():
            nbytes = self._nbytes(key)
            changes[first] -= nbytes
            changes[last + 1] += nbytes
        return list(accumulate(changes[:-1]))

    def _lives(self, trial: Trial) -> dict[Key, tuple[int, int]]:
        """The first and the last phase of each tensor that stays on the device."""
        on_device = trial.plan.on_device
        return merged(life for of in trial.lives for life in of if life[0] in on_device)

    def _nbytes(self, key: Key) -> int:
        if key not in self._sizes:
            self._sizes[key] = aligned(self._plan.nbytes(key))
        return self._sizes[key]


def _touched(plan: TrainingPlan, old: TrainingPlan, at: int, tensors: set[int]) -> Iterator[int]:
    """The segments whose phases change if segment ``at`` or the homes of ``tensors`` change."""
    below = 0
    for index, sources in enumerate(plan.sources):
        top = plan.top(index)
        near = {top, below, *sources}
        if index in (at - 1, at, at + 1) or sources != old.sources[index] or not near.isdisjoint(tensors):
            yield index
        below = top


def _as_trial(plan: TrainingPlan) -> Trial:
    return Trial(plan, list(plan.phases), [tuple(plan.lives(index)) for index in range(len(plan.segments))])


def _both(plan: TrainingPlan, index: int) -> tuple[Phase, Phase]:
    """The forward and backward phases of a segment; without a forward phase, the backward one twice."""
    backward = plan.phase(index, is_forward=False)
    goes_forward = plan.goes_forward(plan.segments[index])
    return plan.phase(index, is_forward=True) if goes_forward else backward, backward


def _changes(plan: TrainingPlan) -> Iterator[Change]:
    """All single changes: keep a result or gradient on the device, on the host, or not at all."""
    places = False, True
    for index, segment in enumerate(plan.segments):
        last = segment.last
        for tensor in _promising(plan, segment):
            if tensor < last:
                with_it = replace(segment, kept=segment.kept | {tensor})
                yield index, replace(segment, kept=segment.kept - {tensor}), ((Key("x", tensor), False),)
                yield from ((index, with_it, ((Key("x", tensor), is_there),)) for is_there in places)
        if last == len(plan.network.stages):
            continue
        for result, is_kept, x, r in product(RESULTS, {False, last in plan.inner(segment)}, places, places):
            if (x and result == "again") or (r and (result == "kept" or not is_kept)):
                continue
            kept = segment.kept | {last} if is_kept else segment.kept - {last}
            where = (Key("x", last), x), (Key("r", last), r)
            yield index, replace(segment, kept=kept, result=result), where
        for above, is_there in product(plan.tops(index), places):
            old, new = Key("g", plan.top(index)), Key("g", above)
            if not is_there or new not in plan.results:  # the host writes the gradient of the result
                yield index, replace(segment, above=above), ((old, False), (new, is_there))


def _promising(plan: TrainingPlan, segment: Segment) -> list[int]:
    """The inner activations of a segment whose change may pay: all of a few, or the first in three orders.

    All take memory for as long. So the next to keep is one whose computing takes the longest for a byte,
    the next to give up one that takes the shortest, and the next to move to the device one with many bytes.
    """
    inner = plan.inner(segment)
    if len(inner) <= FEW:
        return [*inner]
    order = sorted(inner, key=lambda tensor: seconds_for_a_byte(plan, tensor), reverse=True)
    kept = [tensor for tensor in order if tensor in segment.kept]
    on_host = [tensor for tensor in kept if Key("x", tensor) not in plan.on_device]
    largest = sorted(on_host, key=lambda tensor: plan.nbytes(Key("x", tensor)), reverse=True)
    fresh = [tensor for tensor in order if tensor not in segment.kept]
    return sorted({*fresh[:SOME], *kept[-SOME:], *largest[:SOME]})


def seconds_for_a_byte(plan: TrainingPlan, tensor: int) -> float:
    """The seconds that computing an activation again takes, for each of its bytes."""
    stage, shape = plan.network.stages[tensor - 1], plan.network.shape(tensor)
    rate = plan.rates.of(kind_of(stage, "forward"))[1]
    return stage.operations(1, shape[1]) / rate / (ITEM * math.prod(shape))
