"""Directed graphs: the nodes reachable from some nodes, and the edges reversed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Graph: TypeAlias = list[list[int]]
"""For each node its successors."""


def reachable(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> set[T]:
    """The nodes reachable from ``starts``, including these; ``following`` gives a node's successors."""
    todo, seen = list(starts), set[T]()
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += following(node)
    return seen


def reverse(following: Sequence[Iterable[int]]) -> Graph:
    """The predecessors of each node, ascending, given its successors."""
    before: Graph = [[] for _ in following]
    for node, others in enumerate(following):
        for other in others:
            before[other].append(node)
    return before
