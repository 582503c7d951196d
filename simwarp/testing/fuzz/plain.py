"""How statements of one thread are written: computing, memory, calls, hints.

Examples
--------
The PTX ISA leaves division by zero open, so that the lowest bit of the divisor is set:

>>> from simwarp.testing.fuzz.program import Program
>>> writer = Writer(Program(0, 0, (), veiled=False))
>>> writer.block([Compute("div.u32", ("%r0",), ("%r1", "%r2"))], "%members")
>>> [line.strip() for line in writer.text.lines]
['or.b32 %t0, %r2, 1;', 'div.u32 %r0, %r1, %t0;']
"""

from __future__ import annotations

from dataclasses import replace

from simwarp.ptx.rows import Form, OperandSpec, Row
from simwarp.testing.fuzz.lines import literal, vector, written
from simwarp.testing.fuzz.program import (
    CLASS,
    Atomic,
    Call,
    Chain,
    Compute,
    Hint,
    Load,
    Locate,
    Operand,
    Store,
    Sync,
    register_class,
)
from simwarp.testing.fuzz.vocabulary import find, guard_of
from simwarp.testing.fuzz.writer import Writer, writes

MIX = """
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
"""What a `Call` calls: rounds of multiplication, as many as the first word's two lowest bits say."""
_UNGUARDED = ("set", "testp")


@writes(Compute)
def compute(writer: Writer, statement: Compute, mask: str) -> None:
    """A pure instruction, its operands and its NaN kept where the PTX ISA fixes the result."""
    row, form = find(statement.opcode)
    if writer.text.guard and (row.base in _UNGUARDED or row.base[0] == "v"):
        return without_guard(writer, statement, mask)
    specs = sources_of(row, form)
    sources = [guarded(writer, row, form, s, o) for s, o in zip(specs, statement.sources, strict=True)]
    if writer.program.veiled and "f" in form.resolve(specs[0].kind):
        sources = [apart(writer, form, spec, i, sources) for i, spec in enumerate(specs)]
    targets = "|".join(vector(target) for target in statement.destinations)
    writer.write(f"{statement.opcode} {', '.join([targets, *sources])}")
    if form.resolve(row.destinations[0].kind) == "f64":
        canonical(writer, vector(statement.destinations[0]))
    return None


def apart(writer: Writer, form: Form, spec: OperandSpec, i: int, sources: list[str]) -> str:
    """Operand ``i`` of a float instruction, hidden if it is a number, or the same as one before.

    Of such operands a compiler makes another NaN than the instruction does.
    """
    kind, source = form.resolve(spec.kind), sources[i]
    if kind == "pred" or (source.startswith("%") and source not in sources[:i]):
        return source
    word = register_class(kind)
    if not source.startswith("%"):
        source = writer.give(f"mov.{kind}", word, source)
    hidden = writer.text.new(word)
    writer.memory.veil(hidden, source)
    return hidden


def without_guard(writer: Writer, statement: Compute, mask: str) -> None:
    """An instruction to another register, and ``mov`` under the predicate.

    ``set``, ``testp`` and the video instructions become several of the chip; some of these ptxas 13.0
    executes also for lanes whose predicate does not hold.
    """
    guard, writer.text.guard = writer.text.guard, ""
    (target,) = map(vector, statement.destinations)
    kind = CLASS[target]
    result = writer.text.new(kind)
    writer.block((replace(statement, destinations=(result,)),), mask)
    writer.text.guard = guard
    writer.write(f"mov.{kind} {target}, {result}")


def canonical(writer: Writer, register: str) -> None:
    """One NaN of 64 bits for all: which payload goes on depends on how a compiler orders operands."""
    nan = writer.give("setp.nan.f64", "pred", register, register)
    writer.write(f"selp.b64 {register}, 0x7FF8000000000000, {register}, {nan}")


def sources_of(row: Row, form: Form) -> list[OperandSpec]:
    """The operands that an instruction reads and PTX writes down."""
    return [
        spec
        for spec in row.sources
        if spec.kind != "carry" and not spec.absent and (form.combines or not spec.optional)
    ]


def guarded(writer: Writer, row: Row, form: Form, spec: OperandSpec, operand: Operand) -> str:
    """A source operand, after its guard."""
    kind = form.resolve(spec.kind)
    guard = guard_of(row, spec.name, kind)
    if guard is None:
        return written(operand, form, spec)
    (operation, number), word = guard, register_class(kind)
    if operation == "mov":
        return writer.give(f"mov.{word}", word, number)
    if isinstance(operand, int):
        return literal(kind, operand | number if operation == "or" else operand & number)
    return writer.give(f"{operation}.{word}", word, operand, number)


@writes(Chain)
def chain(writer: Writer, statement: Chain, mask: str) -> None:
    """The parts, and nothing between them that has a carry."""
    for part in statement.parts:
        compute(writer, part, mask)


@writes(Load, Store, Atomic)
def access(writer: Writer, statement: Load | Store | Atomic, mask: str) -> None:
    """A load, a store or an atomic operation."""
    writer.memory.access(statement)


@writes(Hint)
def hint(writer: Writer, statement: Hint, mask: str) -> None:
    """An instruction about an address; some say how many bytes they mean."""
    row, _ = find(statement.opcode)
    size = ", 128" * (len(row.sources) > 1)
    writer.write(f"{statement.opcode} {writer.memory.address(statement.place, 16)}{size}")


@writes(Sync)
def sync(writer: Writer, statement: Sync, mask: str) -> None:
    """Barriers, fences, hints without an address."""
    for opcode in statement.opcodes:
        wait(writer, opcode, mask)


def wait(writer: Writer, opcode: str, mask: str) -> None:
    """One instruction that gives nothing back: a barrier takes its number, the others what they need."""
    row, _ = find(opcode)
    operand = {"warp barrier": f" {mask}", "barrier": " 0"}.get(row.kind, " 5" * bool(row.sources))
    writer.write(opcode + operand)


@writes(Call)
def call(writer: Writer, statement: Call, mask: str) -> None:
    """A call sequence in a scope of its own."""
    first, second = statement.sources
    writer.text.lines += ["\t{", "\t.param .b32 one;", "\t.param .b32 two;", "\t.param .b32 back;"]
    writer.write(f"st.param.b32 [one], {first}")
    writer.write(f"st.param.b32 [two], {second}")
    writer.write(f"{statement.opcode} (back), mix, (one, two)")
    writer.write(f"ld.param.b32 {statement.destination}, [back]")
    writer.text.lines.append("\t}")


@writes(Locate)
def locate(writer: Writer, statement: Locate, mask: str) -> None:
    """Whether an address is in a space; its block in the cluster, 0; what lies at its mapped address."""
    row, form = find(statement.opcode)
    wide = row.base == "isspacep" or form.T == "u64"
    base = writer.memory.base(f"%{'generic_' if wide else ''}{statement.region}")
    if row.base == "mapa":
        kind = "b64" if wide else "b32"
        # A generic address is mapped to a generic one, an address in shared memory to one of the cluster.
        space = ".shared::cluster" if form.has("shared::cluster") else ""
        address = base if wide == (not space) else writer.memory.base(f"%wide_{statement.region}")
        mapped = writer.give(statement.opcode, kind, address, 0)
        return writer.write(f"ld{space}.b32 {statement.destination}, [{mapped}]")
    return writer.write(f"{statement.opcode} {statement.destination}, {base}")
