"""Mutates programs without changing their outputs, to test a compiler or a scheduler.

A branch becomes a predicate:

>>> from simwarp.lab.fuzz.program import Condition
>>> from simwarp.lab.fuzz.statements import Compute
>>> from simwarp.lab.fuzz.writer import module_text
>>> side = (Compute("not.b32", ("%r0",), ("%r1",)),)
>>> program = Program(0, 0, (If(Condition("data", "%p0"), side),), veiled=False)
>>> (changed,) = predicated(program)
>>> texts = [module_text([one]).splitlines() for one in (program, changed)]
>>> [line.strip() for text in texts for line in text if "not.b32" in line]
['not.b32 %r0, %r1;', '@%q0 not.b32 %r0, %r1;']
>>> add = Compute("add.u32", ("%r0",), ("%r1", "%r2"))
>>> are_independent(add, Compute("not.b32", ("%r3",), ("%r1",)))
True
>>> are_independent(add, Compute("not.b32", ("%r3",), ("%r0",)))
False
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from simwarp.lab.fuzz.maker import Maker, Scope
from simwarp.lab.fuzz.program import Program, Statement, bodies, splice, statements
from simwarp.lab.fuzz.statements import KINDS, DeadBranch, If, Loop
from simwarp.lab.fuzz.vocabulary import Vocabulary, all_rows
from simwarp.verify.draw import Draw

Mutation: TypeAlias = Callable[[Program, Draw, Vocabulary], Program]


def insert_dead(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
    """The program with a branch inserted at a random position; no lane takes the branch."""
    body, put = draw.choice(list(bodies(program, predicated=False)))
    at = draw.integer(0, len(body))
    dead = DeadBranch.draw(Maker(draw, vocabulary, KINDS), Scope(depth=2, block=False))
    return splice(body, at, at, put, (dead,))


def rename(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
    """Rename the registers, and declare them in another order."""
    return replace(program, names=draw.integer(1, 2**31))


def swapped(program: Program) -> Iterator[Program]:
    """Mutants with two independent neighbouring statements swapped."""
    for body, put in bodies(program):
        for i, (one, other) in enumerate(pairwise(body)):
            if are_independent(one, other):
                yield splice(body, i, i + 2, put, (other, one))


def inverted(program: Program) -> Iterator[Program]:
    """Mutants with the condition of an `If` negated and its sides exchanged."""
    for statement, put in statements(program):
        if isinstance(statement, If) and not statement.predicated:
            yield put((statement.inverted(),))


def peeled(program: Program) -> Iterator[Program]:
    """Mutants with one iteration of a loop peeled off."""
    for statement, put in statements(program):
        if isinstance(statement, Loop):
            yield put((replace(statement, peeled=statement.peeled + 1),))


def predicated(program: Program) -> Iterator[Program]:
    """Mutants with an `If` converted from predicates to branches or back."""
    for statement, put in statements(program):
        if isinstance(statement, If) and not statement.otherwise and all(s.flat for s in statement.then):
            yield put((replace(statement, predicated=not statement.predicated),))


def one_of(mutants: Callable[[Program], Iterable[Program]]) -> Mutation:
    """A mutation that draws one of the mutants, or returns the program unchanged if there are none."""

    def change(program: Program, draw: Draw, vocabulary: Vocabulary) -> Program:
        found = list(mutants(program))
        return draw.choice(found) if found else program

    return change


MUTATIONS: dict[str, Mutation] = {
    "dead branch": insert_dead,
    "swap": one_of(swapped),
    "rename": rename,
    "invert": one_of(inverted),
    "peel": one_of(peeled),
    "predicate": one_of(predicated),
}
"""By name, functions that return a program with the same outputs, or the program itself."""


def mutate(program: Program, seed: int = 0, vocabulary: Vocabulary | None = None) -> Program:
    """Apply each mutation to a program, one to three times.

    >>> from simwarp.lab.fuzz import generate
    >>> mutate(generate(0, 3)) == mutate(generate(0, 3)) != generate(0, 3)
    True
    """
    draw = Draw(program.seed, f"mutations {seed}", program.number)
    for change in MUTATIONS.values():
        for _ in range(draw.integer(1, 3)):
            program = change(program, draw, vocabulary or all_rows())
    return program


def unveil(program: Program) -> Program:
    """The program without hiding its results from the compiler, to test the compiler."""
    return replace(program, veiled=False)


def are_independent(one: Statement, other: Statement) -> bool:
    """True if swapping two neighbouring statements cannot change a result."""
    if not (one.flat and other.flat):
        return False
    if one.accesses and other.accesses and "writes" in (one.accesses, other.accesses):
        return False
    (reads, writes), (others_reads, others_writes) = one.touched(), other.touched()
    return not (writes & (others_reads | others_writes) or reads & others_writes)
