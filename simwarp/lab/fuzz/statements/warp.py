"""Statements of warp instructions, which lanes execute together.

The PTX ISA does not define which other lanes are active, so only the lane's own bit is kept:

>>> from simwarp.lab.fuzz.program import Program
>>> from simwarp.lab.fuzz.writer import Writer
>>> writer = Writer(Program(0, 0, (), veiled=False))
>>> vote = Warp("vote.sync.any.pred", ("%p0",), ("%p1",))
>>> writer.body([vote, Warp("activemask.b32", ("%r0",), ())], "%members")
>>> [line.strip() for line in writer.lines]
['vote.sync.any.pred %p0, %p1, %members;', 'activemask.b32 %t0;', 'and.b32 %r0, %t0, %lane_bit;']
"""

from __future__ import annotations

from simwarp.lab.fuzz.maker import Maker, Scope
from simwarp.lab.fuzz.program import Statement
from simwarp.lab.fuzz.registers import register_class
from simwarp.lab.fuzz.statements.instruction import Instruction
from simwarp.lab.fuzz.vocabulary import WITNESSES, find
from simwarp.lab.fuzz.writer import FULL, Writer, written

_CLAMPS = (0x1F, 0x0, 0x1C1F, 0x181F, 0x1C00, 0x1800, 0x101F, 0x0F, 0x0A07)
"""Operands c of a shuffle: for the whole warp, for segments, and unusual ones."""


class Warp(Instruction):
    """A warp instruction of the executing lanes; `write` adds the member mask."""

    weight, purpose, flat, group = 16, "warp", True, "warp"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a warp instruction (shuffle, vote, match, …) and its operands."""
        row, form = find(maker.opcode("warp"))
        if row.base in WITNESSES:
            return cls(form.opcode, (maker.register("b32"),), ())
        targets = [maker.register(register_class(form.resolve(s.kind))) for s in row.destinations]
        if row.base != "shfl":
            sources = [maker.operand(form.resolve(s.kind), row, form) for s in row.sources[:-1]]
            return cls(form.opcode, tuple(targets), tuple(sources))
        register, lane = maker.register("b32"), maker.operand("u32", row, form)
        usual = maker.chance(80)
        clamp = maker.draw.choice(_CLAMPS) if usual else maker.draw.integer(0, 0x1FFF) & 0x1F1F
        return cls(form.opcode, tuple(targets[: maker.draw.choice((1, 2, 2))]), (register, lane, clamp))

    def write(self, writer: Writer, mask: str) -> None:
        """Write the instruction for the lanes of a mask.

        The PTX ISA also allows several teams with different masks at one instruction. Programs avoid that:
        ptxas 13.0 then assumes a converged warp, even after ``bar.warp.sync``, and barriers hang.
        """
        base = find(self.opcode)[0].base
        if base in WITNESSES:
            self._write_certain(writer, base, mask)
        else:
            super().write(writer, mask)

    def operands(self, writer: Writer, mask: str) -> list[str]:
        """The source operands and the member mask; the mask always contains a shuffle's source lane."""
        row, form = find(self.opcode)
        sources = [written(o, form, spec) for o, spec in zip(self.sources, row.sources, strict=False)]
        if row.base == "shfl" and mask != FULL:
            sources[1] = _member_source(writer, form.modifiers[0], sources[1], int(sources[2], 0), mask)
        return [*sources, mask]

    def _write_certain(self, writer: Writer, base: str, mask: str) -> None:
        """Write the defined part of a result: the lane's own active bit, or whether one leader is elected."""
        (target,) = self.destinations
        if base == "activemask":
            active = writer.new("b32")
            writer.write(f"{self.opcode} {active}")
            return writer.write(f"and.b32 {target}, {active}, %lane_bit")
        leader, elected = writer.new("b32"), writer.new("pred")
        writer.write(f"{self.opcode} {leader}|{elected}, {mask}")
        voted = writer.result("vote.sync.ballot.b32", elected, mask)
        return writer.write(f"xor.b32 {target}, {voted}, {writer.result('shl.b32', 1, leader)}")


def _member_source(writer: Writer, mode: str, b: str, c: int, mask: str) -> str:
    """Operand b of a shuffle, replaced if its source lane is not in the mask."""
    segment = c >> 8 & 31
    b = writer.result("and.b32", b, 31)
    if mode == "idx":
        low = writer.result("and.b32", "%lane", segment)
        source = writer.result("or.b32", low, writer.result("and.b32", b, 31 & ~segment))
    else:
        source = writer.result({"up": "sub.u32", "down": "add.u32", "bfly": "xor.b32"}[mode], "%lane", b)
    member = writer.is_member(source, mask)
    return writer.result("selp.b32", b, "%lane" if mode == "idx" else 0, member)
