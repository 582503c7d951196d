"""The base class of statements that are one instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from simwarp.lab.fuzz.program import NOWHERE, Address, Operand, Statement, names
from simwarp.lab.fuzz.registers import CLASS, POOLS
from simwarp.lab.fuzz.vocabulary import find, size_of
from simwarp.lab.fuzz.writer import Writer, vector


@dataclass(frozen=True)
class Instruction(Statement):
    """A statement of one instruction, with destinations, perhaps an address, and sources."""

    opcode: str
    destinations: tuple[Operand, ...] = ()
    sources: tuple[Operand, ...] = ()
    address: Address = NOWHERE

    def write(self, writer: Writer, mask: str) -> None:
        """Write the instruction as PTX."""
        targets = ["|".join(map(vector, self.destinations))] if self.destinations else []
        if self.address.region:
            targets.append(writer.address(self.address, size_of(find(self.opcode)[1])))
        writer.write(f"{self.opcode} {', '.join([*targets, *self.operands(writer, mask)])}")

    def operands(self, writer: Writer, mask: str) -> list[str]:
        """The source operands, as PTX text."""
        return list(map(vector, self.sources))

    def touched(self) -> tuple[set[str], set[str]]:
        """The registers that the instruction reads and the registers that it writes."""
        reads = {name for operand in (*self.sources, self.address.index) for name in names(operand)}
        return reads, super().touched()[1] - {"_"}

    def simpler(self) -> Iterator[Self]:
        """The instruction without the index of its address, or with one simpler source operand."""
        if self.address.index and self.address.region not in ("tallies", "tally"):
            yield replace(self, address=replace(self.address, index=""))
        for i, operand in enumerate(self.sources):
            for simple in _simpler(operand):
                yield replace(self, sources=(*self.sources[:i], simple, *self.sources[i + 1 :]))


def _simpler(operand: Operand) -> list[Operand]:
    """Simpler operands: smaller numbers, or the first register of the class."""
    if isinstance(operand, int):
        return [n for n in (0, 1, operand >> 1) if n < operand]
    pool = POOLS[CLASS[operand]] if isinstance(operand, str) and operand in CLASS else ()
    return [first for first in pool[:1] if first != operand]
