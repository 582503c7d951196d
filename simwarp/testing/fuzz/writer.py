"""Writes a program as PTX: what all statements need. How each kind is written stands beside it.

Where lanes take different ways, the writer carries along a register with the mask of the lanes that go
the same way: it is balloted before they part. So the member mask of each ``.sync`` instruction names
exactly the lanes that will come there, whatever the scheduling.

Examples
--------
Half a warp waits for itself:

>>> writer = Writer(Program(0, 0, (), veiled=False))
>>> yes, no = writer.parted("%p0", FULL)
>>> writer.block([Sync(("bar.warp.sync",))], yes)
>>> [line.strip() for line in writer.text.lines if yes in line]
['vote.sync.ballot.b32 %t0, %p0, 0xFFFFFFFF;', 'xor.b32 %t1, %t0, 0xFFFFFFFF;', 'bar.warp.sync %t0;']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from simwarp.testing.fuzz.lines import Lines
from simwarp.testing.fuzz.memory import Memory
from simwarp.testing.fuzz.program import (
    CLASS,
    REGISTERS,
    Exchange,
    Program,
    Question,
    Statement,
    Sync,
    Warp,
)
from simwarp.testing.fuzz.vocabulary import find
from simwarp.testing.fuzz.walk import bodies, touched
from simwarp.verify.draw import Draw

FULL = "0xFFFFFFFF"
"""The member mask of a whole warp."""

Write = TypeVar("Write", bound="Callable[[Writer, Any, str], str | None]")
_WRITE: dict[type, Callable[[Writer, Any, str], str | None]] = {}


def writes(*kinds: type) -> Callable[[Write], Write]:
    """Declare how statements of some kinds are written.

    The function takes the writer, the statement, and the mask of the lanes that execute it; it returns
    the mask of those that go on, or None if these are the same.
    """

    def declare(write: Write) -> Write:
        _WRITE.update(dict.fromkeys(kinds, write))
        return write

    return declare


class Writer:
    """One program: its body first, so that what stands before it declares what it needs.

    Attributes
    ----------
    text : Lines
    memory : Memory
    """

    def __init__(self, program: Program) -> None:
        self.program, self.text = program, Lines()
        self.memory = Memory(program, self.text)
        self.write, self.give = self.text.write, self.text.give

    def entry(self, name: str, parameters: str) -> str:
        """The whole kernel."""
        text = self.text
        self.block(self.program.body, FULL)
        self.end("ret")
        body, text.lines = text.lines, []
        used = set(re.findall(r"%\w+", "\n".join(body)))
        own = [register for register in REGISTERS if register in used]
        if own:
            self.memory.base("%own_inputs")
        self.memory.prologue()
        for register in own:
            text.registers[register] = CLASS[register]
            self.memory.first_value(register)
        declared = [f"\t.reg .{kind} {register};" for register, kind in text.registers.items()]
        whole = "\n".join([*self.memory.variables(), *declared, *text.lines, *body])
        return f"\n.visible .entry {name}(\n{parameters}\n)\n{{\n{self.renamed(whole)}\n}}\n"

    def renamed(self, text: str) -> str:
        """The same with other names for the registers, if the program asks for them."""
        if not self.program.names:
            return text
        names = shuffled(Draw(self.program.names, "names", 0), list(self.text.registers))
        other = {name: f"%w{i}" for i, name in enumerate(names)}
        return re.sub(r"%\w+", lambda found: other.get(found[0], found[0]), text)

    def block(self, body: Sequence[Statement], mask: str) -> None:
        """Statements one after the other, for the lanes of a mask."""
        for statement in body:
            mask = _WRITE[type(statement)](self, statement, mask) or mask
            if self.program.veiled:
                for register in sorted(touched(statement)[1]):
                    self.memory.veil(register)

    def end(self, opcode: str) -> None:
        """Write the outputs and end."""
        for register in self.program.outputs:
            self.memory.last_value(register)
        self.write(opcode)

    # ---- questions and masks -------------------------------------------------------------------------

    def test(self, test: Question) -> str:
        """A predicate register that keeps the answer."""
        if test.kind == "data":
            answer = self.give("not.pred" if test.negated else "mov.pred", "pred", test.what)
            if self.program.veiled:
                self.memory.veil(answer)
            return answer
        if test.kind == "never":
            even = self.give("mad.lo.u32", "b32", test.what, test.what, test.what)
            bit = self.give("and.b32", "b32", even, 1)
        else:
            number = self.memory.base({"lane": "%lane", "warp": "%here", "block": "%cta"}[test.kind])
            bit = self.give("and.b32", "b32", number, 1 << int(test.what) << 5 * (test.kind == "warp"))
        return self.give(f"setp.{'eq' if test.negated else 'ne'}.u32", "pred", bit, 0)

    def parted(self, holds: str, mask: str) -> list[str]:
        """The masks of the lanes of a mask for which a predicate holds, and for which it does not."""
        yes = self.give("vote.sync.ballot.b32", "b32", holds, mask)
        return [yes, self.give("xor.b32", "b32", yes, mask)]

    def is_member(self, lane: str, mask: str) -> str:
        """A predicate: whether a lane is in a mask."""
        shifted = self.give("shr.u32", "b32", mask, lane)
        bit = self.give("and.b32", "b32", shifted, 1)
        return self.give("setp.ne.u32", "pred", bit, 0)


def needs_mask(body: Sequence[Statement]) -> bool:
    """Whether statements need to know which lanes execute them.

    Examples
    --------
    >>> needs_mask([Sync(("bar.warp.sync",))]), needs_mask([Sync(("bar.sync",))])
    (True, False)
    """
    return any(
        isinstance(statement, Warp)
        or (isinstance(statement, Exchange) and not statement.barrier)
        or (isinstance(statement, Sync) and find(statement.opcodes[0])[0].kind == "warp barrier")
        or any(map(needs_mask, bodies(statement).values()))
        for statement in body
    )


def shuffled(draw: Draw, items: list[str]) -> list[str]:
    """The items in a drawn order.

    Examples
    --------
    >>> sorted(shuffled(Draw(1, "names", 0), ["a", "b", "c"]))
    ['a', 'b', 'c']
    """
    for i in range(len(items) - 1, 0, -1):
        j = draw.integer(0, i)
        items[i], items[j] = items[j], items[i]
    return items
