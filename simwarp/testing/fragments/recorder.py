"""The operands of matrix instructions, taken from a running kernel."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.device.device import Device
from simwarp.engine.events import Observer
from simwarp.faults import Place
from simwarp.observe.line_counts import ReportError, line_of
from simwarp.observe.overwritten import Overwritten
from simwarp.observe.trace.model import Block, block_number
from simwarp.ptx.syntax import Immediate, Instruction, Register, Vector
from simwarp.testing.fragments.check import Registers, check_fragment, operand_of

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask
    from simwarp.engine.launch import Launch
    from simwarp.program.program import Program, Step


@dataclass(frozen=True)
class Execution:
    """A matrix instruction as one warp executed it.

    Attributes
    ----------
    opcode : str
    place : Place
        Kernel, block, warp and lines.
    registers : mapping of str to (32, registers) words
        Of each operand in registers: those that it read as they were before, those that it wrote as they were
        after. An operand is missing if its registers were not known any more; see `record_fragments`.
    """

    opcode: str
    place: Place
    registers: Mapping[str, Registers]

    def matrix(self, operand: str) -> npt.NDArray[Any]:
        """What an operand's registers held: words (rows, columns), or (matrices, rows, columns)."""
        return operand_of(self.opcode, operand).layout.unpack(self._of(operand))

    def check(self, operand: str, matrix: npt.ArrayLike) -> None:
        """Assert that an operand's registers held a matrix: see `check_fragment`."""
        __tracebackhide__ = True
        check_fragment(self.opcode, operand, self._of(operand), matrix, place=self.place)

    def _of(self, operand: str) -> Registers:
        operand_of(self.opcode, operand)
        if operand not in self.registers:
            raise ReportError(
                f"operand {operand} was not known any more: {self.place}\n"
                f"its registers were overwritten, directly behind a call or return\n"
                f"known are {', '.join(self.registers)}; have the function inlined"
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
"""How the opcodes begin, their operands in registers, and where these begin among all operands."""


def _named_operands(instruction: Instruction) -> list[tuple[str, tuple[Register | Immediate, ...]]]:
    """The operands of a matrix instruction that are in registers, by name; of any other none."""
    for begin, names, first in _NAMES:
        found = re.match(begin, instruction.opcode)
        if found:
            operands = instruction.operands[first:]
            taken = zip(names or (found[1],), operands, strict=False)
            return [(name, _elements(operand)) for name, operand in taken]
    return []


@dataclass(frozen=True)
class _Held:
    """An operand: its registers as slots, or what stands there in their place."""

    name: str
    slots: tuple[int | Immediate, ...]

    @classmethod
    def of(cls, name: str, elements: tuple[Register | Immediate, ...], slots: Mapping[str, int]) -> _Held:
        return cls(name, tuple(slots[e.name] if isinstance(e, Register) else e for e in elements))

    def read(self, registers: list[Any], shape: tuple[int, ...]) -> Registers:
        """The words, (warps, 32, registers)."""
        columns = [
            _literal(slot) if isinstance(slot, Immediate) else _word(registers[slot]) for slot in self.slots
        ]
        return np.stack([np.broadcast_to(column, shape) for column in columns], axis=-1)


def _elements(operand: object) -> tuple[Register | Immediate, ...]:
    if isinstance(operand, Vector):
        return operand.elements
    return (operand,) if isinstance(operand, Register | Immediate) else ()


class FragmentRecorder(Observer):
    """Keeps the operands of matrix instructions, of every warp that executes them; see `record_fragments`."""

    def __init__(self, opcode: str = "", line: str = "") -> None:
        self.opcode, self.line = opcode, line
        self.clear()

    def clear(self) -> None:
        """Forget what was recorded."""
        self._launches: list[dict[tuple[int, int], list[Execution]]] = []
        self._grids: list[tuple[int, int, int]] = []
        self._lines: set[str] = set()

    def on_launch(self, launch: Launch) -> None:
        """Find the chosen instructions, and the registers that they overwrite."""
        self._launches.append({})
        self._grids.append(launch.grid)
        self._overwritten = Overwritten(launch.program)
        self._operands = self._chosen(launch.program)

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Keep the operands of a chosen instruction."""
        if step.number in self._operands:
            self._keep(chunk, step, mask)
        self._overwritten.note(chunk, step, mask)

    def _chosen(self, program: Program) -> dict[int, list[_Held]]:
        """For each chosen step its operands."""
        found: dict[int, list[_Held]] = {}
        for routine in program.routines.values():
            slots = {program.registers[slot]: slot for slot in routine.slots}
            for step in program.steps_of(routine):
                instruction = step.instruction
                if instruction.opcode.startswith(self.opcode) and _stands_at(instruction, self.line):
                    held = [
                        _Held.of(name, elements, slots) for name, elements in _named_operands(instruction)
                    ]
                    if held:
                        self._lines.add(line_of(instruction))
                        found[step.number] = held
        return found

    def _keep(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        before = self._overwritten.before(chunk, step)
        overwritten = set(self._overwritten.slots.get(step.number, ()))
        rows = np.flatnonzero(mask.any(axis=1))
        values: dict[str, Registers] = {}
        for position, held in enumerate(self._operands[step.number]):
            is_result = position == 0 and step.row.destinations
            known = chunk.registers if is_result or overwritten.isdisjoint(held.slots) else before
            if known is not None:
                values[held.name] = held.read(known, chunk.mask.shape)[rows]
        for at, row in enumerate(rows.tolist()):
            place = replace(chunk.place_of(int(chunk.thread[row, 0]), step), lane=None, thread=None)
            warp = int(chunk.block[row, 0]), int(chunk.warp_in_block[row, 0])
            execution = Execution(
                step.instruction.opcode, place, {name: value[at] for name, value in values.items()}
            )
            self._launches[-1].setdefault(warp, []).append(execution)

    def executions(self, block: Block = 0, warp: int = 0, line: str = "", launch: int = 0) -> list[Execution]:
        """What a warp executed, in its order.

        Parameters
        ----------
        block : int or (x, y, z)
        warp : int
            Its number in the block.
        line : str
            Only the instructions of this line: "gemm.cu:57" (any suffix of the path) or "ptx:17".
        launch : int
            Which of the launches since the recorder was made.

        Raises
        ------
        ReportError
            If nothing was recorded there.
        """
        if not 0 <= launch < len(self._launches):
            raise ReportError(
                f"there was no launch {launch}\n{len(self._launches)} were recorded\nlaunch the kernel first"
            )
        warps = self._launches[launch]
        kept = warps.get((block_number(block, self._grids[launch]), warp), [])
        found = [e for e in kept if not line or _place_stands_at(e.place, line)]
        if not found:
            raise ReportError(
                f"no matrix instructions of block {block}, warp {warp}" + f" at {line}" * bool(line) + "\n"
                f"there were some of {len(warps)} warps, at {', '.join(sorted(self._lines)) or 'no line'}\n"
                "ask for one of these, or record other instructions"
            )
        return found


def _stands_at(instruction: Instruction, line: str) -> bool:
    source = instruction.source
    return _is_line(line, instruction.line, source.file if source else None, source.line if source else None)


def _place_stands_at(place: Place, line: str) -> bool:
    return _is_line(line, place.line, place.source_file, place.source_line)


def _is_line(line: str, number: int | None, file: str | None, source_line: int | None) -> bool:
    known = f"/{file}:{source_line}"
    return (
        not line or line == f"ptx:{number}" or (file is not None and known.endswith(f"/{line.lstrip('/')}"))
    )


def _word(value: Any) -> Registers:
    """A register as unsigned words; one that nothing wrote holds zeros."""
    if value is None:
        return np.zeros((), np.uint32)
    word = np.asarray(value)
    return word.view(f"u{word.dtype.itemsize}")


def _literal(operand: Immediate) -> Registers:
    word = np.uint64 if operand.float_bits == 64 else np.uint32
    return np.array(operand.value & int(np.iinfo(word).max), word)


@contextmanager
def record_fragments(device: Device, opcode: str = "", line: str = "") -> Generator[FragmentRecorder]:
    """Record the operands of matrix instructions while kernels run on a simulated device.

    Parameters
    ----------
    device : Device
    opcode : str
        Only instructions that begin so: "mma", "ldmatrix", "wmma.load.a" …
    line : str
        Only those of a line: "gemm.cu:57" (any suffix of the path), or "ptx:17".

    Yields
    ------
    FragmentRecorder
        `FragmentRecorder.executions` lists what a warp executed.

    Notes
    -----
    Registers that an instruction reads and overwrites, an accumulator's most often, are kept as they were
    before it, by following every write. That knowledge is lost at calls and returns of device functions until
    the next instruction: directly behind one, such an operand is missing.

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
