"""Instructions of one thread on memory and its addresses."""

from __future__ import annotations

from typing import Any

from simwarp.lab.fuzz.maker import Maker, Scope, region_of
from simwarp.lab.fuzz.memory import TALLIES, tally_of
from simwarp.lab.fuzz.program import Address, Operand, Statement, register_class
from simwarp.lab.fuzz.statements.instruction import Instruction
from simwarp.lab.fuzz.vocabulary import FINITE, find
from simwarp.lab.fuzz.writer import Writer, vector
from simwarp.ptx.rows import Form, Row

_NEAR = {"cta", "cluster"}
"""Scopes in which atomic operations do not see those of other blocks."""


class Load(Instruction):
    """A read of memory into registers."""

    weight, purpose, flat = 6, "load", True

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """A read of the inputs, the parameter, the constants, or of the thread's own memory."""
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
    """A write of registers to the thread's own memory."""

    weight, purpose, flat = 6, "store", True

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """A write."""
        row, form = find(maker.opcode("store"))
        sources = maker.vector(maker.kind(form.T, row), form.vector)
        return cls(form.opcode, (), (sources,), maker.own(form, "global", "shared", "local"))


class Atomic(Instruction):
    """An atomic operation: on the thread's own memory, or on a tally, where nothing is returned."""

    weight, purpose, flat = 6, "atomic", True

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """An update of the enclosing tally, of a tally in global memory, or of the thread's own memory."""
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
        """An operation with drawn operands; on a tally without its result, which depends on scheduling."""
        sources = (register_class(form.resolve(spec.kind)) for spec in row.sources[1:])
        sources = tuple(maker.vector(kind, form.vector) for kind in sources)
        return cls(form.opcode, (target,) * len(row.destinations), sources, address)

    def operands(self, writer: Writer, mask: str) -> list[str]:
        """The source operands; no NaN of 64 bits is added, since the sum of two may be either."""
        if find(self.opcode)[1].T != "f64":
            return super().operands(writer, mask)
        return [writer.result("and.b64", vector(source), FINITE["f64"]) for source in self.sources]


class CacheHint(Instruction):
    """An instruction that names an address in memory and does nothing to it."""

    weight, purpose = 1, "hint"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """A prefetch and the like: of the tallies, of the thread's own memory."""
        row, form = find(maker.opcode("hint"))
        generic = not region_of(form)
        if row.base == "applypriority":
            address = Address("tallies", 128 * maker.draw.integer(0, 3), generic=generic)
        else:
            region: Any = region_of(form) or maker.draw.choice(("global", "local"))
            address = Address(region, generic=generic)
        return cls(form.opcode, address=address)

    def write(self, writer: Writer, mask: str) -> None:
        """The instruction; some take the number of bytes."""
        row, _ = find(self.opcode)
        size = ", 128" * (len(row.sources) > 1)
        writer.write(f"{self.opcode} {writer.address(self.address, 16)}{size}")


class AddressQuery(Instruction):
    """An instruction on the address of the thread's own memory in a region: its space, its block."""

    weight, purpose = 2, "locate"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """One of the instructions, and a region that it takes."""
        row, form = find(maker.opcode("locate"))
        asks = row.base == "isspacep"
        region: Any = maker.draw.choice(("global", "shared", "local") if asks else ("shared",))
        return cls(form.opcode, (maker.register("pred" if asks else "b32"),), address=Address(region))

    def write(self, writer: Writer, mask: str) -> None:
        """Whether an address is in a space; its block in the cluster, 0; the word at its mapped address."""
        row, form = find(self.opcode)
        target = vector(self.destinations[0])
        wide = row.base == "isspacep" or form.T == "u64"
        address = f"%{'generic_' * wide}{self.address.region}"
        if row.base != "mapa":
            return writer.write(f"{self.opcode} {target}, {address}")
        space = ""
        if form.has("shared::cluster"):
            # An address in shared memory is mapped to one of the cluster, a generic one to a generic one.
            space = ".shared::cluster"
            writer.used.add(address)  # as in recorded programs
            address = "%wide_shared" if wide else address
        mapped = writer.result(self.opcode, address, 0)
        return writer.write(f"ld{space}.b32 {target}, [{mapped}]")
