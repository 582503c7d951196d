"""The cost of each source line, from the PTX without a run: instructions, bytes and operations.

Each number is that of one thread that executes each instruction of the line once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from simwarp.observe.line_counts import line_of, sorted_lines
from simwarp.observe.traffic import operations
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.kinds import LOAD, STORE
from simwarp.ptx.rows import Form
from simwarp.ptx.spaces import space_of
from simwarp.ptx.syntax import Address, Instruction, Symbol


@dataclass
class LineCost:
    """The instructions of one line, and their cost in bytes and operations.

    Reads of parameters by name do not count, as in `simwarp.observe.traffic`, nor do copies and products of
    matrices, whose sizes their operands hold.
    """

    line: str  # "my.cu:42" with line information, else "ptx:17"
    # instructions in the order of the PTX
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    loaded: Counter[str] = field(default_factory=Counter[str])
    """Bytes by state space, "generic" where the PTX names none."""
    stored: Counter[str] = field(default_factory=Counter[str])
    atomics: Counter[str] = field(default_factory=Counter[str])  # operations by state space
    operations: Counter[str] = field(default_factory=Counter[str])  # operations by element type

    def add(self, instruction: Instruction) -> None:
        """Add an instruction; an unsupported one counts only as an instruction."""
        self.instructions.append(instruction)
        found = TABLE.find(instruction.opcode)
        if found is None:
            return
        row, form = found
        space = space_of(instruction.opcode.split(".")) or "generic"
        if row.kind is LOAD and not _reads_parameter(instruction):
            self.loaded[space] += _bytes(form)
        elif row.kind is STORE:
            self.stored[space] += _bytes(form)
        elif row.kind.is_atomic:
            self.atomics[space] += 1
        counted = operations(row, form.T)
        if counted is not None:
            self.operations[counted.type] += counted.number

    def to_json(self) -> dict[str, Any]:
        """The counts as plain data, without the instructions themselves."""
        names = ("loaded", "stored", "atomics", "operations")
        counts = {name: dict(sorted(getattr(self, name).items())) for name in names}
        return {"line": self.line, "instructions": len(self.instructions), **counts}


def line_costs(instructions: Iterable[Instruction]) -> list[LineCost]:
    """The cost of each line of a kernel, sorted by file and line.

    >>> from simwarp.ptx.parse import parse
    >>> text = '''.version 9.0 .target sm_90 .address_size 64
    ... .entry f(.param .u64 x) {
    ...     .reg .b32 %r<5>; .reg .b64 %a;
    ...     ld.param.u64 %a, [x];
    ...     ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a];
    ...     st.global.u32 [%a], %r1; ret; }'''
    >>> found = line_costs(parse(text).entries["f"].instructions)
    >>> [(cost.line, dict(cost.loaded), dict(cost.stored)) for cost in found][1:3]
    [('ptx:5', {'global': 16}, {}), ('ptx:6', {}, {'global': 4})]
    """
    costs: dict[str, LineCost] = {}
    for instruction in instructions:
        line = line_of(instruction)
        costs.setdefault(line, LineCost(line)).add(instruction)
    return [costs[line] for line in sorted_lines(costs)]


def _bytes(form: Form) -> int:
    """The bytes that a load or store moves in one lane."""
    return form.dtype.itemsize * form.vector


def _reads_parameter(instruction: Instruction) -> bool:
    """True if a load reads a parameter by its name."""
    address = next((x for x in instruction.operands if isinstance(x, Address)), None)
    return ".param" in instruction.opcode and address is not None and isinstance(address.base, Symbol)
