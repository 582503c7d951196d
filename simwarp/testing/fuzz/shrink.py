"""A program that differs, made small: fewer statements, fewer lanes, plainer operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from simwarp.testing.fuzz.program import (
    CLASS,
    POOLS,
    SIDES,
    Atomic,
    Chain,
    Compute,
    If,
    Leave,
    Loop,
    Operand,
    Program,
    Statement,
    Switch,
    Tally,
    Warp,
)
from simwarp.testing.fuzz.walk import Body, edited, lists


def shrink(program: Program, differs: Callable[[Program], bool], *, trials: int = 600) -> Program:
    """A smaller program that still differs.

    Each step tries what would take most away first, and starts again with what still differs. The
    same program and the same answers give the same result.

    Parameters
    ----------
    program : Program
    differs : callable
        (program) → bool; holds for ``program``.
    trials : int
        How often ``differs`` is asked, at most.

    Examples
    --------
    >>> from simwarp.testing.fuzz.program import Question
    >>> from simwarp.testing.fuzz.text import module_text
    >>> shuffle = Warp("shfl.sync.idx.b32", ("%r0",), ("%r1", 3, 31))
    >>> program = Program(0, 0, (If(Question("lane", 0), (shuffle, shuffle)), shuffle))
    >>> small = shrink(program, lambda p: "shfl" in module_text([p]))
    >>> small.body == (Warp("shfl.sync.idx.b32", ("%r0",), ("%r0", 0, 0)),)
    True
    """
    smaller = True
    while smaller:
        smaller = False
        for candidates in (_without_statements, _opened, _plainer, _fewer_outputs, _simpler_operands):
            turn = 0
            while trials:  # what was refused is not tried again after a success further on
                candidate = next(_from(candidates(program), turn), None)
                if candidate is None:
                    break
                trials -= 1
                if candidate != program and differs(candidate):
                    program, smaller = candidate, True
                else:
                    turn += 1
    return program


def _from(candidates: Iterator[Program], turn: int) -> Iterator[Program]:
    """The candidates from one on."""
    for i, candidate in enumerate(candidates):
        if i >= turn:
            yield candidate


def _with_body(program: Program, body: Body) -> Program:
    return replace(program, body=body)


def _without_statements(program: Program) -> Iterator[Program]:
    """Without some statements in a row: half of a body, a quarter … each one."""
    for path, body in lists(program.body):
        size = len(body)
        while size:
            for at in range(0, len(body), size):
                yield _with_body(
                    program,
                    edited(program.body, path, lambda b, at=at, size=size: (*b[:at], *b[at + size :])),
                )
            size //= 2


def _opened(program: Program) -> Iterator[Program]:
    """A statement replaced by what is inside of it."""
    for path, body in lists(program.body):
        for i, statement in enumerate(body):
            for inside in _insides(statement):
                yield _with_body(
                    program,
                    edited(program.body, path, lambda b, i=i, new=inside: (*b[:i], *new, *b[i + 1 :])),
                )


def _insides(statement: Statement) -> list[Body]:
    match statement:
        case If(test=test, then=then, otherwise=otherwise):
            if test.kind == "never":  # the other side may end in a trap
                return [then if test.negated else otherwise]
            return [then, otherwise]
        case Switch():
            return [getattr(statement, side) for side in SIDES]
        case Loop(body=body):
            return [body]
        case Tally(body=body):
            return [_without_tally(body)]
        case _:
            return []


def _without_tally(body: Body) -> Body:
    """What a tally's body does besides updating the tally."""
    for path, _ in reversed(list(lists(body))):
        body = edited(body, path, lambda b: tuple(s for s in b if not _is_update(s)))
    return body


def _is_update(statement: Statement) -> bool:
    return isinstance(statement, Atomic) and statement.place.region == "tally"


def _plainer(program: Program) -> Iterator[Program]:
    """Fewer blocks, fewer warps, and statements without what they can do without."""
    yield replace(program, names=0)
    yield replace(program, blocks=1)
    yield replace(program, block=32)
    for path, body in lists(program.body):
        for i, statement in enumerate(body):
            for plain in _plain(statement):
                yield _with_body(
                    program,
                    edited(program.body, path, lambda b, i=i, new=plain: (*b[:i], new, *b[i + 1 :])),
                )


def _plain(statement: Statement) -> Iterator[Statement]:
    match statement:
        case If(test=test):
            if statement.predicated:
                yield replace(statement, predicated=False)
            if test.negated:
                turned = replace(test, negated=False)
                then, otherwise = statement.otherwise, statement.then
                yield replace(statement, test=turned, then=then, otherwise=otherwise, predicated=False)
        case Loop(trips=trips):
            yield replace(statement, peeled=0)
            if trips != 1:
                yield replace(statement, trips=1)
        case Chain(parts=parts):
            for i in range(1, len(parts) - 1):
                yield Chain((*parts[:i], *parts[i + 1 :]))
        case Leave() if statement.opcode != "ret":
            yield replace(statement, opcode="ret")
        case _:
            return


def _fewer_outputs(program: Program) -> Iterator[Program]:
    """Outputs: one alone, or without one."""
    if len(program.outputs) > 1:
        yield replace(program, outputs=())
        for register in program.outputs:
            yield replace(program, outputs=(register,))
        for register in program.outputs:
            yield replace(program, outputs=tuple(r for r in program.outputs if r != register))


def _simpler_operands(program: Program) -> Iterator[Program]:
    """Small numbers instead of others, and the first register of a class instead of another."""
    for path, body in lists(program.body):
        for i, statement in enumerate(body):
            for simple in _simple(statement):
                yield _with_body(
                    program,
                    edited(program.body, path, lambda b, i=i, new=simple: (*b[:i], new, *b[i + 1 :])),
                )


def _simple(statement: Any) -> Iterator[Statement]:
    if isinstance(statement, Chain):
        for i, part in enumerate(statement.parts):
            for simple in _simple(part):
                yield replace(statement, parts=(*statement.parts[:i], simple, *statement.parts[i + 1 :]))
        return
    place = getattr(statement, "place", None)
    if place is not None and place.index and place.region not in ("tallies", "tally"):
        yield replace(statement, place=replace(place, index=""))
    if isinstance(statement, Compute | Warp):
        for i, operand in enumerate(statement.sources):
            for simple in _simpler(operand):
                sources = (*statement.sources[:i], simple, *statement.sources[i + 1 :])
                yield replace(statement, sources=sources)


def _simpler(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, int):
        yield from [n for n in (0, 1, operand >> 1) if n < operand]
    elif operand in CLASS:
        name: Any = operand
        yield from [other for other in POOLS[CLASS[name]][:1] if other != name]
