"""A kernel made ready to run: registers have slots, labels are step numbers, rows are bound.

`link` turns an `Function` (syntax) into a `Program`. Each instruction becomes a `Step`: its row's
function, and one small closure per operand that reads or writes it in the state of a `Chunk`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.faults import PtxSyntaxError, UnsupportedInstruction
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.operands import Compute, Read, Write, computation, register_reader, register_writer
from simwarp.ptx.rows import DTYPES, Form, OperandSpec, Row, storage
from simwarp.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)

if TYPE_CHECKING:
    from simwarp.ptx.chunk import Chunk


@dataclass
class Step:
    """One instruction, ready to run.

    Attributes
    ----------
    sources, destinations
        Closures in the order of the row's operands. A destination that is not wanted is None.
    guard
        Reads the predicate, or None.
    target : int
        The step a branch goes to.
    base, offset, space, symbol
        Of a memory access: the closure that reads the base address, what is added to it, the
        state space, and the parameter's name.
    polls : bool
        Of a backward branch: whether its loop reads what other lanes write.
    compute
        Of a step that only computes on registers: all of it.
    """

    instruction: Instruction
    row: Row
    form: Form
    function: Callable[..., Any]
    sources: tuple[Read, ...] = ()
    destinations: tuple[Write | None, ...] = ()
    guard: Read | None = None
    target: int = -1
    base: Read | None = None
    offset: int = 0
    space: str = ""
    symbol: str = ""
    polls: bool = False
    compute: Compute | None = None


@dataclass
class Program:
    """A kernel as a list of steps.

    Attributes
    ----------
    registers : list of str
        The name of each register slot.
    parameters : list of Variable
    shared_size : int
        Bytes of statically declared shared memory.
    """

    name: str
    steps: list[Step]
    registers: list[str]
    parameters: list[Variable]
    shared_size: int = 0
    max_threads: int | None = None
    dynamic_shared_at: int = 0


def link(module: Module, entry: Function) -> Program:
    """Make a kernel ready to run.

    Raises
    ------
    UnsupportedInstruction
        An instruction without a row; names the line and the nearest spellings.
    PtxSyntaxError
        Operands that do not fit the instruction, or names that were never declared.

    Examples
    --------
    >>> from simwarp.ptx.parse import parse
    >>> module = parse(".version 9.0 .target sm_90 .entry nothing() { ret; }")
    >>> [step.row.name for step in link(module, module.entries["nothing"]).steps]
    ['ret']
    """
    return _Linker(module, entry).program()


@dataclass
class _Linker:
    module: Module
    entry: Function
    slots: dict[str, int] = field(default_factory=dict[str, int])
    addresses: dict[str, int] = field(default_factory=dict[str, int])
    shared_size: int = 0

    def program(self) -> Program:
        self.slots = {name: i for i, name in enumerate(self.entry.registers)}
        dynamic_at = self.place_shared()
        steps = [self.step(i) for i in self.entry.instructions]
        for i, step in enumerate(steps):
            step.polls = step.row.kind == "branch" and any(map(_polls, steps[step.target : i]))
        last = steps[-1] if steps else None
        ends = last and last.guard is None and last.row.kind in ("exit", "branch", "trap")
        if not ends or len(steps) in self.entry.labels.values():
            # Falling off the end is an exit; `ret` spells it.
            row, form = _require(TABLE.find("ret"))
            end = Instruction("ret", (), None, self.entry.line, "}")
            steps.append(Step(end, row, form, partial(row.function, form)))
        return Program(
            self.entry.name,
            steps,
            list(self.entry.registers),
            self.entry.parameters,
            self.shared_size,
            self.entry.max_threads,
            dynamic_at,
        )

    def place_shared(self) -> int:
        """Give each shared variable its offset; extern ones all start behind the others."""
        variables = [*self.module.variables, *self.entry.variables]
        for v in variables:
            if v.space != "shared":
                raise UnsupportedInstruction(
                    f"kernel {self.entry.name}: variable {v.name} in .{v.space}: only .shared variables are "
                    "supported\npass the data as a kernel parameter"
                )
        at = 0
        for v in (v for v in variables if v.count):
            size = DTYPES[v.type].itemsize
            at = -(-at // max(v.alignment, size)) * max(v.alignment, size)
            self.addresses[v.name] = at
            at += size * v.count
        self.shared_size = at
        dynamic_at = -(-at // 16) * 16
        for v in (v for v in variables if not v.count):
            self.addresses[v.name] = dynamic_at
        return dynamic_at

    # ---- one instruction ---------------------------------------------------------------------------

    def step(self, instruction: Instruction) -> Step:
        found = TABLE.find(instruction.opcode)
        if found is None:
            known = ", ".join(TABLE.relatives(instruction.opcode)) or "no form of this instruction"
            raise UnsupportedInstruction(
                f"line {instruction.line}: `{instruction.text}` is not supported\n"
                f"of {instruction.opcode.split('.')[0]}, this version runs: {known}\n"
                "`simwarp.ptx.instructions` holds the rows; a new instruction is one new row"
            )
        row, form = found
        step = Step(instruction, row, form, partial(row.function, form))
        if instruction.guard is not None:
            step.guard = self.reader(instruction, instruction.guard, "pred")
        self.operands(step)
        return step

    def operands(self, step: Step) -> None:
        """Bind the operands, in PTX order: what is written, then what is read."""
        row, rest = step.row, list(step.instruction.operands)
        if row.destinations:
            first = rest.pop(0) if rest else None
            self.check_vector(step, first)
            pair = first if isinstance(first, Pair) else Pair(None, None)
            given = [first] if not isinstance(first, Pair) else [pair.first, pair.second]
            if any(spec.kind == "carry" for spec in row.destinations):
                given.append(self.carry())
            if len(given) > len(row.destinations):
                raise self.misfit(step)
            step.destinations = tuple(
                self.writer(step, operand, spec)
                for operand, spec in zip(given, row.destinations, strict=False)
            )
        sources: list[Read] = []
        for spec in row.sources:
            if spec.optional and not step.form.combines:
                break
            if spec.kind == "carry":
                sources.append(self.reader(step.instruction, self.carry(), "pred"))
                continue
            if not rest:
                raise self.misfit(step)
            operand = rest.pop(0)
            if spec.memory:
                self.address(step, operand)
            elif spec.kind == "label":
                step.target = self.label(step, operand)
            else:
                self.check_vector(step, operand)
                if spec.kind == "number" and not isinstance(operand, Immediate):
                    raise self.misfit(step)
                sources.append(
                    self.reader(step.instruction, operand, step.form.resolve(spec.kind), step.form)
                )
        step.sources = tuple(sources)
        if row.kind == "pure":
            step.compute = computation(step.function, sources, step.destinations, len(row.destinations))
        if rest:
            raise self.misfit(step)

    def carry(self) -> Register:
        """The register that stands for the condition code's carry flag (PTX ISA 9.7.2)."""
        self.slots.setdefault("%carry", len(self.slots))
        self.entry.registers["%carry"] = "pred"
        return Register("%carry")

    def misfit(self, step: Step) -> PtxSyntaxError:
        text, line = step.instruction.text, step.instruction.line
        return PtxSyntaxError(
            f"line {line}: operands of `{text}` do not fit `{step.row.spelling}  {step.row.syntax}`"
        )

    def check_vector(self, step: Step, operand: Operand | None) -> None:
        """A vector access moves as many registers as it says."""
        wanted = step.form.vector
        if wanted > 1 and not (isinstance(operand, Vector) and len(operand.elements) == wanted):
            raise self.misfit(step)

    def label(self, step: Step, operand: Operand) -> int:
        if not isinstance(operand, Symbol) or operand.name not in self.entry.labels:
            raise PtxSyntaxError(
                f"line {step.instruction.line}: `{step.instruction.text}` names no label of this kernel"
            )
        return self.entry.labels[operand.name]

    def address(self, step: Step, operand: Operand) -> None:
        if not isinstance(operand, Address):
            raise self.misfit(step)
        step.offset = operand.offset
        step.space = next(m for m in ("param", "global", "shared") if step.form.has(m))
        if step.space == "param":
            step.symbol = operand.base.name if isinstance(operand.base, Symbol) else ""
            sizes = {p.name: DTYPES[p.type].itemsize * p.count for p in self.entry.parameters}
            room = sizes.get(step.symbol, 0) - step.form.dtype.itemsize * step.form.vector
            if not 0 <= step.offset <= room:
                raise self.misfit(step)
        else:
            step.base = self.reader(step.instruction, operand.base, "u64")

    # ---- operands ----------------------------------------------------------------------------------

    def slot(self, instruction: Instruction, register: Register) -> int:
        if register.name not in self.slots:
            raise PtxSyntaxError(
                f"line {instruction.line}: register {register.name} of `{instruction.text}` is not declared"
            )
        return self.slots[register.name]

    def reader(self, instruction: Instruction, operand: Operand, kind: str, form: Form | None = None) -> Read:
        """A closure that reads an operand as PTX type ``kind``."""
        if isinstance(operand, Immediate):
            if DTYPES[kind].kind == "f" and not operand.float_bits:
                raise PtxSyntaxError(
                    f"line {instruction.line}: `{instruction.text}` has {operand.value} where a {kind} "
                    "literal such as 0f3F800000 is needed"
                )
            constant = _constant(operand, kind)
            return lambda chunk: constant
        if isinstance(operand, Symbol):
            if operand.name == "WARP_SZ":
                constant = DTYPES[kind].type(32)
            elif operand.name in self.addresses:
                constant = DTYPES[kind].type(self.addresses[operand.name])
            else:
                raise PtxSyntaxError(
                    f"line {instruction.line}: `{instruction.text}` names {operand.name}, "
                    "which is not declared"
                )
            return lambda chunk: constant
        if isinstance(operand, Vector):
            wanted = form.vector if form else 1
            if wanted > 1:
                parts = [self.reader(instruction, e, kind) for e in operand.elements]
                return lambda chunk: [part(chunk) for part in parts]
            return self.packed(instruction, operand, kind)
        if not isinstance(operand, Register):
            raise PtxSyntaxError(
                f"line {instruction.line}: an operand of `{instruction.text}` is not a value"
            )
        if operand.name not in self.slots and operand.name in SPECIAL_REGISTERS:
            name = operand.name
            return lambda chunk: chunk.special(name)
        slot = self.slot(instruction, operand)
        declared, wanted_type = storage(self.entry.registers[operand.name]), DTYPES[kind]
        return register_reader(slot, declared, wanted_type, operand.negated)

    def packed(self, instruction: Instruction, operand: Vector, kind: str) -> Read:
        """``mov.b64 d, {low, high}``: several registers as one word."""
        word = storage(kind)
        bits = self.piece(instruction, operand, kind)
        parts = [self.reader(instruction, e, f"b{bits}") for e in operand.elements]

        def read(chunk: Chunk) -> Any:
            value = word.type(0)
            for i, part in enumerate(parts):
                value = value | (np.asarray(part(chunk)).astype(word) << word.type(i * bits))
            return value

        return read

    def piece(self, instruction: Instruction, operand: Vector, kind: str) -> int:
        """The width of each of the registers that make one word."""
        bits, rest = divmod(DTYPES[kind].itemsize * 8, len(operand.elements))
        types = [self.entry.registers.get(e.name) for e in operand.elements if isinstance(e, Register)]
        if rest or any(t is not None and storage(t).itemsize * 8 != bits for t in types):
            raise PtxSyntaxError(
                f"line {instruction.line}: the pieces of `{instruction.text}` do not make a {kind}"
            )
        return bits

    def writer(self, step: Step, operand: Operand | None, spec: OperandSpec) -> Write | None:
        """A closure that writes a value of the specification's type to a destination."""
        if isinstance(operand, Vector):
            parts = [self.writer(step, e, spec) for e in operand.elements]
            if step.form.vector > 1:
                return partial(_write_each, parts)
            bits = self.piece(step.instruction, operand, step.form.resolve(spec.kind))
            return partial(_write_unpacked, parts, bits)
        if operand is None or (isinstance(operand, Register) and operand.name == "_"):
            return None
        if isinstance(operand, Symbol) and operand.name == "_":
            return None
        if not isinstance(operand, Register):
            raise self.misfit(step)
        slot = self.slot(step.instruction, operand)
        return register_writer(slot, storage(self.entry.registers[operand.name]))


def _polls(step: Step) -> bool:
    """Whether a step asks memory for what other lanes may have written."""
    return step.row.kind == "atomic" or any(map(step.form.has, ("volatile", "relaxed", "acquire")))


def _write_each(parts: list[Write | None], chunk: Chunk, values: list[Any]) -> None:
    for part, value in zip(parts, values, strict=True):
        if part is not None:
            part(chunk, value)


def _write_unpacked(parts: list[Write | None], bits: int, chunk: Chunk, value: Any) -> None:
    for i, part in enumerate(parts):
        if part is not None:
            part(chunk, np.asarray(value >> value.dtype.type(i * bits)).astype(f"u{bits // 8}"))


def _constant(operand: Immediate, kind: str) -> Any:
    """A literal as a value of PTX type ``kind``: cut to its width, or a float's bits."""
    dtype = DTYPES[kind]
    if dtype.kind == "b":
        return np.bool_(operand.value != 0)
    value, size = operand.value, dtype.itemsize
    if operand.float_bits not in (0, size * 8):  # a literal of the other width is rounded, not cut
        given = operand.float_bits // 8
        with np.errstate(all="ignore"):
            rounded = np.dtype(f"f{size}").type(np.dtype(f"u{given}").type(value).view(f"f{given}"))
        value = int(rounded.view(f"u{size}"))
    bits = value & ((1 << size * 8) - 1)
    return np.dtype(f"u{dtype.itemsize}").type(bits).view(dtype)


def _require(found: tuple[Row, Form] | None) -> tuple[Row, Form]:
    if found is None:
        raise UnsupportedInstruction("the table has no `ret`")
    return found


SPECIAL_REGISTERS = frozenset(
    [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    + ["%laneid", "%warpid", "%nwarpid"]
    + [f"%lanemask_{relation}" for relation in ("eq", "le", "lt", "ge", "gt")]
)
"""The special registers of this version (PTX ISA chapter 10)."""
