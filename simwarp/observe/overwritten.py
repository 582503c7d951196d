"""Source values of instructions that overwrite their own sources, such as ``add.u32 %r1, %r1, 1``.

Observers receive a step after its results are written. For registers that some instruction both reads and
writes, the previous value is therefore kept. Calls and returns may change registers after their event, so
values are unknown until the next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.lanes import WARP_SIZE
from simwarp.program.liveness import registers_in
from simwarp.ptx.kinds import CALL, RETURN
from simwarp.ptx.syntax import Address, Operand

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Mask
    from simwarp.program.program import Program, Step


class Overwritten:
    """The values, before the current step, of registers that a program's instructions read and overwrite.

    >>> from simwarp.program.link import link
    >>> from simwarp.ptx.parse import parse
    >>> module = parse('''.version 9.0 .target sm_90
    ... .entry k() { .reg .b32 %a, %b; mov.b32 %a, 1; add.u32 %b, %a, %a; add.u32 %b, %b, %a; ret; }''')
    >>> Overwritten(link(module, module.entries["k"])).slots
    {2: [1]}
    """

    def __init__(self, program: Program) -> None:
        self.slots: dict[int, list[int]] = {}
        """The number of each step that overwrites its sources: the slots of these registers."""
        for routine in program.routines.values():
            names = {program.registers[slot]: slot for slot in routine.slots}
            for step in program.steps_of(routine):
                found = sorted(_written(step) & _names(step.instruction.operands[1:]) & names.keys())
                if found:
                    self.slots[step.number] = [names[name] for name in found]
        self._kept = sorted({slot for slots in self.slots.values() for slot in slots})
        self._values: dict[int, Any] = {}
        self._chunk: Chunk | None = None

    def before(self, chunk: Chunk, step: Step) -> list[Any] | None:
        """The chunk's registers as they were before the step; None if unknown."""
        slots = self.slots.get(step.number, [])
        if not slots:
            return chunk.registers
        if chunk is not self._chunk and not chunk.is_part:
            return None
        registers = list(chunk.registers)
        for slot in slots:
            value = self._values.get(slot)
            if value is None:
                return None
            whole = np.ndim(value) < 2 or value.shape[0] == 1 or not chunk.is_part
            registers[slot] = value if whole else value[chunk.warp[:, 0]]
        return registers

    def note(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Save the values of the registers that a step has written."""
        if step.kind in (CALL, RETURN):
            self._chunk, self._values = None, {}
            return
        if not chunk.is_part:
            self._chunk, self._values = chunk, {slot: chunk.registers[slot] for slot in self._kept}
            return
        written = _written(step)
        for slot in self._kept:
            if chunk.program.registers[slot] in written and chunk.registers[slot] is not None:
                self._put(slot, chunk, mask)

    def _put(self, slot: int, part: Chunk, mask: Mask) -> None:
        """Merge a value that the lanes of ``mask`` wrote in a part of the chunk into the saved values."""
        if self._chunk is None:
            return
        value, old = part.registers[slot], self._values.get(slot)
        whole = np.zeros((self._chunk.warps, WARP_SIZE), value.dtype)
        if old is not None:
            whole[...] = old
        rows = part.warp[:, 0]
        whole[rows] = np.where(mask, value, whole[rows])
        self._values[slot] = whole


def _written(step: Step) -> set[str]:
    return _names(step.instruction.operands[:1]) if step.row.destinations else set()


def _names(operands: tuple[Operand, ...]) -> set[str]:
    """The names of the registers in operands, except in addresses."""
    return set(registers_in(operand for operand in operands if not isinstance(operand, Address)))
