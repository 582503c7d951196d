"""The registers that each step of a program writes, and readers of their values after the step.

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

from simwarp.observe.registers import typed_registers
from simwarp.observe.trace.model import TracedInstruction
from simwarp.ptx.kinds import MATRIX_STORE, REDUCTION, STORE
from simwarp.ptx.rows import DTYPES, storage
from simwarp.ptx.syntax import Group, Instruction, Pair

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Mask
    from simwarp.program.program import Program, Step

_SHOWS_SOURCES = (STORE, MATRIX_STORE, REDUCTION)
"""Kinds of row that write no register: a trace holds their stored operands instead."""


class StepReader:
    """Reads the registers that one instruction writes, after each execution."""

    def __init__(self, it: Instruction, registers: Sequence[tuple[str, str]], slots: Sequence[int]) -> None:
        file, line = (it.source.file, it.source.line) if it.source else ("", 0)
        text = " ".join(it.text.split())
        self.instruction = TracedInstruction(it.line, it.opcode, text, file, line, tuple(registers))
        self.slots = list(slots)
        self._layout: np.dtype[Any] | None = None

    def read(self, chunk: Chunk, rows: npt.NDArray[np.intp], mask: Mask) -> tuple[int, bytes]:
        """The bytes per lane, and the registers' bytes in the lanes of ``mask`` (rows, 32)."""
        if not self.slots:
            return 0, b""
        values = [chunk.registers[slot] for slot in self.slots]
        layout = self._layout or self._set_layout(values)
        words = np.zeros(mask.shape, layout)
        for field, value in zip(layout.names or (), values, strict=True):
            words[field] = np.broadcast_to(value, chunk.mask.shape)[rows]
        return layout.itemsize, words[mask].tobytes()

    def _set_layout(self, values: list[Any]) -> np.dtype[Any]:
        """Set the layout, with registers declared wider than the instruction's type (PTX ISA 9.4.1)."""
        pairs = zip(self.instruction.registers, values, strict=True)
        registers = tuple((name, _widened(kind, value.dtype)) for (name, kind), value in pairs)
        self.instruction = replace(self.instruction, registers=registers)
        self._layout = self.instruction.layout
        return self._layout


def _widened(kind: str, declared: np.dtype[Any]) -> str:
    """The type of a register: ``kind``, or the same kind of type in the declared width."""
    if storage(kind) == declared:
        return kind
    return f"{ {'i': 's', 'u': 'u'}.get(DTYPES[kind].kind, 'b') }{declared.itemsize * 8}"


def readers(program: Program) -> list[StepReader]:
    """For each step of a program, a reader of the registers to record."""
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
    """The registers that a trace holds for a step, with their types."""
    operands, form = step.instruction.operands, step.form
    if step.call is not None:
        host_call = step.call.function and step.call.function not in program.routines
        if host_call and operands and isinstance(operands[0], Group):  # host calls return at once
            yield from typed_registers(operands[0], "b64", whole=True)
    elif step.kind in _SHOWS_SOURCES:
        stored = [spec for spec in step.row.sources if not spec.memory]
        for operand, spec in zip(operands[1:], stored, strict=False):
            if spec.is_fragment or not step.kind.fragments:
                whole = spec.is_fragment or form.vector > 1
                yield from typed_registers(operand, form.resolve(spec.kind), whole=whole)
    elif specs := step.row.destinations:
        if any(spec.kind != "carry" for spec in specs):
            first, whole = operands[0], form.vector > 1 or specs[0].is_fragment
            parts = (first.first, first.second) if isinstance(first, Pair) else (first,)
            for part, spec in zip(parts, specs, strict=False):
                kind = form.T if spec.kind == "B" else form.resolve(spec.kind)
                yield from typed_registers(part, kind, whole=whole)
        if any(spec.kind == "carry" for spec in specs):
            yield "%carry", "pred"
