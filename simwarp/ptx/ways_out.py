"""The ways out of a kernel that lead past every barrier, or past every operation of a warp.

Lanes that are gone when others open a barrier have either *returned early* or *skipped* it. The edges of the
control-flow graph tell: who parts from lanes that may still come to a barrier, and from there goes straight
to the end, returned early; who stores something on the way, or came to the end through another barrier,
skipped the one that the others wait at. Paths decide, not who ran first.

What a lane writes to its own stack counts for nothing: `-G` keeps every variable there.

Source: Aho, Lam, Sethi and Ullman, Compilers (2nd edition), sections 9.2 and 12.2 (reachability across calls
by summaries).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from simwarp.ptx.syntax import Address, Register

if TYPE_CHECKING:
    from simwarp.ptx.program import Routine, Step

RETURNS, LEAVES, WORKS = 1, 2, 3
"""What an edge tells of the lanes that take it: they return early, they leave to do something else, or they
do something after all, having seemed to return early."""

Edges = dict[int, dict[int, int]]
"""For each step where lanes part, the steps that they can go to and what that tells."""

_WRITES = ("store", "atomic", "reduction", "matrix store")
_PARTS = ("branch", "indexed branch", "exit", "return")


def ways_out(steps: Sequence[Step], routines: Iterable[Routine], meets: Callable[[Step], bool]) -> Edges:
    """The edges by which lanes leave for good all steps from which a meeting can be reached.

    Parameters
    ----------
    steps : sequence of Step
        Of a kernel and its device functions.
    routines : iterable of Routine
        These functions.
    meets : callable
        Whether lanes wait for others at a step.

    Examples
    --------
    Step 0 leads to the end, step 1 to a store:

    >>> from simwarp.ptx.link import link
    >>> from simwarp.ptx.parse import parse
    >>> module = parse('''.version 9.0 .target sm_90
    ... .entry k() { .reg .pred %p, %q; .reg .b64 %a; mov.b64 %a, 0;
    ...     @%p bra END; @%q bra OTHER;
    ...     bar.sync 0; bra END;
    ...     OTHER: st.global.u32 [%a], 1;
    ...     END: ret; }''')
    >>> program = link(module, module.entries["k"])
    >>> ways_out(program.steps, program.routines.values(), lambda step: step.kind == "barrier")
    {1: {6: 1}, 2: {5: 2}}
    """
    if not any(map(meets, steps)):
        return {}
    return _Ways(steps, routines, meets).edges()


class _Ways:
    def __init__(
        self, steps: Sequence[Step], routines: Iterable[Routine], meets: Callable[[Step], bool]
    ) -> None:
        self.steps, self.meets = steps, meets
        self.routines = sorted(routines, key=lambda routine: routine.first)
        self.named = {routine.name: routine for routine in self.routines}
        self.firsts = [routine.first for routine in self.routines]
        self.sites = self._sites()
        self.reaches = self._reaching()

    # ---- the graph -------------------------------------------------------------------------------------

    def owner(self, at: int) -> Routine:
        """The function that a step belongs to."""
        return self.routines[bisect_right(self.firsts, at) - 1]

    def callees(self, step: Step) -> list[Routine]:
        """The functions that a call may reach."""
        if step.call is None:
            return []
        if step.call.address is not None:
            return self.routines[:-1]  # the kernel stands behind its functions
        found = self.named.get(step.call.function)
        return [] if found is None else [found]

    def _sites(self) -> dict[str, list[int]]:
        """The steps behind the calls of each function."""
        sites: dict[str, list[int]] = {routine.name: [] for routine in self.routines}
        for at, step in enumerate(self.steps):
            for routine in self.callees(step):
                sites[routine.name].append(at + 1)
        return sites

    def within(self, at: int) -> list[int]:
        """The steps of the same function that can come next."""
        step = self.steps[at]
        ways = [*((step.target,) if step.kind == "branch" else ()), *step.table]
        if step.guard is not None or step.kind not in (*_PARTS, "trap"):
            ways.append(at + 1)
        return ways

    def ways(self, at: int) -> list[int]:
        """The steps that lanes can part to; one past the last step stands for the end of the kernel."""
        step = self.steps[at]
        ways = self.within(at)
        if step.kind == "exit":
            ways.append(len(self.steps))
        if step.kind == "return":
            ways += self.sites[self.owner(at).name]
        return ways

    def parts(self, step: Step) -> bool:
        """Whether lanes can go different ways from a step, or come back to different ones."""
        guarded = step.guard is not None and (step.kind in _PARTS or self.meets(step))
        return guarded or bool(step.table) or step.kind == "return"

    # ---- what lies ahead -------------------------------------------------------------------------------

    def _reaching(self) -> list[bool]:
        """For each step whether lanes may come to a meeting from it; one more for the end."""
        inside: set[str] = set()
        """The functions with a meeting, in themselves or in what they call."""
        while True:
            found = {
                self.owner(at).name
                for at, step in enumerate(self.steps)
                if self.meets(step) or any(routine.name in inside for routine in self.callees(step))
            }
            if found == inside:
                break
            inside = found
        meeting = [
            self.meets(step) or any(routine.name in inside for routine in self.callees(step))
            for step in self.steps
        ]
        comes_back = self._backwards([step.kind == "return" for step in self.steps])
        here, after = self._backwards(meeting), set[str]()
        while True:
            reaches = [
                here[at] or (comes_back[at] and self.owner(at).name in after) for at in range(len(self.steps))
            ]
            found = {name for name, sites in self.sites.items() if any(reaches[site] for site in sites)}
            if found == after:
                return [*reaches, False]
            after = found

    def _backwards(self, found: list[bool]) -> list[bool]:
        """The steps from which one of those found can be reached within a function."""
        before: list[list[int]] = [[] for _ in self.steps]
        for at in range(len(self.steps)):
            for other in self.within(at):
                before[other].append(at)
        reached, todo = list(found), [at for at, one in enumerate(found) if one]
        while todo:
            for at in before[todo.pop()]:
                if not reached[at]:
                    reached[at] = True
                    todo.append(at)
        return reached

    def _working(self) -> list[bool]:
        """For each step whether lanes write something before they can part again; one more for the end."""
        private = _private_registers(self.steps, self.owner)
        works, changed = [False] * (len(self.steps) + 1), True
        while changed:
            changed = False
            for at in range(len(self.steps) - 1, -1, -1):
                if not works[at] and self._works(at, works, private):
                    works[at] = changed = True
        return works

    def _works(self, at: int, works: list[bool], private: set[tuple[int, str]]) -> bool:
        step = self.steps[at]
        if step.kind in _WRITES and step.guard is None and not self._is_private(at, private):
            return True
        if step.kind == "return" and step.guard is None:
            sites = self.sites[self.owner(at).name]
            return bool(sites) and all(works[site] for site in sites)
        if self.parts(step) or step.kind in ("exit", "trap"):
            return False
        if step.kind == "branch":
            return works[step.target]
        called = self.callees(step) if step.call is not None and step.call.address is None else []
        return works[at + 1] or any(works[routine.first] for routine in called)

    def _is_private(self, at: int, private: set[tuple[int, str]]) -> bool:
        """Whether a write goes to the lane's own memory."""
        step = self.steps[at]
        if step.space in ("local", "param"):
            return True
        return step.space == "generic" and any(
            isinstance(operand, Address)
            and isinstance(operand.base, Register)
            and (self.owner(at).first, operand.base.name) in private
            for operand in step.instruction.operands
        )

    # ---- the edges -------------------------------------------------------------------------------------

    def edges(self) -> Edges:
        """What each way tells of those who go it."""
        leaving = [
            (at, way)
            for at, step in enumerate(self.steps)
            if self.reaches[at] and self.parts(step)
            for way in self.ways(at)
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
            for way in self._onwards(at):
                if self.parts(self.steps[at]) and works[way]:
                    edges.setdefault(at, {})[way] = WORKS
                else:
                    todo.append(way)
        return edges

    def _onwards(self, at: int) -> list[int]:
        return [*self.ways(at), *(routine.first for routine in self.callees(self.steps[at]))]


def _private_registers(steps: Sequence[Step], owner: Callable[[int], Routine]) -> set[tuple[int, str]]:
    """The registers that hold addresses of the lane's own stack, each with the first step of its function."""
    definitions: dict[tuple[int, str], list[int]] = {}
    for at, step in enumerate(steps):
        operands = step.instruction.operands
        if step.row.destinations and operands and isinstance(operands[0], Register):
            definitions.setdefault((owner(at).first, operands[0].name), []).append(at)
    private = set(definitions)
    while True:
        others = [
            key
            for key in private
            if not all(_is_own_address(steps[at], key[0], private) for at in definitions[key])
        ]
        if not others:
            return private
        private.difference_update(others)


def _is_own_address(step: Step, function: int, private: set[tuple[int, str]]) -> bool:
    opcode, operands = step.instruction.opcode.split("."), step.instruction.operands
    if opcode[:2] == ["cvta", "local"]:
        return True
    return opcode[0] in ("mov", "add", "sub") and any(_is_in(o, function, private) for o in operands[1:])


def _is_in(operand: object, function: int, private: set[tuple[int, str]]) -> bool:
    return isinstance(operand, Register) and (function, operand.name) in private
