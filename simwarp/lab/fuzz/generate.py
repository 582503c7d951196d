"""Generation of random programs; seed and number determine each, and scheduling cannot change its results."""

from __future__ import annotations

from dataclasses import replace

from simwarp.lab.fuzz.maker import Maker, Scope
from simwarp.lab.fuzz.program import Program, is_divergent, needs_block
from simwarp.lab.fuzz.statements import KINDS, Exit, If, Warp
from simwarp.lab.fuzz.vocabulary import Vocabulary, all_rows
from simwarp.verify.draw import Draw

VERSION = 1
"""The version of the generator, which with seed, number and vocabulary determines a program."""


def generate(seed: int, number: int, vocabulary: Vocabulary | None = None) -> Program:
    """Generate program ``number`` of a seed, by default with the opcodes of all rows that programs can use.

    >>> generate(0, 7) == generate(0, 7) != generate(0, 8)
    True
    """
    draw = Draw(seed, "fuzz", number)
    maker = Maker(draw, vocabulary or all_rows(), KINDS)
    body = maker.body(Scope(top=True), draw.integer(6, 18))
    ended = next((i for i, s in enumerate(body) if isinstance(s, Exit)), len(body))
    body = tuple(s for i, s in enumerate(body) if i <= ended or not needs_block([s]))
    program = Program(seed, number, body, draw.choice((1, 2, 2)), draw.choice((32, 64, 64, 128)))
    if not is_divergent(program) and maker.chance(70):
        inside = Scope(depth=1, block=False)
        test = maker.condition("lane")
        divergent = If(test, (Warp.draw(maker, inside), *maker.body(inside, 2)))
        program = replace(program, body=(divergent, *program.body))
    return program
