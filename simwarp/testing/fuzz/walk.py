"""Going through the tree of a program: what is inside what, who executes it, and changes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from simwarp.testing.fuzz.program import (
    SIDES,
    Chain,
    Exchange,
    Handover,
    If,
    Leave,
    Loop,
    Operand,
    Poll,
    Program,
    Statement,
    Switch,
    Sync,
    Tally,
    Warp,
)
from simwarp.testing.fuzz.vocabulary import find

Body: TypeAlias = tuple[Statement, ...]
"""Statements one after the other."""


def bodies(statement: Statement) -> dict[str, Body]:
    """The statements inside a statement, by the field that holds them.

    Examples
    --------
    >>> bodies(Loop(2, (Sync(("bar.warp.sync",)),)))
    {'body': (Sync(opcodes=('bar.warp.sync',)),)}
    """
    return {field: getattr(statement, field) for field in _FIELDS.get(type(statement), ())}


_FIELDS: dict[type, tuple[str, ...]] = {
    If: ("then", "otherwise"),
    Switch: SIDES,
    Loop: ("body",),
    Tally: ("body",),
}


def walk(body: Body, converged: bool = True) -> Iterator[tuple[Statement, bool]]:
    """Every statement, and whether the whole warp is sure to execute it together.

    Examples
    --------
    >>> from simwarp.testing.fuzz.program import Question
    >>> inner = Sync(("bar.warp.sync",))
    >>> [together for _, together in walk((If(Question("lane", 0), (inner,)), inner))]
    [True, False, True]
    """
    for statement in body:
        yield statement, converged
        together = converged
        if isinstance(statement, If):
            together &= statement.test.uniform != "lane"
        elif isinstance(statement, Switch):
            together = False
        elif isinstance(statement, Loop):
            together &= isinstance(statement.trips, int)
        elif isinstance(statement, Leave):
            converged = False
        for inner in bodies(statement).values():
            yield from walk(inner, together)


Path: TypeAlias = tuple[tuple[int, str], ...]
"""Where a body stands: from the program's own inwards, which statement, and which field of it."""


def lists(body: Body, path: Path = ()) -> Iterator[tuple[Path, Body]]:
    """Every body in a body, itself first.

    Examples
    --------
    >>> [path for path, _ in lists((Sync(("bar.warp.sync",)), Loop(2, ())))]
    [(), ((1, 'body'),)]
    """
    yield path, body
    for i, statement in enumerate(body):
        for field, inner in bodies(statement).items():
            yield from lists(inner, (*path, (i, field)))


def edited(body: Body, path: Path, change: Callable[[Body], Body]) -> Body:
    """A body in which the one at ``path`` is changed.

    Examples
    --------
    >>> from simwarp.testing.fuzz.program import Question
    >>> edited((Loop(2, ()),), ((0, "body"),), lambda body: (Leave(Question("lane", 0)),))[0].body
    (Leave(test=Question(kind='lane', what=0, negated=False), opcode='ret'),)
    """
    if not path:
        return change(body)
    (i, field), *rest = path
    statement: Any = body[i]
    inner = edited(getattr(statement, field), tuple(rest), change)
    return (*body[:i], replace(statement, **{field: inner}), *body[i + 1 :])


def names(operand: Operand) -> tuple[str, ...]:
    """The registers in an operand.

    Examples
    --------
    >>> names("!%p0"), names(3), names(("%r0", "%r1"))
    (('%p0',), (), ('%r0', '%r1'))
    """
    if isinstance(operand, tuple):
        return operand
    return (operand.lstrip("!"),) if isinstance(operand, str) and operand else ()


def is_divergent(program: Program) -> bool:
    """Whether lanes of a warp work together where others of it may be elsewhere.

    Examples
    --------
    >>> from simwarp.testing.fuzz.program import Question
    >>> vote = Warp("vote.sync.any.pred", ("%p0",), ("%p1",))
    >>> is_divergent(Program(0, 0, (vote,)))
    False
    >>> is_divergent(Program(0, 0, (If(Question("data", "%p2"), (vote,)),)))
    True
    """
    return any(
        isinstance(statement, Warp | Exchange) and not together for statement, together in walk(program.body)
    )


def touched(statement: Any) -> tuple[set[str], set[str]]:
    """The registers that a statement without others inside reads, and those that it writes.

    Examples
    --------
    >>> from simwarp.testing.fuzz.program import Compute
    >>> touched(Compute("add.u32", ("%r0",), ("%r1", 3)))
    ({'%r1'}, {'%r0'})
    """
    if isinstance(statement, Chain):
        parts = [touched(part) for part in statement.parts]
        return set[str]().union(*(r for r, _ in parts)), set[str]().union(*(w for _, w in parts))
    reads = [names(operand) for operand in getattr(statement, "sources", ())]
    place = getattr(statement, "place", None)
    if place is not None:
        reads.append(names(place.index))
    written = (*getattr(statement, "destinations", ()), getattr(statement, "destination", ""))
    return {n for part in reads for n in part}, {n for operand in written for n in names(operand) if n != "_"}


def meets(statement: Statement) -> bool:
    """Whether all threads of the block must come to a statement, or to one inside of it.

    Examples
    --------
    >>> meets(Loop(2, (Sync(("bar.sync",)),))), meets(Sync(("bar.warp.sync",)))
    (True, False)
    """
    return any(
        isinstance(inner, Tally | Poll | Handover)
        or (isinstance(inner, Exchange) and bool(inner.barrier))
        or (isinstance(inner, Sync) and find(inner.opcodes[0])[0].kind in ("barrier", "cluster barrier"))
        for inner, _ in walk((statement,))
    )
