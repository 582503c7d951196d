"""Circles of modules that import one another, with imports inside functions and under ``TYPE_CHECKING``.

A circle can be understood only as a whole, so it has at most three files: a type that both sides need
belongs into a module below them, as `simwarp.engine.state` does for the engine.
"""

from __future__ import annotations

from collections.abc import Iterable

from meta.test_imports import arrows

MOST = 3
"""Files of a circle."""


def circles(edges: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Sets of modules that all reach one another (Tarjan, SIAM J. Comput. 1, 1972)."""
    below: dict[str, list[str]] = {}
    for source, target in edges:
        below.setdefault(source, []).append(target)
        below.setdefault(target, [])
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in below[module]:
            if other not in number:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            at = path.index(module)
            found.append(set(path[at:]))
            del path[at:]

    for module in below:
        if module not in number:
            visit(module)
    return [circle for circle in found if len(circle) > 1]


def test_no_circle_of_modules_has_more_than_three_files() -> None:
    large = [sorted(circle) for circle in circles(arrows()) if len(circle) > MOST]
    assert not large, "import what both sides need from a module below them (docs/architecture.md)"


def test_a_planted_circle_is_reported() -> None:
    planted = {**arrows(), ("simwarp.lanes", "simwarp.engine.launch"): []}
    (circle,) = (circle for circle in circles(planted) if "simwarp.lanes" in circle)
    assert {"simwarp.engine.launch", "simwarp.engine.operations", "simwarp.engine.memory.accesses"} <= circle


def test_circles_are_found_with_all_their_modules() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("e", "f"), ("a", "f")]
    assert sorted(map(sorted, circles(edges))) == [["a", "b", "c"], ["d", "e"]]
    assert circles([("a", "b"), ("a", "c"), ("b", "c")]) == []
