"""Shrinks a program that fails a test: fewer statements, fewer lanes, simpler operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from simwarp.lab.fuzz.program import Program, bodies, splice, statements


def shrink(program: Program, differs: Callable[[Program], bool], *, trials: int = 600) -> Program:
    """Find a smaller program for which ``differs`` is still true, with at most ``trials`` calls of it.

    Each step first tries to remove as much as possible, and restarts from the program that still differs.
    The result is deterministic.

    >>> from simwarp.lab.fuzz.program import Condition
    >>> from simwarp.lab.fuzz.statements import If, Warp
    >>> from simwarp.lab.fuzz.writer import module_text
    >>> shuffle = Warp("shfl.sync.idx.b32", ("%r0",), ("%r1", 3, 31))
    >>> program = Program(0, 0, (If(Condition("lane", 0), (shuffle, shuffle)), shuffle))
    >>> small = shrink(program, lambda p: "shfl" in module_text([p]))
    >>> small.body == (Warp("shfl.sync.idx.b32", ("%r0",), ("%r0", 0, 0)),)
    True
    """
    smaller = True
    while smaller:
        smaller = False
        for candidates in (_without_statements, _opened, _with_fewer_outputs, _simpler):
            turn, found = 0, True  # a rejected candidate is not tried again after a later success
            while found:
                found = False
                for candidate in islice(candidates(program), turn, None):
                    if not trials:
                        return program
                    trials -= 1
                    if candidate != program and differs(candidate):
                        program, found, smaller = candidate, True, True
                        break
                    turn += 1
    return program


def _without_statements(program: Program) -> Iterator[Program]:
    """The program without consecutive statements: a whole body, half of one, a quarter … a single one."""
    for body, put in bodies(program):
        size = len(body)
        while size:
            for at in range(0, len(body), size):
                yield splice(body, at, at + size, put, ())
            size //= 2


def _opened(program: Program) -> Iterator[Program]:
    """The program with a statement replaced by one of its nested bodies."""
    for statement, put in statements(program):
        yield from map(put, statement.opened())


def _with_fewer_outputs(program: Program) -> Iterator[Program]:
    """The program without outputs, then with each output alone, then without each output."""
    if len(program.outputs) > 1:
        yield replace(program, outputs=())
        for register in program.outputs:
            yield replace(program, outputs=(register,))
        for register in program.outputs:
            yield replace(program, outputs=tuple(r for r in program.outputs if r != register))


def _simpler(program: Program) -> Iterator[Program]:
    """The program with default register names, with one block, with one warp, with one simpler statement."""
    yield replace(program, names=0)
    yield replace(program, blocks=1)
    yield replace(program, block=32)
    for statement, put in statements(program):
        for simpler in statement.simpler():
            yield put((simpler,))
