"""What is fixed of a traced step: its lines, its text, and which registers to look at after it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.ptx.rows import DTYPES, storage
from simwarp.ptx.syntax import Group, Instruction, Operand, Pair, Register, Vector

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask
    from simwarp.program.program import Program, Step

_SHOWS_SOURCES = ("store", "matrix store", "reduction")
"""Kinds of row that write no register: what they write to memory is in the operands after the address."""


@dataclass(frozen=True)
class TracedInstruction:
    """One instruction of a traced kernel.

    Attributes
    ----------
    line : int
        Of the PTX text.
    opcode, text : str
    source_file, source_line
        The line of CUDA C++ that it was compiled from; "" and 0 where that is not known.
    registers : tuple of (name, type)
        Those that it writes; of a store or reduction those that go to memory.

    Examples
    --------
    >>> TracedInstruction(9, "mov.u32", "mov.u32 %r1, 5;", "kernels/mm.cu", 42).source
    'mm.cu:42'
    """

    line: int
    opcode: str
    text: str
    source_file: str = ""
    source_line: int = 0
    registers: tuple[tuple[str, str], ...] = ()

    @property
    def source(self) -> str:
        """The source line in short; "" where it is not known."""
        return f"{self.source_file.rpartition('/')[2]}:{self.source_line}" if self.source_file else ""

    @property
    def layout(self) -> np.dtype[Any]:
        """What one lane writes, as a structure with a field for each register, in order."""
        return lane_layout([storage(kind).itemsize for _, kind in self.registers])

    def stands_at(self, line: str | int) -> bool:
        """Whether a line is this one: "mm.cu:42" or "src/mm.cu:42" of the source; 17, "ptx:17" of the PTX."""
        file, _, number = str(line).rpartition(":")
        if file in ("", "ptx"):
            return number == str(self.line)
        known = f"/{self.source_file}".endswith(f"/{file.lstrip('/')}")
        return known and number == str(self.source_line)


def lane_layout(widths: Sequence[int]) -> np.dtype[Any]:
    """A structure of words of these widths in bytes, without gaps.

    Examples
    --------
    >>> lane_layout([4, 1]).itemsize
    5
    """
    return np.dtype([(f"word{i}", f"<u{width}") for i, width in enumerate(widths)])


class StepReader:
    """Reads the registers that a step wrote.

    Parameters
    ----------
    instruction : Instruction
    registers : sequence of (name, type, slot)
        With the type in which the instruction takes them.
    """

    def __init__(self, instruction: Instruction, registers: Sequence[tuple[str, str, int]]) -> None:
        self.instruction, self.registers = instruction, list(registers)
        self.slots = [slot for _, _, slot in registers]
        self._layout: np.dtype[Any] | None = None

    def facts(self) -> TracedInstruction:
        """What of it goes into a recording."""
        it, source = self.instruction, self.instruction.source
        registers = tuple((name, kind) for name, kind, _ in self.registers)
        file, line = (source.file, source.line) if source else ("", 0)
        return TracedInstruction(it.line, it.opcode, " ".join(it.text.split()), file, line, registers)

    def read(self, chunk: Chunk, rows: npt.NDArray[np.intp], mask: Mask) -> tuple[int, bytes]:
        """What the lanes of ``mask``, (rows, 32), wrote: the bytes of one lane, and all of them in order."""
        if not self.slots:
            return 0, b""
        values = [chunk.registers[slot] for slot in self.slots]
        layout = self._layout or self._declared(values)
        words = np.zeros(mask.shape, layout)
        for field, value in zip(layout.names or (), values, strict=True):
            words[field] = np.broadcast_to(value, chunk.mask.shape)[rows]
        return layout.itemsize, words[mask].tobytes()

    def _declared(self, values: list[Any]) -> np.dtype[Any]:
        """Make the types those with which the registers are declared: they can be wider (PTX ISA 9.4.1)."""
        self.registers = [
            (name, _widened(kind, value.dtype), slot)
            for (name, kind, slot), value in zip(self.registers, values, strict=True)
        ]
        self._layout = self.facts().layout
        return self._layout


def _widened(kind: str, declared: np.dtype[Any]) -> str:
    if storage(kind) == declared:
        return kind
    sign = DTYPES[kind].kind
    return f"{'s' if sign == 'i' else 'u' if sign == 'u' else 'b'}{declared.itemsize * 8}"


def readers(program: Program) -> list[StepReader]:
    """A reader for each step of a program.

    Examples
    --------
    >>> from simwarp.program.link import link
    >>> from simwarp.ptx.parse import parse
    >>> module = parse('''.version 9.0 .target sm_90
    ... .entry k() { .reg .b32 %a<3>; mov.b32 %a1, 1; add.cc.u32 %a2, %a1, 2; ret; }''')
    >>> program = link(module, module.entries["k"])
    >>> [reader.facts().registers for reader in readers(program)]
    [(('%a1', 'b32'),), (('%a2', 'u32'), ('%carry', 'pred')), ()]
    """
    routines = sorted(program.routines.values(), key=lambda routine: routine.first)
    starts = [routine.first for routine in routines]
    slots = [{program.registers[slot]: slot for slot in routine.slots} for routine in routines]
    found: list[StepReader] = []
    for number, step in enumerate(program.steps):
        here = slots[bisect_right(starts, number) - 1]
        named = [(name, kind, here[name]) for name, kind in _registers(program, step) if name in here]
        found.append(StepReader(step.instruction, named))
    return found


def _registers(program: Program, step: Step) -> Iterator[tuple[str, str]]:
    """The registers that a step is traced with, and the type in which it takes each."""
    operands, form = step.instruction.operands, step.form
    if step.call is not None:
        if step.call.function and step.call.function not in program.routines:  # a host function is done
            yield from ((name, "b64") for name, _ in _named(_returns(operands), ("b64",), whole=False))
    elif step.kind in _SHOWS_SOURCES:
        written = [spec for spec in step.row.sources if not spec.memory]
        for operand, spec in zip(operands[1:], written, strict=False):
            if spec.is_fragment or not step.kind.startswith("matrix"):
                yield from _named(operand, (form.resolve(spec.kind),), spec.is_fragment or form.vector > 1)
    elif step.row.destinations:
        kinds = [form.T if spec.kind == "B" else form.resolve(spec.kind) for spec in step.row.destinations]
        written = operands[0] if any(spec.kind != "carry" for spec in step.row.destinations) else None
        whole = form.vector > 1 or step.row.destinations[0].is_fragment
        yield from _named(written, kinds, whole)
        if any(spec.kind == "carry" for spec in step.row.destinations):
            yield "%carry", "pred"


def _returns(operands: tuple[Operand, ...]) -> Operand | None:
    return operands[0] if operands and isinstance(operands[0], Group) else None


def _named(operand: Operand | None, kinds: Sequence[str], whole: bool) -> Iterator[tuple[str, str]]:
    """The registers of an operand; unless a vector's are whole, each is as wide as its part of the word."""
    kind = kinds[0]
    if isinstance(operand, Register):
        yield operand.name, kind
    elif isinstance(operand, Pair):
        for part, its_kind in zip((operand.first, operand.second), kinds, strict=False):
            yield from _named(part, (its_kind,), whole=False)
    elif isinstance(operand, Vector | Group):
        if isinstance(operand, Vector) and not whole:
            kind = f"b{DTYPES[kind].itemsize * 8 // len(operand.elements)}"
        for element in operand.elements:
            if isinstance(element, Register):
                yield element.name, kind
