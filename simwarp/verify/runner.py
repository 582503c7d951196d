"""Many inputs of many cases within a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from simwarp.verify.case import Case
from simwarp.verify.compare import CUDA, SIMULATOR, Checked, Devices, Mismatch, check, tiers_of
from simwarp.verify.processes import started

LEAST_SHAPES = 100
"""A case that tried fewer shapes than this has not been verified."""


@dataclass
class Row:
    """What one tier did for one case.

    Attributes
    ----------
    case, tier : str
    inputs, shapes, mismatches : int
        How many.
    seconds : float
    """

    case: str
    tier: str
    inputs: int = 0
    shapes: int = 0
    mismatches: int = 0
    seconds: float = 0.0


@dataclass
class Outcome:
    """The result of a run.

    Attributes
    ----------
    rows : list of Row
    mismatches : list of Mismatch
        The first few of each case and tier.
    seconds : float
        Of the clock; those of a row are the sum over the processes.
    single : bool
        Whether one input was asked for.
    interrupted : bool
        Whether it was stopped before its time.
    wanted : int, optional
        How many inputs of each case were asked for.
    """

    seed: int
    rows: list[Row] = field(default_factory=list[Row])
    mismatches: list[Mismatch] = field(default_factory=list[Mismatch])
    seconds: float = 0.0
    single: bool = False
    interrupted: bool = False
    wanted: int | None = None

    @property
    def short(self) -> list[str]:
        """The cases that tried too few shapes, or fewer inputs than were asked for where that is less."""
        if self.single:
            return []
        if self.few is not None:
            return sorted({row.case for row in self.rows if row.inputs < self.few})
        return sorted({row.case for row in self.rows if row.shapes < LEAST_SHAPES})

    @property
    def few(self) -> int | None:
        """How many inputs of each case were asked for, if that is less than shapes are wanted."""
        return self.wanted if self.wanted is not None and self.wanted < LEAST_SHAPES else None

    @property
    def used_up(self) -> bool:
        """Whether all inputs that were asked for have been tried."""
        return self.wanted is not None and all(row.inputs >= self.wanted for row in self.rows)

    @property
    def agreed(self) -> bool:
        """Whether every tier agreed on enough shapes."""
        return not any(row.mismatches for row in self.rows) and not self.short and not self.interrupted

    def sort(self) -> None:
        """Put the mismatches in the order of cases, inputs and tiers."""
        order = {(row.case, row.tier): n for n, row in enumerate(self.rows)}
        first = {row.case: n for n, row in reversed([*enumerate(self.rows)])}
        self.mismatches.sort(key=lambda m: (first[m.case], m.input, order[m.case, m.tier]))

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data; the format is described in docs/verify.md.

        Examples
        --------
        >>> Outcome(seed=0).to_json()["agreed"]
        True
        """
        mismatches = [{**asdict(m), "replay": m.command, "message": str(m)} for m in self.mismatches]
        return {
            "agreed": self.agreed,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "too_few_shapes": self.short,
            "rows": [asdict(row) for row in self.rows],
            "mismatches": mismatches,
        }


def verify(
    cases: Iterable[Case],
    devices: Devices,
    *,
    seed: int = 0,
    budget: float = 120.0,
    only_input: int | None = None,
    inputs: int | None = None,
    tiers: Iterable[str] | None = None,
    processes: int = 1,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Run inputs of all cases by turns until the time is over.

    Parameters
    ----------
    cases : iterable of Case
    devices : mapping of tier to a function that makes its device
    seed : int
    budget : float
        Seconds, for all cases together. The case that has had the least time is next, those first
        that have not yet had enough shapes or not all their combinations.
    only_input : int, optional
        Run just this input of each case.
    inputs : int, optional
        Stop each case after so many inputs, even if there is time left.
    tiers : iterable of str, optional
        Only these, beside the reference.
    processes : int
        How many work side by side, each on one input; what they find is the same for any number. More than
        one cannot share a CUDA device.
    progress : callable
        Called with the outcome so far, after every input or four times a second.

    Examples
    --------
    >>> from simwarp.verify import CASES, simulator
    >>> outcome = verify([CASES["bmm"]], {"simulator": simulator}, only_input=2)
    >>> [(row.tier, row.inputs, row.mismatches) for row in outcome.rows]
    [('reference', 1, 0), ('listing', 1, 0), ('simulator', 1, 0)]
    """
    start = time.perf_counter()
    outcome = Outcome(seed, single=only_input is not None, wanted=inputs)
    chosen = None if tiers is None else set(tiers) | {"reference"}
    runs = [_Run(case, devices, outcome, chosen) for case in cases]
    for run in runs:
        outcome.rows += run.rows.values()

    def tell() -> None:
        outcome.seconds = time.perf_counter() - start
        progress(outcome)

    def following() -> _Run | None:
        """The case that is next, while there is time."""
        waiting = [run for run in runs if inputs is None or run.next < inputs]
        if not waiting or time.perf_counter() - start >= budget:
            return None
        return min(waiting, key=lambda run: (run.covered, run.seconds))

    try:
        if only_input is not None:
            for run in runs:
                run.take(only_input, *run.ask(only_input))
                tell()
        elif processes > 1:
            _side_by_side(runs, processes, following, tell)
        else:
            while run := following():
                run.next += 1
                run.take(run.next - 1, *run.ask(run.next - 1))
                tell()
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.sort()
    outcome.seconds = time.perf_counter() - start
    return outcome


def _side_by_side(
    runs: Sequence[_Run], processes: int, following: Callable[[], _Run | None], tell: Callable[[], None]
) -> None:
    """Inputs on several processes; they count in their order, as if they had been tried one by one."""
    with started(lambda case, k: runs[case].ask(k), processes) as workers:
        while True:
            while workers.idle and (run := following()):
                workers.give(runs.index(run), run.next)
                run.next += 1
            if not workers.busy:
                return
            for answer in workers.answers(_REFRESH):
                if isinstance(answer.outcome, Exception):
                    raise answer.outcome
                runs[answer.case].take(answer.input, *answer.outcome)
            tell()


_REFRESH = 0.25
"""Seconds between two looks at what processes do."""

_KEPT = 3
"""Mismatches of a case and tier that are kept whole; all are counted."""


class _Run:
    """One case on its way: `next` is the first input not yet given to a process."""

    def __init__(self, case: Case, devices: Devices, outcome: Outcome, chosen: set[str] | None) -> None:
        self.case, self.devices, self.outcome = case, devices, outcome
        self.next, self.seconds = 0, 0.0
        self.shapes: set[tuple[int, ...]] = set()
        self.tiers = [t for t in tiers_of(case, devices) if chosen is None or t in chosen]
        self.rows = {tier: Row(case.name, tier) for tier in self.tiers}
        self._early: dict[int, Checked] = {}
        self._counted = 0

    @property
    def covered(self) -> bool:
        """Whether enough shapes and every combination have been tried."""
        return len(self.shapes) >= LEAST_SHAPES and self.next >= self.case.covering

    def ask(self, k: int) -> tuple[Checked, float]:
        """Try input ``k``; and how many seconds that took."""
        start = time.perf_counter()
        checked = check(self.case, self.outcome.seed, k, self.devices, self.tiers)
        return checked, time.perf_counter() - start

    def take(self, k: int, checked: Checked, seconds: float) -> None:
        """Count an input, once those before it have been counted."""
        self.seconds += seconds
        if self.outcome.single:
            self._count(checked)
            return
        self._early[k] = checked
        while self._counted in self._early:
            self._count(self._early.pop(self._counted))
            self._counted += 1

    def _count(self, checked: Checked) -> None:
        self.shapes.add(checked.shape)
        for tier, seconds in checked.seconds.items():
            row = self.rows[tier]
            row.inputs, row.shapes, row.seconds = row.inputs + 1, len(self.shapes), row.seconds + seconds
        for mismatch in checked.mismatches:
            row = self.rows[mismatch.tier]
            row.mismatches += 1
            if row.mismatches <= _KEPT:
                self.outcome.mismatches.append(mismatch)


__all__ = ["CUDA", "LEAST_SHAPES", "SIMULATOR", "Outcome", "Row", "verify"]
