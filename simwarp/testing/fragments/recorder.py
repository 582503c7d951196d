"""Recording of the operands of matrix instructions while a kernel runs."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.values import shortened
from simwarp.device.device import Device
from simwarp.engine.events import Observer
from simwarp.faults import Place
from simwarp.observe.line_counts import ReportError, line_of
from simwarp.observe.overwritten import Overwritten
from simwarp.observe.trace.model import Block, block_number
from simwarp.ptx.syntax import Immediate, Instruction, Register, Vector
from simwarp.testing.fragments.check import Registers, check_fragment, operand_of

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Launch, Mask
    from simwarp.program.program import Program, Step


@shortened
@dataclass(frozen=True)
class Execution:
    """One execution of a matrix instruction by one warp.

    ``registers`` has those of each operand, (32, registers): sources before the execution, destinations after
    it. An operand is missing if its registers were no longer known; see `record_fragments`.
    """

    opcode: str
    place: Place  # kernel, block, warp and lines
    registers: Mapping[str, Registers]

    def matrix(self, operand: str) -> npt.NDArray[Any]:
        """The matrix in an operand's registers, as words (rows, columns) or (matrices, rows, columns)."""
        return operand_of(self.opcode, operand).layout.unpack(self._of(operand))

    def check(self, operand: str, matrix: npt.ArrayLike) -> None:
        """Assert that an operand's registers held a matrix: see `check_fragment`."""
        __tracebackhide__ = True
        check_fragment(self.opcode, operand, self._of(operand), matrix, place=self.place)

    def _of(self, operand: str) -> Registers:
        """The registers of an operand; raise ReportError if they are not known."""
        operand_of(self.opcode, operand)
        if operand not in self.registers:
            raise ReportError(
                f"operand {operand} is not known: {self.place}\n"
                f"its registers were overwritten directly after a call or return\n"
                f"known operands are {', '.join(self.registers)}; inline the function"
            )
        return self.registers[operand]


_NAMES = (
    (r"wmma\.load\.(a|b|c)\.", None, 0),
    (r"wmma\.store\.d\.", ("d",), 1),
    (r"(?:wmma\.mma|mma)\.", ("d", "a", "b", "c"), 0),
    (r"ldmatrix\.", ("r",), 0),
    (r"stmatrix\.", ("r",), 1),
    (r"movmatrix\.", ("d", "a"), 0),
)
"""A prefix of opcodes, the names of operands in registers, and the position of the first of them."""


def _named_operands(instruction: Instruction) -> list[tuple[str, tuple[Register | Immediate, ...]]]:
    """The operands in registers of a matrix instruction, by name; empty for other instructions."""
    for begin, names, first in _NAMES:
        found = re.match(begin, instruction.opcode)
        if found:
            operands = instruction.operands[first:]
            taken = zip(names or (found[1],), operands, strict=False)
            return [(name, _elements(operand)) for name, operand in taken]
    return []


_Slots: TypeAlias = "tuple[int | Immediate, ...]"
"""The slots of an operand's registers, or immediate values."""


def _read(slots: _Slots, registers: list[Any], shape: tuple[int, ...]) -> Registers:
    """The words of a fragment operand in all lanes, (warps, 32, registers)."""
    columns = [_literal(slot) if isinstance(slot, Immediate) else _word(registers[slot]) for slot in slots]
    return np.stack([np.broadcast_to(column, shape) for column in columns], axis=-1)


def _elements(operand: object) -> tuple[Register | Immediate, ...]:
    """The registers and immediate values that make up a fragment operand."""
    if isinstance(operand, Vector):
        return operand.elements
    return (operand,) if isinstance(operand, Register | Immediate) else ()


class FragmentRecorder(Observer):
    """Records the operands of matrix instructions of every warp; see `record_fragments`."""

    def __init__(self, opcode: str = "", line: str = "") -> None:
        self.opcode, self.line = opcode, line
        self.clear()

    def clear(self) -> None:
        """Delete all recorded executions."""
        self._launches: list[dict[tuple[int, int], list[tuple[Instruction, Execution]]]] = []
        self._grids: list[tuple[int, int, int]] = []
        self._lines: set[str] = set()

    def on_launch(self, launch: Launch) -> None:
        """Find the instructions to record, and the registers that they overwrite."""
        self._launches.append({})
        self._grids.append(launch.grid)
        self._overwritten = Overwritten(launch.program)
        self._operands = self._chosen(launch.program)

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Record the operands of a matrix instruction, if it is the recorder's."""
        if step.number in self._operands:
            self._keep(chunk, step, mask)
        self._overwritten.note(chunk, step, mask)

    def _chosen(self, program: Program) -> dict[int, dict[str, _Slots]]:
        """The operands of each instruction to record, by the number of its step."""
        found: dict[int, dict[str, _Slots]] = {}
        for routine in program.routines.values():
            slots = {program.registers[slot]: slot for slot in routine.slots}
            for step in program.steps_of(routine):
                instruction = step.instruction
                if instruction.opcode.startswith(self.opcode) and _stands_at(instruction, self.line):
                    held = {
                        name: tuple(slots[e.name] if isinstance(e, Register) else e for e in elements)
                        for name, elements in _named_operands(instruction)
                    }
                    if held:
                        self._lines.add(line_of(instruction))
                        found[step.number] = held
        return found

    def _keep(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Store an execution of the instruction for every warp with an active lane."""
        before = self._overwritten.before(chunk, step)
        overwritten = set(self._overwritten.slots.get(step.number, ()))
        rows = np.flatnonzero(mask.any(axis=1))
        values: dict[str, Registers] = {}
        for position, (name, slots) in enumerate(self._operands[step.number].items()):
            is_result = position == 0 and step.row.destinations
            known = chunk.registers if is_result or overwritten.isdisjoint(slots) else before
            if known is not None:
                values[name] = _read(slots, known, chunk.mask.shape)[rows]
        for at, row in enumerate(rows.tolist()):
            place = replace(chunk.place_of(int(chunk.thread[row, 0]), step), lane=None, thread=None)
            warp = int(chunk.block[row, 0]), int(chunk.warp_in_block[row, 0])
            registers = {name: value[at] for name, value in values.items()}
            execution = Execution(step.instruction.opcode, place, registers)
            self._launches[-1].setdefault(warp, []).append((step.instruction, execution))

    def executions(self, block: Block = 0, warp: int = 0, line: str = "", launch: int = 0) -> list[Execution]:
        """The recorded executions of a warp of a block, in order; ReportError if there are none.

        ``line`` selects the instructions of one line: "gemm.cu:57" (any suffix of the path) or "ptx:17".
        ``launch`` counts from the first after the recorder was made.
        """
        if not 0 <= launch < len(self._launches):
            raise ReportError(
                f"there was no launch {launch}\n{len(self._launches)} were recorded\nlaunch the kernel first"
            )
        warps = self._launches[launch]
        recorded = warps.get((block_number(block, self._grids[launch]), warp), [])
        executions = [execution for instruction, execution in recorded if _stands_at(instruction, line)]
        if not executions:
            raise ReportError(
                f"no matrix instructions of block {block}, warp {warp}" + f" at {line}" * bool(line) + "\n"
                f"recorded were {len(warps)} warps, at {', '.join(sorted(self._lines)) or 'no line'}\n"
                "choose one of these, or record other instructions"
            )
        return executions


def _stands_at(instruction: Instruction, line: str) -> bool:
    """True if an instruction is on a line: "gemm.cu:57", "ptx:17", or "" for any line."""
    source = instruction.source
    place = f"/{source.file}:{source.line}" if source else ""
    return not line or line == f"ptx:{instruction.line}" or place.endswith(f"/{line.lstrip('/')}")


def _word(value: Any) -> Registers:
    """View a register as unsigned words; an uninitialised one is 0."""
    if value is None:
        return np.zeros((), np.uint32)
    word = np.asarray(value)
    return word.view(f"u{word.dtype.itemsize}")


def _literal(operand: Immediate) -> Registers:
    """The word of an immediate value, as an operand of all lanes."""
    word = np.uint64 if operand.float_bits == 64 else np.uint32
    return np.array(operand.value & int(np.iinfo(word).max), word)


@contextmanager
def record_fragments(device: Device, opcode: str = "", line: str = "") -> Generator[FragmentRecorder]:
    """Record the operands of matrix instructions while kernels run on a simulated device.

    Parameters
    ----------
    device : Device
    opcode : str
        Select instructions by a prefix: "mma", "ldmatrix", "wmma.load.a" …
    line : str
        Select the instructions of one line: "gemm.cu:57" (any suffix of the path) or "ptx:17".

    Yields
    ------
    FragmentRecorder
        `FragmentRecorder.executions` returns the executions of a warp.

    Notes
    -----
    For registers that an instruction reads and overwrites, such as those of an accumulator, the recorder
    tracks every write to know their content before the instruction. A call or return of a device function
    clears this for one instruction: directly after it, such an operand is missing.

    Examples
    --------
    >>> device = Device()
    >>> kernel = device.load('''.version 9.0
    ... .target sm_90
    ... .visible .entry transpose() { .reg .b32 %r<2>;
    ...     mov.u32 %r0, %laneid; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0; ret; }
    ... ''').kernel("transpose")
    >>> with record_fragments(device, "movmatrix") as recorded:
    ...     kernel((1, 1, 1), (32, 1, 1))
    >>> (execution,) = recorded.executions(block=0, warp=0)
    >>> execution.matrix("a")[1].tolist()
    [4, 0, 5, 0, 6, 0, 7, 0]
    >>> execution.check("d", execution.matrix("a").T)
    """
    recorder = FragmentRecorder(opcode, line)
    device.observers.append(recorder)
    try:
        yield recorder
    finally:
        device.observers.remove(recorder)
