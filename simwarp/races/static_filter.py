"""Static filter of the race detector: excludes loads that cannot race, before a program runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from simwarp.engine.memory.reach import addresses_of
from simwarp.program.barrier_regions import meeting
from simwarp.program.provenance import ANYTHING, SHARED, Origins, known_origins, symbols_of
from simwarp.ptx.kinds import LOAD
from simwarp.races.access import WEAK, strength
from simwarp.races.stale_reads import CONSTANTS, source_of

if TYPE_CHECKING:
    from simwarp.engine.events import Launch
    from simwarp.memory import Allocation
    from simwarp.program.program import Program, Step

_ORDERS = {"acquire", "release", "acq_rel"}

_Reached: TypeAlias = "set[Allocation] | None"
"""Some allocations; None for all of them."""


class RaceFilter:
    """The loads of a program that can race.

    Parameters
    ----------
    program : Program
    variables : iterable of str
        The variables of the program's module.

    Attributes
    ----------
    loads : set of int
        The numbers of all loads from memory that several threads can write.
    constants : list of Step
        The loads through caches that no write of the launch may reach, before or after (`stale_reads`).
    signals : bool
        Whether threads may synchronise by flags or locks.
    """

    def __init__(self, program: Program, variables: Iterable[str]) -> None:
        sources = [step.source for step in program.steps if step.source is not None]
        steps = [
            step
            for step in (*program.steps, *sources)
            if (step.kind.loads or step.kind.writes) and _is_common(step)
        ]
        self.constants = [step for step in steps if source_of(step) == CONSTANTS]
        self._texels = {step.number for step in program.steps if step.kind.cache}
        loads = [step for step in steps if step.kind.loads and not source_of(step)]
        self.loads = {step.number for step in loads}
        self.signals = any(map(_orders, program.steps))
        self.strong = (
            {step.number for step in loads if strength(step) != WEAK} if self.signals else set[int]()
        )
        self._splits = len(program.routines) == 1
        self._origins = known_origins(program, frozenset(variables))
        stores = [step for step in steps if step.kind.writes]
        in_shared = {step.number for step in loads if self._may_be(step, "shared")}
        shared_stores = {step.number for step in stores if self._may_be(step, "shared")}
        remote = any("remote" in step.row.traits for step in program.steps)
        copies = bool(sources) or program.has_transfers
        anywhere = remote or copies  # a copy writes anywhere between its issue and its wait
        self.meeting = in_shared if anywhere else meeting(program, in_shared, shared_stores)
        self._global_loads = [step for step in loads if self._may_be(step, "global")]
        self._global_stores = [step for step in stores if self._may_be(step, "global")]
        self._frees = any(
            step.call is not None and step.call.function in ("free", "") for step in program.steps
        )

    @classmethod
    def of(cls, launch: Launch) -> RaceFilter:
        """The filter of a launch's program, made at the program's first launch."""
        known = vars(launch.program)
        if "_race_filter" not in known:
            known["_race_filter"] = cls(launch.program, launch.symbols)
        return known["_race_filter"]

    def watched(self, launch: Launch) -> set[int]:
        """The step numbers of the loads that may race in a launch, or acquire a flag."""
        written: _Reached = set()
        for origins in {self._origins[step.number] for step in self._global_stores}:
            more = _reached(launch, origins)
            written = None if written is None or more is None else written | more
        stale = set[int]() if written == set() else self._which_meet(launch, self.constants, written)
        if not self._splits:
            return self.loads | self._texels | stale
        meeting = self._which_meet(launch, self._global_loads, None if self._frees else written)
        return self.meeting | self.strong | self._texels | meeting | stale

    def _which_meet(self, launch: Launch, loads: Iterable[Step], written: _Reached) -> set[int]:
        """The step numbers of the loads that may read an allocation in ``written``."""
        origins = {step.number: self._origins[step.number] for step in loads}
        reached = {one: _reached(launch, one) for one in set(origins.values())}
        return {number for number, one in origins.items() if _meet(reached[one], written)}

    def _may_be(self, step: Step, space: str) -> bool:
        """Whether a step may access ``space``, "shared" or "global"."""
        if step.space != "generic" or not self._splits:
            return step.space in (space, "generic")
        origins = self._origins[step.number]
        if not origins or origins >= ANYTHING:
            return True
        others = len(origins - SHARED) > len(symbols_of(origins)) + len(symbols_of(origins, "frame"))
        return origins >= SHARED if space == "shared" else others


def _is_common(step: Step) -> bool:
    """Whether a step accesses memory that other threads may access."""
    return step.base is not None and step.space in ("global", "shared", "generic")


def _orders(step: Step) -> bool:
    """Whether a step other than a barrier may order accesses of several threads."""
    if step.kind is LOAD and strength(step) != WEAK:
        return True
    return "fence" in step.row.traits or bool(_ORDERS.intersection(step.form.modifiers))


def _meet(one: _Reached, other: _Reached) -> bool:
    """Whether two sets of allocations intersect; None is the set of all."""
    return one is None or other is None or bool(one & other)


def _reached(launch: Launch, origins: Origins) -> _Reached:
    """The allocations that addresses of some origins may point to."""
    if origins >= ANYTHING:
        return None
    found = [launch.memory.find(address) for origin in origins for address in addresses_of(launch, origin)]
    return {allocation for allocation in found if allocation is not None} or None
