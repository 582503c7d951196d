"""Many inputs of many cases within a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from simwarp.verify.case import Case
from simwarp.verify.compare import CUDA, SIMULATOR, Devices, Mismatch, check, tiers_of

LEAST_SHAPES = 100
"""A case that tried fewer shapes than this has not been verified."""


@dataclass
class Row:
    """What one tier did for one case."""

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
    interrupted : bool
        Whether it was stopped before its time.
    """

    seed: int
    rows: list[Row] = field(default_factory=list[Row])
    mismatches: list[Mismatch] = field(default_factory=list[Mismatch])
    seconds: float = 0.0
    single: bool = False
    interrupted: bool = False

    @property
    def short(self) -> list[str]:
        """The cases that tried too few shapes."""
        if self.single:
            return []
        return sorted({row.case for row in self.rows if row.shapes < LEAST_SHAPES})

    @property
    def agreed(self) -> bool:
        """Whether every tier agreed on enough shapes."""
        return not any(row.mismatches for row in self.rows) and not self.short and not self.interrupted

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
    progress : callable
        Called with the outcome so far after every input.

    Examples
    --------
    >>> from simwarp.verify import CASES, simulator
    >>> outcome = verify([CASES["bmm"]], {"simulator": simulator}, only_input=2)
    >>> [(row.tier, row.inputs, row.mismatches) for row in outcome.rows]
    [('reference', 1, 0), ('listing', 1, 0), ('simulator', 1, 0)]
    """
    start = time.perf_counter()
    outcome = Outcome(seed, single=only_input is not None)
    chosen = None if tiers is None else set(tiers) | {"reference"}
    runs: list[_Run] = [_Run(case, devices, outcome, chosen) for case in cases]
    for run in runs:
        outcome.rows += run.rows.values()
    try:
        if only_input is not None:
            for run in runs:
                run.one(only_input)
                progress(outcome)
            runs.clear()
        waiting: list[_Run] = runs
        while waiting and time.perf_counter() - start < budget:
            run = min(waiting, key=lambda r: (r.covered, r.seconds))
            run.one(run.next)
            waiting = [r for r in waiting if inputs is None or r.next < inputs]
            outcome.seconds = time.perf_counter() - start
            progress(outcome)
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.seconds = time.perf_counter() - start
    return outcome


_KEPT = 3
"""Mismatches of a case and tier that are kept with all they say; all are counted."""


class _Run:
    """One case on its way."""

    def __init__(self, case: Case, devices: Devices, outcome: Outcome, chosen: set[str] | None) -> None:
        self.case, self.devices, self.outcome = case, devices, outcome
        self.next, self.seconds = 0, 0.0
        self.shapes: set[tuple[int, ...]] = set()
        self.tiers = [t for t in tiers_of(case, devices) if chosen is None or t in chosen]
        self.rows = {tier: Row(case.name, tier) for tier in self.tiers}

    @property
    def covered(self) -> bool:
        """Whether enough shapes and every combination have been tried."""
        return len(self.shapes) >= LEAST_SHAPES and self.next >= self.case.covering

    def one(self, k: int) -> None:
        """Try input ``k``."""
        start = time.perf_counter()
        checked = check(self.case, self.outcome.seed, k, self.devices, self.tiers)
        self.shapes.add(checked.shape)
        for tier, seconds in checked.seconds.items():
            row = self.rows[tier]
            row.inputs, row.shapes, row.seconds = row.inputs + 1, len(self.shapes), row.seconds + seconds
        for mismatch in checked.mismatches:
            row = self.rows[mismatch.tier]
            row.mismatches += 1
            if row.mismatches <= _KEPT:
                self.outcome.mismatches.append(mismatch)
        self.next = k + 1
        self.seconds += time.perf_counter() - start


__all__ = ["CUDA", "LEAST_SHAPES", "SIMULATOR", "Outcome", "Row", "verify"]
