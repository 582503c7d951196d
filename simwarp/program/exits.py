"""Paths to the end of a kernel that avoid every later barrier, or every later warp operation.

Lanes that have exited when others open a barrier either *returned early* or *skipped* it, depending on their
path in the control-flow graph, not on the schedule. Lanes returned early if they left others that can still
reach a barrier and went straight to the end. Lanes that stored something on the way, or reached the end
through another barrier, skipped the barrier that the others wait at.

Writes of a lane to its own stack do not count, since `-G` keeps every variable there. A generic write may be
one, depending on its address: such a step has an edge to the next step, for lanes that write elsewhere.

Source: Aho, Lam, Sethi and Ullman, Compilers (2nd edition), sections 9.2 and 12.2 (reachability across calls
by summaries).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from simwarp.program.graphs import Graph, reachable, reverse
from simwarp.ptx.kinds import BRANCH, EXIT, RETURN, TRAP

if TYPE_CHECKING:
    from simwarp.program.steps import Linked, Step

RETURNS, LEAVES, WORKS = 1, 2, 3
"""The meaning of an edge for lanes that take it: they return early; they leave to do other work; or they
do other work although an earlier edge said that they return early."""

Edges = dict[int, dict[int, int]]
"""Step where lanes diverge → step that they can go to → meaning of that edge."""

_OF_OTHERS = ("global", "shared")
"""State spaces that other threads can read."""


def ways_out(program: Linked, *meets: Callable[[Step], bool]) -> list[Edges]:
    """For each predicate, the branch edges after which a step that satisfies it can no longer be reached."""
    meetings = [{at for at, step in enumerate(program.steps) if one(step)} for one in meets]
    graph = _Graph(program) if any(meetings) else None
    return [_Ways(graph, some).edges() if graph is not None and some else {} for some in meetings]


class _Graph:
    """The control-flow graph of a program, with the steps of its functions.

    Attributes
    ----------
    owner : list of str
        The name of the function that each step belongs to.
    callees : dict of int to list of str
        Call step → the functions that it may call.
    sites : dict of str to list of int
        Function → the steps after its calls.
    """

    def __init__(self, program: Linked) -> None:
        self.steps = program.steps
        self.first = {name: routine.first for name, routine in program.routines.items()}
        self.owner = [program.routine_at(at).name for at in range(len(self.steps))]
        self.callees: dict[int, list[str]] = {}
        self.sites: dict[str, list[int]] = {name: [] for name in self.first}
        functions = [name for name in self.first if name != program.name]
        for at, step in enumerate(self.steps):
            if step.call is not None:
                name, is_known = step.call.function, step.call.address is None
                self.callees[at] = [name] * (name in self.first) if is_known else functions
                for callee in self.callees[at]:
                    self.sites[callee].append(at + 1)

    def ways(self, at: int) -> list[int]:
        """The successors of a step; the number past the last step is the end of the kernel."""
        kind, ways = self.steps[at].kind, self.steps[at].following
        if kind is EXIT:
            ways.append(len(self.steps))
        if kind is RETURN:
            ways += self.sites[self.owner[at]]
        return ways

    @cached_property
    def before(self) -> Graph:
        """The predecessors of each step within its function."""
        return reverse([step.following for step in self.steps])

    def leading_to(self, targets: Iterable[int]) -> set[int]:
        """The steps from which one of ``found`` can be reached within the same function."""
        return reachable(targets, self.before.__getitem__)

    @cached_property
    def comes_back(self) -> set[int]:
        """The steps from which the function's return can be reached."""
        return self.leading_to(at for at, step in enumerate(self.steps) if step.kind is RETURN)

    @cached_property
    def writes(self) -> set[int]:
        """The unpredicated steps that write to memory that other threads can read."""
        return {
            at
            for at, step in enumerate(self.steps)
            if step.kind.writes and step.guard is None and step.space in _OF_OTHERS
        }


class _Ways:
    """Finds the branch edges after which no *meeting* (barrier or warp operation of a set) can be reached."""

    def __init__(self, graph: _Graph, meetings: set[int]) -> None:
        self.graph, self.steps, self.meetings = graph, graph.steps, meetings
        self.reaches = self._reaching()

    def parts(self, at: int) -> bool:
        """Whether lanes can diverge at a step, or return to different callers."""
        step = self.steps[at]
        guarded = step.guard is not None and (
            at in self.meetings or (bool(step.kind.ends) and step.kind is not TRAP)
        )
        return guarded or bool(step.table) or step.kind is RETURN

    # ---- what lies ahead -------------------------------------------------------------------------------

    def _reaching(self) -> list[bool]:
        """For each step, and for the end, whether a meeting can be reached from it."""
        graph, meeting = self.graph, set(self.meetings)
        # a call of a function that contains a meeting counts as a meeting; repeat for its callers
        while True:
            inside = {graph.owner[at] for at in meeting}
            calls = {at for at, names in graph.callees.items() if not inside.isdisjoint(names)}
            if calls <= meeting:
                break
            meeting |= calls
        here, after = graph.leading_to(meeting), set[str]()
        while True:  # a return leads to the steps after each call of the function
            reaches = here | {at for at in graph.comes_back if graph.owner[at] in after}
            returning = {name for name, sites in graph.sites.items() if not reaches.isdisjoint(sites)}
            if returning == after:
                return [at in reaches for at in range(len(self.steps) + 1)]
            after = returning

    def _working(self) -> list[bool]:
        """For each step, and for the end, whether lanes there write something before they can diverge."""
        works, changed = [False] * (len(self.steps) + 1), True
        while changed:
            changed = False
            for at in range(len(self.steps) - 1, -1, -1):
                if not works[at] and self._works(at, works):
                    works[at] = changed = True
        return works

    def _works(self, at: int, works: list[bool]) -> bool:
        """Whether lanes at a step write something before they diverge; ``works``: answers of later steps."""
        graph, step = self.graph, self.steps[at]
        if at in graph.writes:
            return True
        if step.kind is RETURN and step.guard is None:
            sites = graph.sites[graph.owner[at]]
            return bool(sites) and all(works[site] for site in sites)
        if step.kind.ends == "kernel" or self.parts(at):
            return False
        if step.kind is BRANCH:
            return works[step.target]
        if step.call is None or step.call.address is not None:
            return works[at + 1]
        return works[at + 1] or any(works[graph.first[name]] for name in graph.callees[at])

    # ---- the edges -------------------------------------------------------------------------------------

    def edges(self) -> Edges:
        """The edges by which lanes leave for good, and edges behind which they still do other work."""
        leaving = [
            (at, way)
            for at in range(len(self.steps))
            if self.reaches[at] and self.parts(at)
            for way in self.graph.ways(at)
            if not self.reaches[way]
        ]
        if not leaving:
            return {}
        edges, works = Edges(), self._working()
        for at, way in leaving:
            edges.setdefault(at, {})[way] = LEAVES if works[way] else RETURNS
        todo = [way for _, way in leaving if not works[way]]
        seen = {len(self.steps)}
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if self.steps[at].kind.writes and self.steps[at].space == "generic":
                edges.setdefault(at, {})[at + 1] = WORKS
            for way in self._onwards(at):
                if self.parts(at) and works[way]:
                    edges.setdefault(at, {})[way] = WORKS
                else:
                    todo.append(way)
        return edges

    def _onwards(self, at: int) -> list[int]:
        """The successors of a step, entries of called functions included."""
        graph = self.graph
        return [*graph.ways(at), *(graph.first[name] for name in graph.callees.get(at, ()))]
