"""Reconvergence points of branches: their immediate post-dominators in the control-flow graph.

Sources: Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm" (2001), here on the reversed graph;
Fung, Sham, Yuan and Aamodt, "Dynamic warp formation and scheduling" (MICRO 2007), section 3, for its use.

One thing is added: a side that only leads out of the kernel (an early ``return``, a failed ``assert``) is
left out, so that the other lanes do not wait for it. Otherwise one such side would keep the branches around
it from reconverging before the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from simwarp.program.graphs import Graph, reverse
from simwarp.ptx.kinds import BRANCH, CALL, EXIT, RETURN

if TYPE_CHECKING:
    from simwarp.program.steps import Step

_Size = tuple[bool, int]
"""Of a way out: whether lanes wait for others there, and its number of steps."""


def reconvergence(steps: Sequence[Step]) -> dict[int, int]:
    """Step where lanes can diverge → the step where they reconverge."""
    graph = _FlowGraph(steps)
    graph.forget_ways_out()
    above = immediate_dominators(reverse(graph.following), graph.root)
    meets: dict[int, int] = {}
    for block, last in enumerate(graph.last_steps):
        step = steps[last]
        if step.table or (step.guard is not None and step.kind in (BRANCH, RETURN)):
            meets[last] = graph.first_step(above.get(block, graph.root))
    calls = {step.number: step.number + 1 for step in steps if step.kind is CALL}
    return meets | calls


def immediate_dominators(following: Graph, root: int) -> dict[int, int]:
    """The immediate dominator of each node: the last node before it on every path from the root."""
    order = _reverse_postorder(following, root)
    position = {node: i for i, node in enumerate(order)}
    before = reverse(following)
    above = {root: root}

    def common(a: int, b: int) -> int:
        """The closest common dominator of two nodes of the graph."""
        while a != b:
            while position[a] > position[b]:
                a = above[a]
            while position[b] > position[a]:
                b = above[b]
        return a

    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            known = [other for other in before[node] if other in above]
            nearest = known[0]
            for other in known[1:]:
                nearest = common(nearest, other)
            if above.get(node) != nearest:
                above[node], changed = nearest, True
    return {node: above[node] for node in order}


def _reverse_postorder(following: Graph, root: int) -> list[int]:
    """The nodes reachable from the root in reverse postorder of a depth-first search."""
    order: list[int] = []
    seen = {root}
    path = [(root, iter(following[root]))]
    while path:
        node, rest = path[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                path.append((other, iter(following[other])))
                break
        else:
            order.append(node)
            path.pop()
    return order[::-1]


class _FlowGraph:
    """The control-flow graph: a program's basic blocks, and end nodes for exit, for return and for both.

    Attributes
    ----------
    last_steps : list of int
        The last step of each block.
    following : list of list of int
        The successors of each block or node.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self._firsts = _first_steps(steps)
        count = len(self._firsts)
        self.exit, self.back, self.root = count, count + 1, count + 2
        self.last_steps = [first - 1 for first in (*self._firsts[1:], len(steps))]
        block = {first: number for number, first in enumerate(self._firsts)}
        self.following: Graph = [
            list(dict.fromkeys(block.get(at, self.exit) for at in self._ways(last)))
            for last in self.last_steps
        ]
        for number, last in enumerate(self.last_steps):
            if steps[last].kind is RETURN:
                self.following[number].append(self.back)
        self.following += [[self.root], [self.root], []]

    def first_step(self, node: int) -> int:
        """The first step of a block; one past the last step for the other nodes."""
        return self._firsts[node] if node < len(self._firsts) else len(self.steps)

    def _ways(self, at: int) -> Iterable[int]:
        """The successors of a step; one past the last step stands for an exit."""
        step = self.steps[at]
        ways = [*step.following, *([len(self.steps)] if step.kind is EXIT else [])]
        return [len(self.steps) if self._is_exit(way) else way for way in ways]

    def _is_exit(self, at: int) -> bool:
        """Whether a step ends the kernel for all lanes that reach it."""
        return at < len(self.steps) and self.steps[at].kind is EXIT and self.steps[at].guard is None

    def forget_ways_out(self) -> None:
        """Remove edges to early exits, smallest region first; each block keeps at least one edge."""
        before, ways_out = reverse(self.following), list[tuple[_Size, int, int]]()
        for block, ways in enumerate(self.following):
            regions = [(self._way_out(block, way, before), way) for way in ways if len(ways) > 1]
            ways_out += [(self._size(region), block, way) for region, way in regions if region is not None]
        for _, block, way in sorted(ways_out):
            self.following[block].remove(way)
            if self.root not in _reverse_postorder(self.following, block):
                self.following[block].append(way)

    def _way_out(self, block: int, way: int, before: Graph) -> set[int] | None:
        """The blocks behind an edge if they all lead to an exit and have no other entry; else None."""
        region, pending = {way} - {self.exit}, [way]
        while pending:
            node = pending.pop()
            if node == block:
                return None
            if node != self.exit:
                new = [other for other in self.following[node] if other not in region]
                region.update(other for other in new if other != self.exit)
                pending += new
        # A return is not a way out: it leads to the root. So does the exit, which is not in the region.
        entered = [(other, node) for node in region for other in before[node] if other not in region]
        return region if entered in ([], [(block, way)]) else None

    def _size(self, region: set[int]) -> _Size:
        """The sort key of a region that leads to an exit: its size."""
        steps = [s for b in region for s in self.steps[self._firsts[b] : self.last_steps[b] + 1]]
        return any(step.kind.together for step in steps), len(steps)


def _first_steps(steps: Sequence[Step]) -> list[int]:
    """The number of the first step of each basic block, ascending."""
    firsts = {0}
    for at, step in enumerate(steps):
        if step.kind.ends:
            firsts.add(at + 1)
            firsts.update((step.target,) if step.kind is BRANCH else step.table)
    return sorted(first for first in firsts if first < len(steps))
