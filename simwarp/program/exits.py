"""The ways out of a kernel that lead past every barrier, or past every operation of a warp.

Lanes that are gone when others open a barrier have either *returned early* or *skipped* it, depending on
their path in the control-flow graph, not on the schedule. Lanes that part from others which may still come to
a barrier, and go straight to the end, returned early. Lanes that store something on the way, or reach the end
through another barrier, skipped the one that the others wait at.

Writes of a lane to its own stack do not count: `-G` keeps every variable there. A generic write may be one,
depending on its address: such a step is an edge to the next one, for lanes that write elsewhere.

Source: Aho, Lam, Sethi and Ullman, Compilers (2nd edition), sections 9.2 and 12.2 (reachability across calls
by summaries).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from simwarp.ptx.rows import ENDS_BLOCK, WRITES

if TYPE_CHECKING:
    from simwarp.program.program import Program, Step

RETURNS, LEAVES, WORKS = 1, 2, 3
"""The meaning of an edge for the lanes that take it: they return early; they leave to do other work; or they
do other work after all, having seemed to return early, also behind a generic write that is not to local
memory."""

Edges = dict[int, dict[int, int]]
"""For each step where lanes part, the steps that they can go to, and the meaning of each."""

_OF_OTHERS = ("global", "shared")
"""State spaces that others can read."""
_PARTS = ENDS_BLOCK - {"trap"}


def ways_out(program: Program, *meets: Callable[[Step], bool]) -> list[Edges]:
    """The edges by which lanes leave for good all steps from which a meeting can be reached."""
    meetings = [{at for at, step in enumerate(program.steps) if one(step)} for one in meets]
    graph = _Graph(program) if any(meetings) else None
    return [_Ways(graph, some).edges() if graph is not None and some else {} for some in meetings]


class _Graph:
    """Which step can come behind which, functions included.

    Attributes
    ----------
    owner : list of str
        The function that each step belongs to.
    callees : dict of int to list of str
        For each call the functions that it may reach.
    sites : dict of str to list of int
        The steps behind the calls of each function.
    """

    def __init__(self, program: Program) -> None:
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
        """The steps that lanes can part to; one past the last step stands for the end of the kernel."""
        kind, ways = self.steps[at].kind, self.steps[at].following
        if kind == "exit":
            ways.append(len(self.steps))
        if kind == "return":
            ways += self.sites[self.owner[at]]
        return ways

    @cached_property
    def before(self) -> list[list[int]]:
        """For each step those of the same function that it can come behind."""
        before: list[list[int]] = [[] for _ in self.steps]
        for at, step in enumerate(self.steps):
            for other in step.following:
                before[other].append(at)
        return before

    def leading_to(self, found: Iterable[int]) -> set[int]:
        """The steps from which one of those found can be reached within its function."""
        reached = set(found)
        todo = list(reached)
        while todo:
            new = [at for at in self.before[todo.pop()] if at not in reached]
            reached.update(new)
            todo += new
        return reached

    @cached_property
    def comes_back(self) -> set[int]:
        """The steps from which a function can return."""
        return self.leading_to(at for at, step in enumerate(self.steps) if step.kind == "return")

    @cached_property
    def writes(self) -> set[int]:
        """The steps that write to memory that others can read, without a predicate."""
        return {
            at
            for at, step in enumerate(self.steps)
            if step.kind in WRITES and step.guard is None and step.space in _OF_OTHERS
        }


class _Ways:
    def __init__(self, graph: _Graph, meetings: set[int]) -> None:
        self.graph, self.steps, self.meetings = graph, graph.steps, meetings
        self.reaches = self._reaching()

    def parts(self, at: int) -> bool:
        """Whether lanes can go different ways from a step, or come back to different ones."""
        step = self.steps[at]
        guarded = step.guard is not None and (step.kind in _PARTS or at in self.meetings)
        return guarded or bool(step.table) or step.kind == "return"

    # ---- what lies ahead -------------------------------------------------------------------------------

    def _reaching(self) -> list[bool]:
        """For each step whether lanes may come to a meeting from it; one more for the end."""
        graph, meeting = self.graph, set(self.meetings)
        while True:  # a call of a function with a meeting is one
            inside = {graph.owner[at] for at in meeting}
            calls = {at for at, names in graph.callees.items() if not inside.isdisjoint(names)}
            if calls <= meeting:
                break
            meeting |= calls
        here, after = graph.leading_to(meeting), set[str]()
        while True:  # behind a return come the steps behind the call
            reaches = here | {at for at in graph.comes_back if graph.owner[at] in after}
            found = {name for name, sites in graph.sites.items() if not reaches.isdisjoint(sites)}
            if found == after:
                return [at in reaches for at in range(len(self.steps) + 1)]
            after = found

    def _working(self) -> list[bool]:
        """For each step whether lanes write something before they can part again; one more for the end."""
        works, changed = [False] * (len(self.steps) + 1), True
        while changed:
            changed = False
            for at in range(len(self.steps) - 1, -1, -1):
                if not works[at] and self._works(at, works):
                    works[at] = changed = True
        return works

    def _works(self, at: int, works: list[bool]) -> bool:
        graph, step = self.graph, self.steps[at]
        if at in graph.writes:
            return True
        if step.kind == "return" and step.guard is None:
            sites = graph.sites[graph.owner[at]]
            return bool(sites) and all(works[site] for site in sites)
        if step.kind in ("exit", "trap") or self.parts(at):
            return False
        if step.kind == "branch":
            return works[step.target]
        if step.call is None or step.call.address is not None:
            return works[at + 1]
        return works[at + 1] or any(works[graph.first[name]] for name in graph.callees[at])

    # ---- the edges -------------------------------------------------------------------------------------

    def edges(self) -> Edges:
        """The meaning of each way for the lanes that take it."""
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
            if self.steps[at].kind in WRITES and self.steps[at].space == "generic":
                edges.setdefault(at, {})[at + 1] = WORKS
            for way in self._onwards(at):
                if self.parts(at) and works[way]:
                    edges.setdefault(at, {})[way] = WORKS
                else:
                    todo.append(way)
        return edges

    def _onwards(self, at: int) -> list[int]:
        graph = self.graph
        return [*graph.ways(at), *(graph.first[name] for name in graph.callees.get(at, ()))]
