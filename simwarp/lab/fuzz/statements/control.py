"""Control flow statements: branches, loops, exits, and calls.

A divergent branch with one side:

>>> from simwarp.lab.fuzz.program import Program
>>> from simwarp.lab.fuzz.statements import Compute
>>> from simwarp.lab.fuzz.writer import Writer
>>> writer = Writer(Program(0, 0, (), veiled=False))
>>> writer.body([If(Condition("data", "%p0"), (Compute("not.b32", ("%r0",), ("%r1",)),))], "%members")
>>> [line.strip() for line in writer.lines]
['mov.pred %q0, %p0;', '@!%q0 bra L1;', 'not.b32 %r0, %r1;', 'L1:']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simwarp.lab.fuzz.maker import Maker, Scope
from simwarp.lab.fuzz.program import Body, Condition, Statement, needs_mask
from simwarp.lab.fuzz.statements.block import Sync
from simwarp.lab.fuzz.statements.instruction import Instruction
from simwarp.lab.fuzz.writer import Writer

_MIX = """
.func (.param .b32 result) mix(.param .b32 first, .param .b32 second)
{
\t.reg .b32 %word;
\t.reg .b32 %more;
\t.reg .b32 %left;
\t.reg .pred %done;
\tld.param.b32 %word, [first];
\tld.param.b32 %more, [second];
\tand.b32 %left, %word, 3;
AGAIN:
\tsetp.eq.u32 %done, %left, 0;
\t@%done bra DONE;
\tmad.lo.u32 %more, %more, 0x9E3779B1, %word;
\tsub.u32 %left, %left, 1;
\tbra AGAIN;
DONE:
\tst.param.b32 [result], %more;
\tret;
}
"""
"""The device function that a `Call` calls; the first word's two lowest bits give its number of rounds."""


class Call(Instruction):
    """A call of the device function ``mix``, from two words to one."""

    weight, purpose = 2, "call"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw the opcode and registers of a call."""
        return cls(maker.opcode("call"), maker.vector("b32", 1), maker.vector("b32", 2))

    def write(self, writer: Writer, mask: str) -> None:
        """Write the call sequence in its own PTX scope."""
        writer.functions.add(_MIX)
        first, second = self.sources
        writer.lines += ["\t{", "\t.param .b32 one;", "\t.param .b32 two;", "\t.param .b32 back;"]
        writer.write(f"st.param.b32 [one], {first}")
        writer.write(f"st.param.b32 [two], {second}")
        writer.write(f"{self.opcode} (back), mix, (one, two)")
        writer.write(f"ld.param.b32 {self.destinations[0]}, [back]")
        writer.lines.append("\t}")


@dataclass(frozen=True)
class If(Statement):
    """A branch with two sides, one of which may be empty."""

    test: Condition
    then: Body
    otherwise: Body = ()
    predicated: bool = False  # each instruction of ``then`` is predicated; ``otherwise`` is empty
    weight, purpose, inside = 12, "compute", ("then", "otherwise")

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a branch with one or two sides; some short ones are predicated."""
        test = maker.condition()
        if maker.chance(30):
            flat = scope.inside(block=False, flat=True)
            return If(test, maker.body(flat, maker.draw.integer(1, 3)), predicated=True)
        inside = scope.inside(block=scope.block and test.kind == "block")
        then = maker.body(inside, maker.draw.integer(1, 4))
        return If(test, then, maker.body(inside, maker.draw.integer(1, 3)) if maker.chance(50) else ())

    @property
    def splits(self) -> bool:
        """True if lanes of a warp may take different sides."""
        return self.test.splits

    def write(self, writer: Writer, mask: str) -> None:
        """Write both sides with branches, or one side under a predicate."""
        holds, masks = writer.condition(self.test), [mask, mask]
        if self.splits and needs_mask((*self.then, *self.otherwise)):
            masks = writer.split_mask(holds, mask)
        if self.predicated:
            writer.guard = holds
            writer.body(self.then, masks[0])
            writer.guard = ""
            return
        otherwise, join = writer.label(), writer.label()
        writer.write(f"@!{holds} bra {otherwise}")
        writer.body(self.then, masks[0])
        if self.otherwise:
            writer.write(f"bra.uni {join}")
        writer.mark(otherwise)
        if self.otherwise:
            writer.body(self.otherwise, masks[1])
            writer.mark(join)

    def opened(self) -> list[Body]:
        """The sides of a branch, except one that no lane takes, as it may end in a trap."""
        if self.test.kind == "never":
            return [self.then if self.test.negated else self.otherwise]
        return [self.then, self.otherwise]

    def simpler(self) -> Iterator[Statement]:
        """The branch without predicates, or without a negated condition."""
        if self.predicated:
            yield replace(self, predicated=False)
        if self.test.negated:
            yield self.inverted()

    def inverted(self) -> If:
        """The branch with its condition negated and its sides exchanged."""
        return If(replace(self.test, negated=not self.test.negated), self.otherwise, self.then)


class DeadBranch(If):
    """Draws an `If` whose only side no lane takes; some end in a trap."""

    weight, purpose = 2, "trap"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a branch with statements that no lane executes."""
        trap = (Sync((maker.opcode("trap"),)),) if "trap" in maker.vocabulary and maker.chance(50) else ()
        body = maker.body(scope.inside(block=False), maker.draw.integer(1, 2))
        return If(replace(maker.condition("never"), negated=False), (*body, *trap))


@dataclass(frozen=True)
class Switch(Statement):
    """An indexed branch to one of four sides, by the two lowest bits of a 32-bit register."""

    opcode: str
    index: str
    zero: Body
    one: Body
    two: Body
    three: Body
    weight, purpose, inside = 2, "switch", ("zero", "one", "two", "three")

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw the four sides of an indexed branch, some of them empty."""
        inside = scope.inside(block=False)
        sides = [maker.body(inside, maker.draw.integer(0, 2)) for _ in cls.inside]
        return cls(maker.opcode("switch"), maker.register("b32"), *sides)

    @property
    def splits(self) -> bool:
        """True, since lanes of a warp may take different sides."""
        return True

    def write(self, writer: Writer, mask: str) -> None:
        """Write ``brx.idx`` and the four bodies that it branches to."""
        index = writer.result("and.b32", self.index, 3)
        sides = self.opened()
        masks = [mask] * len(sides)
        for i, side in enumerate(sides):
            if needs_mask(side):
                masks[i] = writer.result("vote.sync.ballot.b32", writer.result("setp.eq.u32", index, i), mask)
        table, join, labels = writer.label(), writer.label(), [writer.label() for _ in sides]
        writer.lines.append(f"{table}: .branchtargets {', '.join(labels)};")
        writer.write(f"{self.opcode} {index}, {table}")
        for label, side, members in zip(labels, sides, masks, strict=True):
            writer.mark(label)
            writer.body(side, members)
            writer.write(f"bra.uni {join}")
        writer.mark(join)


@dataclass(frozen=True)
class Loop(Statement):
    """A loop that repeats ``body``."""

    trips: int | str  # the number of iterations, or a 32-bit register with it in its two lowest bits
    body: Body
    peeled: int = 0  # the number of iterations written before the loop
    weight, purpose, inside = 8, "compute", ("body",)

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a loop: the number of iterations, uniform or by lane, and the body."""
        trips = maker.draw.integer(1, 3) if maker.chance(30) else maker.register("b32")
        inside = scope.inside(block=scope.block and isinstance(trips, int))
        return cls(trips, maker.body(inside, maker.draw.integer(1, 4)))

    @property
    def splits(self) -> bool:
        """True if lanes of a warp may leave the loop after different numbers of iterations."""
        return not isinstance(self.trips, int)

    def write(self, writer: Writer, mask: str) -> None:
        """Write the peeled iterations, then the loop, which lanes leave after their number of iterations."""
        limit = writer.result("and.b32", self.trips, 3) if self.splits else str(self.trips)
        i = writer.result("mov.u32", 0)
        inside = writer.result("mov.b32", mask) if self.splits and needs_mask(self.body) else mask
        again, end = writer.label(), writer.label()
        for repeat in range(self.peeled + 1):
            if repeat == self.peeled:
                writer.mark(again)
            done = writer.result("setp.ge.u32", i, limit)
            if inside != mask:
                writer.write(f"vote.sync.ballot.b32 {inside}, !{done}, {inside}")
            writer.write(f"@{done} bra {end}")
            writer.body(self.body, inside)
            writer.write(f"add.u32 {i}, {i}, 1")
        writer.write(f"bra.uni {again}")
        writer.mark(end)

    def simpler(self) -> Iterator[Statement]:
        """The loop without peeled iterations, or with one iteration."""
        yield replace(self, peeled=0)
        if self.trips != 1:
            yield replace(self, trips=1)


@dataclass(frozen=True)
class Exit(Statement):
    """The lanes for which ``test`` is true store their outputs and exit."""

    test: Condition
    opcode: str = "ret"
    weight, purpose = 1, "leave"

    @classmethod
    def fits(cls, scope: Scope) -> bool:
        """True if a scope is the outermost body, where lanes may exit."""
        return scope.top

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw the condition and the opcode of an exit."""
        return cls(maker.condition("data", "lane"), maker.opcode("leave"))

    @property
    def splits(self) -> bool:
        """Return True: some lanes exit, and others continue."""
        return True

    def write(self, writer: Writer, mask: str) -> str:
        """Write the exit of some lanes; return the mask of the others."""
        holds = writer.condition(self.test)
        rest = writer.split_mask(holds, mask)[1] if self.test.splits else mask
        stay = writer.label()
        writer.write(f"@!{holds} bra {stay}")
        writer.end(self.opcode)
        writer.mark(stay)
        return rest

    def simpler(self) -> Iterator[Statement]:
        """Yield the exit with the opcode ``ret``."""
        if self.opcode != "ret":
            yield replace(self, opcode="ret")
