"""Statements of one thread that access memory or compute with addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simwarp.lab.fuzz.maker import Maker, Scope, region_of
from simwarp.lab.fuzz.memory import OWN, TALLIES, tally_of
from simwarp.lab.fuzz.program import Address, Operand, Statement
from simwarp.lab.fuzz.registers import register_class
from simwarp.lab.fuzz.statements.instruction import Instruction
from simwarp.lab.fuzz.vocabulary import FINITE, find
from simwarp.lab.fuzz.writer import Writer, vector
from simwarp.ptx.rows import Form, Row

_NEAR = {"cta", "cluster"}
"""Scopes in which atomic operations are not atomic with those of other blocks."""


class Load(Instruction):
    """A load from memory, a parameter or constants into registers."""

    weight, purpose, flat, accesses = 6, "load", True, "reads"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a load from the inputs, the parameter, the constants, or the thread's own memory."""
        once = "load once" in maker.vocabulary and maker.chance(8)
        row, form = find(maker.opcode("load once" if once else "load"))
        if once or form.has("nc"):
            address = maker.address(form, "inputs")
        elif region_of(form) == "global":
            address = maker.address(form, "inputs", "global")
        else:
            address = maker.own(form, "inputs", "global", "shared", "local", "table")
        registers = maker.registers(maker.kind(form.T, row), form.vector)
        return cls(form.opcode, (registers,), address=address)


class Store(Instruction):
    """A store of registers to the thread's own memory."""

    weight, purpose, flat, accesses = 6, "store", True, "writes"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a store to memory that only the thread itself accesses."""
        row, form = find(maker.opcode("store"))
        sources = maker.vector(maker.kind(form.T, row), form.vector)
        return cls(form.opcode, (), (sources,), maker.own(form, "global", "shared", "local"))


class Atomic(Instruction):
    """An atomic operation on the thread's own memory, or on a tally without using its result."""

    weight, purpose, flat, accesses = 6, "atomic", True, "writes"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw an update of the enclosing tally, of a global tally, or of the thread's own memory."""
        if scope.tally and maker.chance(70):
            return cls._of(maker, *find(scope.tally), Address("tally", 0, maker.register("b32")))
        row, form = find(maker.opcode("atomic"))
        name, region = tally_of(form.opcode), region_of(form)
        if name and region in ("global", "") and not _NEAR & set(form.modifiers) and maker.chance(50):
            address = Address("tallies", 8 * TALLIES.index(name), maker.register("b32"), not region)
            return cls._of(maker, row, form, address)
        registers = maker.registers(register_class(form.T), form.vector) if row.destinations else ()
        address = maker.own(form, "global", *([] if form.vector > 1 else ["shared"]))
        return cls._of(maker, row, form, address, registers)

    @classmethod
    def _of(cls, maker: Maker, row: Row, form: Form, address: Address, target: Operand = "_") -> Atomic:
        """Draw the operands; discard the result on a tally, as it depends on scheduling."""
        sources = (register_class(form.resolve(spec.kind)) for spec in row.sources[1:])
        sources = tuple(maker.vector(kind, form.vector) for kind in sources)
        return cls(form.opcode, (target,) * len(row.destinations), sources, address)

    def operands(self, writer: Writer, mask: str) -> list[str]:
        """The source operands in PTX; 64-bit ones are made finite, since NaN + NaN may be either NaN."""
        if find(self.opcode)[1].T != "f64":
            return super().operands(writer, mask)
        return [writer.result("and.b64", vector(source), FINITE["f64"]) for source in self.sources]


@dataclass(frozen=True)
class AsyncCopy(Instruction):
    """A copy to the thread's own shared memory; the thread waits for it immediately."""

    size: int = 16
    taken: int = 16  # the bytes that are copied; the others become 0
    target: int = 0  # the offset in the shared memory
    grouped: bool = False  # whether the statement waits for a group, not for all copies
    weight, purpose, flat, accesses = 3, "copy", True, "writes"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a copy, sometimes partial, from the inputs or from the thread's own global memory."""
        _, form = find(maker.opcode("copy"))
        size = 16 if form.has("cg") else maker.draw.choice((4, 8, 16))
        taken = maker.draw.integer(0, size) if maker.chance(25) else size
        source, target = maker.place(size, "inputs", "global"), size * maker.draw.integer(0, OWN // size - 1)
        return cls(form.opcode, (), (), source, size, taken, target, maker.chance(50))

    def write(self, writer: Writer, mask: str) -> None:
        """Write the copy and the wait for it."""
        target = writer.address(Address("shared", self.target), self.size)
        source = writer.address(self.address, self.size)
        part = f", {self.taken}" * (self.taken < self.size)
        writer.write(f"{self.opcode} {target}, {source}, {self.size}{part}")
        if self.grouped:
            writer.write("cp.async.commit_group")
        writer.write("cp.async.wait_group 0" if self.grouped else "cp.async.wait_all")


class CacheHint(Instruction):
    """An instruction with an address that does not change memory, such as a prefetch."""

    weight, purpose = 1, "hint"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a hint for an address of the tallies or of the thread's own memory."""
        row, form = find(maker.opcode("hint"))
        generic = not region_of(form)
        if row.base == "applypriority":
            address = Address("tallies", 128 * maker.draw.integer(0, 3), generic=generic)
        else:
            region: Any = region_of(form) or maker.draw.choice(("global", "local"))
            address = Address(region, generic=generic)
        return cls(form.opcode, address=address)

    def write(self, writer: Writer, mask: str) -> None:
        """Write a cache hint, with a size if it has that operand."""
        row, _ = find(self.opcode)
        size = ", 128" * (len(row.sources) > 1)
        writer.write(f"{self.opcode} {writer.address(self.address, 16)}{size}")


class AddressQuery(Instruction):
    """A query of an address of the thread's own memory: its state space, or its block in the cluster."""

    weight, purpose = 2, "locate"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw an address query, and a region that it allows."""
        row, form = find(maker.opcode("locate"))
        asks = row.base == "isspacep"
        region: Any = maker.draw.choice(("global", "shared", "local") if asks else ("shared",))
        return cls(form.opcode, (maker.register("pred" if asks else "b32"),), address=Address(region))

    def write(self, writer: Writer, mask: str) -> None:
        """Write a query of the address's space or block, or a load from its mapped address."""
        row, form = find(self.opcode)
        target = vector(self.destinations[0])
        wide = row.base == "isspacep" or form.T == "u64"
        address = f"%{'generic_' * wide}{self.address.region}"
        if row.base != "mapa":
            return writer.write(f"{self.opcode} {target}, {address}")
        space = ""
        if form.has("shared::cluster"):
            # This form maps a shared address to a shared::cluster address, not a generic to a generic one.
            space = ".shared::cluster"
            writer.used.add(address)  # the register gets an initial value in recorded programs
            address = "%wide_shared" if wide else address
        mapped = writer.result(self.opcode, address, 0)
        return writer.write(f"ld{space}.b32 {target}, [{mapped}]")
