"""How statements that lanes may take differently are written.

Examples
--------
A side that lanes take under a predicate of their own:

>>> from simwarp.testing.fuzz.program import Compute, Program, Question
>>> writer = Writer(Program(0, 0, (), veiled=False))
>>> writer.block([If(Question("data", "%p0"), (Compute("not.b32", ("%r0",), ("%r1",)),))], "%members")
>>> [line.strip() for line in writer.text.lines]
['mov.pred %q0, %p0;', '@!%q0 bra L1;', 'not.b32 %r0, %r1;', 'L1:']
"""

from __future__ import annotations

from simwarp.testing.fuzz.program import SIDES, If, Leave, Loop, Switch
from simwarp.testing.fuzz.writer import Writer, needs_mask, writes


@writes(If)
def branch(writer: Writer, statement: If, mask: str) -> None:
    """Both sides, one behind the other; or one of them under a predicate."""
    text, holds = writer.text, writer.test(statement.test)
    masks = [mask, mask]
    if statement.test.uniform == "lane" and needs_mask((*statement.then, *statement.otherwise)):
        masks = writer.parted(holds, mask)
    if statement.predicated:
        text.guard = holds
        writer.block(statement.then, masks[0])
        text.guard = ""
        return
    otherwise, join = text.label(), text.label()
    text.write(f"@!{holds} bra {otherwise}")
    writer.block(statement.then, masks[0])
    if statement.otherwise:
        text.write(f"bra.uni {join}")
    text.mark(otherwise)
    if statement.otherwise:
        writer.block(statement.otherwise, masks[1])
        text.mark(join)


@writes(Switch)
def switch(writer: Writer, statement: Switch, mask: str) -> None:
    """A branch by a table, then the sides."""
    text = writer.text
    index = text.give("and.b32", "b32", statement.index, 3)
    sides = [getattr(statement, side) for side in SIDES]
    masks = [mask] * len(sides)
    for i, side in enumerate(sides):
        if needs_mask(side):
            here = text.give("setp.eq.u32", "pred", index, i)
            masks[i] = text.give("vote.sync.ballot.b32", "b32", here, mask)
    table, join, labels = text.label(), text.label(), [text.label() for _ in sides]
    text.lines.append(f"{table}: .branchtargets {', '.join(labels)};")
    text.write(f"{statement.opcode} {index}, {table}")
    for label, side, members in zip(labels, sides, masks, strict=True):
        text.mark(label)
        writer.block(side, members)
        text.write(f"bra.uni {join}")
    text.mark(join)


@writes(Loop)
def loop(writer: Writer, statement: Loop, mask: str) -> None:
    """Rounds before the loop, then the loop; lanes leave it when they have done theirs."""
    text, trips = writer.text, statement.trips
    limit = str(trips) if isinstance(trips, int) else text.give("and.b32", "b32", trips, 3)
    i = text.give("mov.u32", "b32", 0)
    inside = mask
    if not isinstance(trips, int) and needs_mask(statement.body):
        inside = text.give("mov.b32", "b32", mask)
    again, end = text.label(), text.label()
    for repeat in range(statement.peeled + 1):
        if repeat == statement.peeled:
            text.mark(again)
        done = text.give("setp.ge.u32", "pred", i, limit)
        if inside != mask:
            text.write(f"vote.sync.ballot.b32 {inside}, !{done}, {inside}")
        text.write(f"@{done} bra {end}")
        writer.block(statement.body, inside)
        text.write(f"add.u32 {i}, {i}, 1")
    text.write(f"bra.uni {again}")
    text.mark(end)


@writes(Leave)
def leave(writer: Writer, statement: Leave, mask: str) -> str:
    """Let lanes end; the others go on."""
    holds = writer.test(statement.test)
    rest = writer.parted(holds, mask)[1] if statement.test.uniform == "lane" else mask
    stay = writer.text.label()
    writer.write(f"@!{holds} bra {stay}")
    writer.end(statement.opcode)
    writer.text.mark(stay)
    return rest
