"""Other programs with the same outputs: what a compiler or a scheduler must not be impressed by.

Examples
--------
A branch becomes a predicate:

>>> from simwarp.testing.fuzz.program import Compute, Question
>>> from simwarp.testing.fuzz.text import module_text
>>> side = (Compute("not.b32", ("%r0",), ("%r1",)),)
>>> program = Program(0, 0, (If(Question("data", "%p0"), side),), veiled=False)
>>> changed = predicate(program, Draw(0, "doctest", 0), all_rows())
>>> texts = [module_text([one]).splitlines() for one in (program, changed)]
>>> [line.strip() for text in texts for line in text if "not.b32" in line]
['not.b32 %r0, %r1;', '@%q0 not.b32 %r0, %r1;']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from simwarp.testing.fuzz.generate import Maker, Scope
from simwarp.testing.fuzz.program import (
    Atomic,
    Flat,
    If,
    Load,
    Loop,
    Program,
    Statement,
    Store,
)
from simwarp.testing.fuzz.vocabulary import Vocabulary, all_rows
from simwarp.testing.fuzz.walk import Path, edited, lists, touched
from simwarp.verify.draw import Draw


def insert_dead(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
    """A side that no lane takes, somewhere."""
    path, body = draw.choice([(p, b) for p, b in lists(program.body) if not _is_predicated(program, p)])
    at = draw.integer(0, len(body))
    dead = Maker(draw, vocabulary).dead(Scope(depth=2, block=False))
    return replace(program, body=edited(program.body, path, lambda b: (*b[:at], dead, *b[at:])))


def swap(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
    """Two neighbours that do not touch what the other writes, the other way around."""
    pairs = [
        (path, i)
        for path, body in lists(program.body)
        for i in range(len(body) - 1)
        if are_independent(body[i], body[i + 1])
    ]
    if not pairs:
        return program
    path, i = draw.choice(pairs)
    return replace(program, body=edited(program.body, path, lambda b: (*b[:i], b[i + 1], b[i], *b[i + 2 :])))


def rename(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
    """Other names for the registers, declared in another order."""
    return replace(program, names=draw.integer(1, 2**31))


def invert(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
    """An `If` that asks the opposite, its sides exchanged."""

    def turn(found: If) -> If:
        test = replace(found.test, negated=not found.test.negated)
        return replace(found, test=test, then=found.otherwise, otherwise=found.then)

    return _change_one(program, draw, lambda s: isinstance(s, If) and not s.predicated, turn)


def peel(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
    """A round of a loop before the loop."""
    return _change_one(
        program, draw, lambda s: isinstance(s, Loop), lambda loop: replace(loop, peeled=loop.peeled + 1)
    )


def predicate(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
    """Branches instead of predicates, or the other way around."""

    def can_be(statement: Statement) -> bool:
        if not isinstance(statement, If) or statement.otherwise:
            return False
        return all(isinstance(s, Flat) for s in statement.then)

    return _change_one(program, draw, can_be, lambda found: replace(found, predicated=not found.predicated))


MUTATIONS: dict[str, Callable[[Program, Draw, Vocabulary], Program]] = {
    "dead branch": insert_dead,
    "swap": swap,
    "rename": rename,
    "invert": invert,
    "peel": peel,
    "predicate": predicate,
}
"""Each gives a program with the same outputs; the program itself if there is nothing to change."""


def mutate(program: Program, seed: int = 0, vocabulary: Vocabulary | None = None) -> Program:
    """Several mutations, one after the other.

    Examples
    --------
    >>> from simwarp.testing.fuzz import generate
    >>> mutate(generate(0, 3)) == mutate(generate(0, 3)) != generate(0, 3)
    True
    """
    draw = Draw(program.seed, f"mutations {seed}", program.number)
    for change in MUTATIONS.values():
        for _ in range(draw.integer(1, 3)):
            program = change(program, draw, vocabulary or all_rows())
    return program


def unveil(program: Program) -> Program:
    """The program with its results open to the compiler: not for those who ask a simulator.

    Whether a compiler leaves the outputs as they are is a question of its own.

    Examples
    --------
    >>> unveil(Program(0, 0, ())).veiled
    False
    """
    return replace(program, veiled=False)


def are_independent(one: Statement, other: Statement) -> bool:
    """Whether two statements may change places.

    Examples
    --------
    >>> from simwarp.testing.fuzz.program import Compute
    >>> add = Compute("add.u32", ("%r0",), ("%r1", "%r2"))
    >>> are_independent(add, Compute("not.b32", ("%r3",), ("%r1",)))
    True
    >>> are_independent(add, Compute("not.b32", ("%r3",), ("%r0",)))
    False
    """
    if not isinstance(one, Flat) or not isinstance(other, Flat):
        return False
    in_memory = [s for s in (one, other) if isinstance(s, Load | Store | Atomic)]
    if len(in_memory) == 2 and not all(isinstance(s, Load) for s in in_memory):
        return False
    (reads, writes), (others_reads, others_writes) = touched(one), touched(other)
    return not (writes & (others_reads | others_writes) or reads & others_writes)


def _is_predicated(program: Program, path: Path) -> bool:
    """Whether the body at a path stands under a predicate."""
    inner: Any = program.body
    for i, field in path:
        if isinstance(inner[i], If) and inner[i].predicated:
            return True
        inner = getattr(inner[i], field)
    return False


def _change_one(
    program: Program, draw: Draw, fits: Callable[[Statement], bool], change: Callable[[Any], Statement]
) -> Program:
    """The program with one of the statements that fit changed."""
    found = [(p, i) for p, body in lists(program.body) for i, s in enumerate(body) if fits(s)]
    if not found:
        return program
    path, i = draw.choice(found)
    return replace(program, body=edited(program.body, path, lambda b: (*b[:i], change(b[i]), *b[i + 1 :])))
