"""The registers that each step of a program writes, and their values after the step.

>>> from simwarp.program.link import link
>>> from simwarp.ptx.parse import parse
>>> module = parse('''.version 9.0 .target sm_90
... .entry k() { .reg .b32 %a<3>; mov.b32 %a1, 1; add.cc.u32 %a2, %a1, 2; ret; }''')
>>> [one.instruction.registers for one in readers(link(module, module.entries["k"]))]
[(('%a1', 'b32'),), (('%a2', 'u32'), ('%carry', 'pred')), ()]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.observe.trace.model import TracedInstruction
from simwarp.ptx.rows import DTYPES, storage
from simwarp.ptx.syntax import Group, Instruction, Operand, Pair, Register, Vector

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask
    from simwarp.program.program import Program, Step

_SHOWS_SOURCES = ("store", "matrix store", "reduction")
"""Kinds of row that write no register: the operands after the address are traced instead."""


class StepReader:
    """Reads the registers in ``slots``, which ``instruction`` wrote."""

    def __init__(self, it: Instruction, registers: Sequence[tuple[str, str]], slots: Sequence[int]) -> None:
        file, line = (it.source.file, it.source.line) if it.source else ("", 0)
        text = " ".join(it.text.split())
        self.instruction = TracedInstruction(it.line, it.opcode, text, file, line, tuple(registers))
        self.slots = list(slots)
        self._layout: np.dtype[Any] | None = None

    def read(self, chunk: Chunk, rows: npt.NDArray[np.intp], mask: Mask) -> tuple[int, bytes]:
        """The bytes per lane, and the data of the lanes of ``mask``, (rows, 32)."""
        if not self.slots:
            return 0, b""
        values = [chunk.registers[slot] for slot in self.slots]
        layout = self._layout or self._declared(values)
        words = np.zeros(mask.shape, layout)
        for field, value in zip(layout.names or (), values, strict=True):
            words[field] = np.broadcast_to(value, chunk.mask.shape)[rows]
        return layout.itemsize, words[mask].tobytes()

    def _declared(self, values: list[Any]) -> np.dtype[Any]:
        """Replace the types by the registers' declared ones, which may be wider (PTX ISA 9.4.1)."""
        pairs = zip(self.instruction.registers, values, strict=True)
        registers = tuple((name, _widened(kind, value.dtype)) for (name, kind), value in pairs)
        self.instruction = replace(self.instruction, registers=registers)
        self._layout = self.instruction.layout
        return self._layout


def _widened(kind: str, declared: np.dtype[Any]) -> str:
    if storage(kind) == declared:
        return kind
    return f"{ {'i': 's', 'u': 'u'}.get(DTYPES[kind].kind, 'b') }{declared.itemsize * 8}"


def readers(program: Program) -> list[StepReader]:
    """A reader for each step of a program."""
    slots = {
        routine.first: {program.registers[slot]: slot for slot in routine.slots}
        for routine in program.routines.values()
    }
    found: list[StepReader] = []
    for number, step in enumerate(program.steps):
        here = slots[program.routine_at(number).first]
        named = [(name, kind) for name, kind in _registers(program, step) if name in here]
        found.append(StepReader(step.instruction, named, [here[name] for name, _ in named]))
    return found


def _registers(program: Program, step: Step) -> Iterator[tuple[str, str]]:
    """The traced registers of a step, and the type of each operand."""
    operands, form = step.instruction.operands, step.form
    if step.call is not None:
        host_call = step.call.function and step.call.function not in program.routines
        if host_call and operands and isinstance(operands[0], Group):  # its results are there already
            yield from ((name, "b64") for name, _ in _named(operands[0], ("b64",), whole=False))
    elif step.kind in _SHOWS_SOURCES:
        stored = [spec for spec in step.row.sources if not spec.memory]
        for operand, spec in zip(operands[1:], stored, strict=False):
            if spec.is_fragment or not step.kind.startswith("matrix"):
                yield from _named(operand, (form.resolve(spec.kind),), spec.is_fragment or form.vector > 1)
    elif specs := step.row.destinations:
        if any(spec.kind != "carry" for spec in specs):
            kinds = [form.T if spec.kind == "B" else form.resolve(spec.kind) for spec in specs]
            yield from _named(operands[0], kinds, form.vector > 1 or specs[0].is_fragment)
        if any(spec.kind == "carry" for spec in specs):
            yield "%carry", "pred"


def _named(operand: Operand | None, kinds: Sequence[str], whole: bool) -> Iterator[tuple[str, str]]:
    """The registers of an operand; vector elements share the word unless each is a ``whole`` one."""
    kind = kinds[0]
    if isinstance(operand, Register):
        yield operand.name, kind
    elif isinstance(operand, Pair):
        for part, its_kind in zip((operand.first, operand.second), kinds, strict=False):
            yield from _named(part, (its_kind,), whole=False)
    elif isinstance(operand, Vector | Group):
        if isinstance(operand, Vector) and not whole:
            kind = f"b{DTYPES[kind].itemsize * 8 // len(operand.elements)}"
        yield from ((element.name, kind) for element in operand.elements if isinstance(element, Register))
