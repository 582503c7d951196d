"""How statements of several lanes, or of all threads of a block, are written.

Examples
--------
Which other lanes are active, the PTX ISA does not say; that a lane itself is, is certain:

>>> from simwarp.testing.fuzz.program import Program
>>> writer = Writer(Program(0, 0, (), veiled=False))
>>> vote = Warp("vote.sync.any.pred", ("%p0",), ("%p1",))
>>> writer.block([vote, Warp("activemask.b32", ("%r0",), ())], "%members")
>>> [line.strip() for line in writer.text.lines]
['vote.sync.any.pred %p0, %p1, %members;', 'activemask.b32 %t0;', 'and.b32 %r0, %t0, %lane_bit;']
"""

from __future__ import annotations

from simwarp.testing.fuzz.lines import literal, vector, written
from simwarp.testing.fuzz.memory import CELL
from simwarp.testing.fuzz.plain import wait
from simwarp.testing.fuzz.program import Exchange, Handover, Poll, Tally, Warp, register_class
from simwarp.testing.fuzz.vocabulary import WITNESSES, find
from simwarp.testing.fuzz.writer import FULL, Writer, writes


@writes(Warp)
def warp(writer: Writer, statement: Warp, mask: str) -> None:
    """A warp-wide instruction of the lanes of a mask.

    Not of several teams side by side, each with its mask, though the PTX ISA allows that: ptxas 13.0 takes
    the warp for whole behind it, also behind a ``bar.warp.sync``, and barriers then wait for ever.
    """
    row, form = find(statement.opcode)
    if row.base in WITNESSES:
        return witness(writer, statement, row.base, mask)
    sources = [written(o, form, spec) for o, spec in zip(statement.sources, row.sources, strict=False)]
    if row.base == "shfl" and mask != FULL:
        sources[1] = member_source(writer, form.modifiers[0], sources[1], int(sources[2], 0), mask)
    targets = "|".join(vector(target) for target in statement.destinations)
    return writer.write(f"{statement.opcode} {', '.join([targets, *sources, mask])}")


def witness(writer: Writer, statement: Warp, base: str, mask: str) -> None:
    """What is certain: a lane is in its own active mask; one lane is elected, and its number given."""
    (target,) = statement.destinations
    if base == "activemask":
        active = writer.text.new("b32")
        writer.write(f"{statement.opcode} {active}")
        return writer.write(f"and.b32 {target}, {active}, {writer.memory.base('%lane_bit')}")
    leader, elected = writer.text.new("b32"), writer.text.new("pred")
    writer.write(f"{statement.opcode} {leader}|{elected}, {mask}")
    voted = writer.give("vote.sync.ballot.b32", "b32", elected, mask)
    bit = writer.give("shl.b32", "b32", 1, leader)
    return writer.write(f"xor.b32 {target}, {voted}, {bit}")


def member_source(writer: Writer, mode: str, b: str, c: int, mask: str) -> str:
    """Operand b of a shuffle, changed where the lane that it leads to is not in the mask."""
    lane, segment = writer.memory.base("%lane"), c >> 8 & 31
    b = writer.give("and.b32", "b32", b, 31)
    if mode == "idx":
        low = writer.give("and.b32", "b32", lane, segment)
        high = writer.give("and.b32", "b32", b, 31 & ~segment)
        source = writer.give("or.b32", "b32", low, high)
    else:
        source = writer.give({"up": "sub.u32", "down": "add.u32", "bfly": "xor.b32"}[mode], "b32", lane, b)
    member = writer.is_member(source, mask)
    return writer.give("selp.b32", "b32", b, lane if mode == "idx" else 0, member)


@writes(Exchange)
def exchange(writer: Writer, statement: Exchange, mask: str) -> None:
    """Write, wait, read another's, wait."""
    here, barrier = writer.memory.base("%here"), statement.barrier
    cell = writer.give("mad.lo.u32", "b32", here, CELL, writer.memory.base("%cells"))
    writer.write(f"{statement.store} [{cell}], {vector(statement.sources)}")
    wait(writer, barrier or "bar.warp.sync", mask)
    if barrier:
        other = writer.give("and.b32", "b32", statement.index, writer.program.block - 1)
    else:
        lane = writer.give("and.b32", "b32", statement.index, 31)
        if mask != FULL:
            member = writer.is_member(lane, mask)
            lane = writer.give("selp.b32", "b32", lane, writer.memory.base("%lane"), member)
        first = writer.give("and.b32", "b32", here, 0xFFFFFFE0)
        other = writer.give("or.b32", "b32", first, lane)
    cell = writer.give("mad.lo.u32", "b32", other, CELL, writer.memory.base("%cells"))
    writer.write(f"{statement.load} {vector(statement.destinations)}, [{cell}]")
    wait(writer, barrier or "bar.warp.sync", mask)


@writes(Tally)
def tally(writer: Writer, statement: Tally, mask: str) -> None:
    """Set four words, wait, update them, wait, read one, wait."""
    here = writer.memory.base("%here")
    mine = writer.give("and.b32", "b32", here, 3)
    word = writer.give("mad.lo.u32", "b32", mine, 8, writer.memory.base("%tally"))
    first = writer.give("setp.lt.u32", "pred", here, 4)
    writer.write(f"@{first} st.shared.b64 [{word}], {literal('b64', statement.initial)}")
    wait(writer, statement.barrier, mask)
    writer.block(statement.body, mask)
    wait(writer, statement.barrier, mask)
    _, form = find(statement.opcode)
    writer.write(f"ld.shared.{register_class(form.T)} {statement.destination}, [{word}]")
    wait(writer, statement.barrier, mask)


@writes(Poll)
def poll(writer: Writer, statement: Poll, mask: str) -> None:
    """A barrier with a result."""
    writer.write(f"{statement.opcode} {statement.destination}, 0, {statement.source}")


@writes(Handover)
def handover(writer: Writer, statement: Handover, mask: str) -> None:
    """Arrive or wait at barrier 1; then all wait at barrier 0, so that nobody arrives twice."""
    text, holds = writer.text, writer.test(statement.test)
    other, join = text.label(), text.label()
    text.write(f"@!{holds} bra.uni {other}")
    text.write(f"{statement.arrive} 1, {writer.program.block}")
    text.write(f"bra.uni {join}")
    text.mark(other)
    text.write(f"{statement.sync} 1, {writer.program.block}")
    text.mark(join)
    wait(writer, statement.barrier, mask)
