"""The run of the harness: inputs of all cases in turn, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reference.errors import SchemeError
from reference.values import shortened
from simwarp.verify.case import Case
from simwarp.verify.compare import CUDA, SIMULATOR, Checked, Devices, Mismatch, check, tiers_of
from simwarp.verify.processes import started

LEAST_SHAPES = 100
"""A case is verified only after it has run at least as many distinct shapes."""


@shortened
@dataclass
class Row:
    """The counts of inputs, shapes and mismatches of one tier for one case.

    Attributes
    ----------
    case, tier : str
    inputs, shapes, mismatches : int
        The numbers of inputs, distinct shapes and mismatches.
    seconds : float
        The time of the tier.
    """

    case: str
    tier: str
    inputs: int = 0
    shapes: int = 0
    mismatches: int = 0
    seconds: float = 0.0


@shortened
@dataclass
class Outcome:
    """The result of a run of ``simwarp verify``.

    Attributes
    ----------
    rows : list of Row
    mismatches : list of Mismatch
        The first three of each case and tier.
    seconds : float
        The wall time; the seconds of a row are summed over the processes.
    single : bool
        Whether only one input was requested.
    interrupted : bool
        Whether the run was stopped by Ctrl-C.
    wanted : dict of str to int
        The number of inputs that were requested, by case.
    """

    seed: int
    rows: list[Row] = field(default_factory=list[Row])
    mismatches: list[Mismatch] = field(default_factory=list[Mismatch])
    seconds: float = 0.0
    single: bool = False
    interrupted: bool = False
    wanted: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def short(self) -> list[str]:
        """The cases that ran too few shapes, or fewer inputs than requested if those are fewer."""
        if self.single:
            return []
        return sorted({row.case for row in self.rows if self._tried(row) < self._least(row.case)})

    @property
    def few(self) -> int | None:
        """The least number of inputs requested for a case, if it is below `LEAST_SHAPES`; else None."""
        least = min(map(self._least, self.wanted), default=LEAST_SHAPES)
        return least if least < LEAST_SHAPES else None

    @property
    def used_up(self) -> bool:
        """Whether every requested input of every case has been run."""
        return all(row.case in self.wanted and row.inputs >= self.wanted[row.case] for row in self.rows)

    def _least(self, case: str) -> int:
        """The inputs, or from `LEAST_SHAPES` on the shapes, that a case must try."""
        return min(self.wanted.get(case, LEAST_SHAPES), LEAST_SHAPES)

    def _tried(self, row: Row) -> int:
        return row.inputs if self._least(row.case) < LEAST_SHAPES else row.shapes

    @property
    def agreed(self) -> bool:
        """True if all tiers agreed, on enough shapes, and the run was not interrupted."""
        return not any(row.mismatches for row in self.rows) and not self.short and not self.interrupted

    def sort(self) -> None:
        """Sort the mismatches by case, input and tier."""
        cases, tiers = [row.case for row in self.rows], [(row.case, row.tier) for row in self.rows]
        self.mismatches.sort(key=lambda m: (cases.index(m.case), m.input, tiers.index((m.case, m.tier))))

    def to_json(self) -> dict[str, Any]:
        """Convert the outcome to plain data, in the format of docs/verify.md.

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
    inputs: int | Mapping[str, int] | None = None,
    tiers: Iterable[str] | None = None,
    processes: int = 1,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Run inputs of all cases in turn until the time is over.

    Parameters
    ----------
    cases : iterable of Case
    devices : mapping of tier to a function that makes its device
    seed : int
    budget : float
        The time for all cases together, in seconds. The next case is that with the least time so far;
        cases that have not yet covered enough shapes and all combinations come first.
    only_input : int, optional
        Run only this input of each case.
    inputs : int or mapping of str to int, optional
        The number of inputs after which a case stops, even if there is time left: of each case, or by case.
    tiers : iterable of str, optional
        Run only these, and the reference.
    processes : int
        The number of processes that run inputs in parallel; it does not change the result. Use one for a
        CUDA device, which processes cannot share.
    progress : callable
        Called with the outcome so far, after every input or, with several processes, four times a second.

    Raises
    ------
    SchemeError
        If two cases have one name, as cases without a name whose kernels' functions are called the same.

    Examples
    --------
    >>> from simwarp.verify import CASES, simulator
    >>> outcome = verify([CASES["bmm"]], {"simulator": simulator}, only_input=2)
    >>> [(row.tier, row.inputs, row.mismatches) for row in outcome.rows]
    [('reference', 1, 0), ('listing', 1, 0), ('simulator', 1, 0)]
    """
    start, cases = time.perf_counter(), list(cases)
    _check_names(cases)
    wanted = {case.name: inputs for case in cases} if isinstance(inputs, int) else dict(inputs or {})
    outcome = Outcome(seed, single=only_input is not None, wanted=wanted)
    chosen = None if tiers is None else set(tiers) | {"reference"}
    runs = [_Run(case, devices, outcome, chosen) for case in cases]
    for run in runs:
        outcome.rows += run.rows.values()

    def tell() -> None:
        outcome.seconds = time.perf_counter() - start
        progress(outcome)

    def following() -> _Run | None:
        """The case to run next; None when all are done or the time is over."""
        waiting = [run for run in runs if run.next < wanted.get(run.case.name, run.next + 1)]
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


def _check_names(cases: Sequence[Case]) -> None:
    """Raise SchemeError for two cases of one name, by which counts and replays tell them apart."""
    known: set[str] = set()
    for case in cases:
        if case.name in known:
            unnamed = "" if case.named else ", the name of its kernel's function"
            raise SchemeError(
                f"verify: two cases are called {case.name!r}{unnamed}\n"
                "inputs are counted and replayed by the name of their case\n"
                "name each: Case.of(…, name=…)"
            )
        known.add(case.name)


def _side_by_side(
    runs: Sequence[_Run], processes: int, following: Callable[[], _Run | None], tell: Callable[[], None]
) -> None:
    """Run inputs on several processes, and count the results in order, as one process would."""
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
"""Seconds between two reports of progress."""

_KEPT = 3
"""The number of mismatches of a case and tier that are kept; all are counted."""


class _Run:
    """The state of one case in a run; `next` is the first input that has not been started."""

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
        """True if enough shapes and every combination have been run."""
        return len(self.shapes) >= LEAST_SHAPES and self.next >= self.case.covering

    def ask(self, k: int) -> tuple[Checked, float]:
        """Run input ``k``; return its result and the seconds that it took."""
        start = time.perf_counter()
        checked = check(self.case, self.outcome.seed, k, self.devices, self.tiers)
        return checked, time.perf_counter() - start

    def take(self, k: int, checked: Checked, seconds: float) -> None:
        """Add an input to the counts, after all inputs before it."""
        self.seconds += seconds
        if self.outcome.single:
            self._count(checked)
            return
        self._early[k] = checked
        while self._counted in self._early:
            self._count(self._early.pop(self._counted))
            self._counted += 1

    def _count(self, checked: Checked) -> None:
        """Add an input to the counts of all tiers."""
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
