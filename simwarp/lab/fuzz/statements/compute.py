"""Statements of instructions that only compute on registers.

The PTX ISA does not define division by zero, so the lowest bit of the divisor is set first:

>>> from simwarp.lab.fuzz.program import Program
>>> from simwarp.lab.fuzz.writer import Writer
>>> writer = Writer(Program(0, 0, (), veiled=False))
>>> writer.body([Compute("div.u32", ("%r0",), ("%r1", "%r2"))], "%members")
>>> [line.strip() for line in writer.lines]
['or.b32 %t0, %r2, 1;', 'div.u32 %r0, %r1, %t0;']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simwarp.lab.fuzz.maker import Maker, Scope
from simwarp.lab.fuzz.program import Operand, Statement
from simwarp.lab.fuzz.registers import CLASS, POOLS, register_class
from simwarp.lab.fuzz.statements.instruction import Instruction
from simwarp.lab.fuzz.vocabulary import find, guard_of
from simwarp.lab.fuzz.writer import Writer, literal, vector, written
from simwarp.ptx.rows import Form, OperandSpec, Row


class Compute(Instruction):
    """An instruction that computes registers from registers, without memory."""

    weight, purpose, flat = 40, "compute", True

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a pure instruction, sometimes ``mov`` between a word and its parts."""
        if not maker.chance(4):
            return cls.of(maker, maker.opcode("compute"))
        word, part, count = maker.draw.choice((("b64", "b32", 2), ("b32", "b16", 2), ("b64", "b16", 4)))
        if maker.chance(50):
            return cls(f"mov.{word}", (maker.registers(part, count),), (maker.register(word),))
        sources = maker.vector(part, count)
        return cls(f"mov.{word}", (maker.register(word),), (sources,))

    @classmethod
    def of(cls, maker: Maker, opcode: str) -> Compute:
        """An instruction with an opcode, and random registers and constants as operands."""
        row, form = find(opcode)
        kinds = [form.resolve(s.kind) for s in row.destinations if s.kind != "carry"]
        if row.base == "setp" and maker.chance(60):
            kinds = kinds[:1]
        targets: list[Operand] = []
        for kind in kinds:
            options = [r for r in POOLS[maker.kind(kind, row)] if r not in targets]
            targets.append(maker.draw.choice(options))
        sources = [
            maker.draw.integer(0, 255)
            if spec.kind == "number"
            else maker.operand(form.resolve(spec.kind), row, form)
            for spec in _sources_of(row, form)
        ]
        return cls(opcode, tuple(targets), tuple(sources))

    def write(self, writer: Writer, mask: str) -> None:
        """Write the instruction; make a 64-bit NaN canonical, since its payload depends on the compiler."""
        row, form = find(self.opcode)
        if writer.guard and (row.base in ("set", "testp") or row.base[0] == "v"):
            return self._write_without_guard(writer, mask)
        super().write(writer, mask)
        if form.resolve(row.destinations[0].kind) == "f64":
            register = vector(self.destinations[0])
            nan = writer.result("setp.nan.f64", register, register)
            writer.write(f"selp.b64 {register}, 0x7FF8000000000000, {register}, {nan}")
        return None

    def operands(self, writer: Writer, mask: str) -> list[str]:
        """The source operands in PTX, changed where the PTX ISA leaves the result undefined."""
        row, form = find(self.opcode)
        specs = _sources_of(row, form)
        sources = [_guarded(writer, row, form, s, o) for s, o in zip(specs, self.sources, strict=True)]
        if writer.program.veiled and "f" in form.resolve(specs[0].kind):
            return [_distinct(writer, form, spec, i, sources) for i, spec in enumerate(specs)]
        return sources

    def _write_without_guard(self, writer: Writer, mask: str) -> None:
        """Write the instruction with a new destination and no predicate, then a predicated ``mov``.

        ptxas 13.0 translates ``set``, ``testp`` and video instructions to several machine instructions, and
        executes some of them in lanes whose predicate does not hold.
        """
        guard, writer.guard = writer.guard, ""
        (target,) = map(vector, self.destinations)
        result = writer.new(CLASS[target])
        writer.body((replace(self, destinations=(result,)),), mask)
        writer.guard = guard
        writer.write(f"mov.{CLASS[target]} {target}, {result}")


@dataclass(frozen=True)
class Chain(Statement):
    """Consecutive instructions, each of which passes a carry to the next."""

    parts: tuple[Compute, ...]
    weight, purpose, flat = 4, "chain", True

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw additions or subtractions of one width that produce, propagate and consume a carry."""

        def family(opcode: str) -> tuple[bool, str]:
            return opcode[:3] == "sub", opcode[-2:]

        def follow(purpose: str) -> Compute:
            return Compute.of(maker, maker.opcode(purpose, lambda opcode: family(opcode) == family(start)))

        start = maker.opcode("chain")
        links = [follow("link") for _ in range(maker.draw.integer(0, 2))]
        return cls((Compute.of(maker, start), *links, follow("end")))

    def write(self, writer: Writer, mask: str) -> None:
        """Write the instructions of a chain; nothing between them changes the carry."""
        for part in self.parts:
            part.write(writer, mask)

    def simpler(self) -> Iterator[Statement]:
        """Variants of the chain: without one instruction, or with one simpler instruction."""
        parts = self.parts
        for i in range(1, len(parts) - 1):
            yield Chain((*parts[:i], *parts[i + 1 :]))
        for i, part in enumerate(parts):
            for simple in part.simpler():
                yield Chain((*parts[:i], simple, *parts[i + 1 :]))

    def touched(self) -> tuple[set[str], set[str]]:
        """The registers that the instructions of a chain read and write."""
        reads, writes = zip(*(part.touched() for part in self.parts), strict=True)
        return set[str]().union(*reads), set[str]().union(*writes)


def _sources_of(row: Row, form: Form) -> list[OperandSpec]:
    """The source operands that appear in a form's PTX text, unlike the carry."""
    return [
        spec
        for spec in row.sources
        if spec.kind != "carry" and not spec.absent and (form.combines or not spec.optional)
    ]


def _guarded(writer: Writer, row: Row, form: Form, spec: OperandSpec, operand: Operand) -> str:
    """A source operand in PTX, after the instruction that makes the result well defined."""
    kind = form.resolve(spec.kind)
    guard = guard_of(row, spec.name, kind)
    if guard is None:
        return written(operand, form, spec)
    (operation, number), word = guard, register_class(kind)
    if operation == "mov":
        return writer.result(f"mov.{word}", number)
    if isinstance(operand, int):
        return literal(kind, operand | number if operation == "or" else operand & number)
    return writer.result(f"{operation}.{word}", operand, number)


def _distinct(writer: Writer, form: Form, spec: OperandSpec, i: int, sources: list[str]) -> str:
    """Operand ``i`` of a float instruction, hidden from the compiler if a literal or repeated register.

    With such operands a compiler may produce another NaN than the instruction.
    """
    kind, source = form.resolve(spec.kind), sources[i]
    if kind == "pred" or (source.startswith("%") and source not in sources[:i]):
        return source
    if not source.startswith("%"):
        source = writer.result(f"mov.{kind}", source)
    hidden = writer.new(register_class(kind))
    writer.veil(hidden, source)
    return hidden
