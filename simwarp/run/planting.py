"""Statements of PTX that a launch executed, and faults planted in their place."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from simwarp.engine.state import Chunk, Mask
from simwarp.lanes import WARP_SIZE
from simwarp.observe import AccessEvent, Observer
from simwarp.program.program import Step
from simwarp.ptx.syntax import Function, Instruction
from simwarp.run.arguments import Argument
from simwarp.run.work import Work

_OPENING, _CLOSING = "[{(", "]})"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ADDRESS = re.compile(r"\[\s*([^\[\],+-]+?)\s*(?:([+-])\s*(\d+)\s*)?\]")

Key = tuple[int, str]
"""The line and the opcode of an instruction."""


@dataclass
class Seen:
    """How a launch executed one instruction: lanes, threads and memory accesses."""

    lanes: int = 0  # the most lanes of a warp that executed it in one step
    threads: int = 0  # the most threads that executed it in one step
    lane: int = 0  # a lane that executed it
    space: str = ""  # state space of its access, "" for none
    width: int = 0  # bytes of each lane's access
    addresses: set[int] = field(default_factory=set[int])  # some of global memory, those of copies included


class Recorder(Observer):
    """Records which instructions a launch executes; ``steps`` is the number of steps."""

    def __init__(self) -> None:
        self.seen: dict[Key, Seen] = defaultdict(Seen)
        self.steps = 0

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Record the lanes and threads that executed a step."""
        seen = self.seen[_key(step.instruction)]
        lanes = mask.sum(axis=1)
        self.steps += 1
        if not seen.lanes and lanes.any():
            seen.lane = int(mask.argmax()) % WARP_SIZE
        seen.lanes, seen.threads = max(seen.lanes, int(lanes.max())), max(seen.threads, int(lanes.sum()))

    def on_access(self, event: AccessEvent) -> None:
        """Record the state space, width and address of an instruction's memory access."""
        seen = self.seen[_key(event.step.instruction)]
        if event.unit == "lanes":
            seen.space, seen.width = event.space, event.width
        if event.space == "global" and event.addresses.size:
            seen.addresses.add(int(np.min(event.addresses)))


@dataclass(frozen=True)
class Statement:
    """An instruction that a launch executed, with its place in the text of the PTX."""

    instruction: Instruction
    function: Function  # that contains it
    seen: Seen
    start: int  # offset of its first character
    end: int  # offset behind its semicolon
    guard: str  # "@%p1 ", or ""
    operands: tuple[str, ...]  # their texts

    @property
    def opcode(self) -> str:
        """The PTX opcode with its modifiers."""
        return self.instruction.opcode

    @property
    def parts(self) -> list[str]:
        """The parts of the opcode between its dots: "ld", "global", "f32"."""
        return self.opcode.split(".")

    def text(self, *operands: str, opcode: str = "", guard: str | None = None) -> str:
        """The statement's PTX text, with other operands, opcode or guard if they are given."""
        of_guard = self.guard if guard is None else guard
        return f"{of_guard}{opcode or self.opcode} {', '.join(operands or self.operands)};"

    def moved(self, offset: int) -> str:
        """The statement with an offset added to its first address; "" if no address is simple."""
        found = [i for i, operand in enumerate(self.operands) if _ADDRESS.fullmatch(operand)]
        if not found:
            return ""
        base, sign, digits = _ADDRESS.fullmatch(self.operands[found[0]]).groups("")  # pyright: ignore[reportOptionalMemberAccess]
        moved = int(f"{sign}{digits or 0}") + offset
        return self.with_operand(found[0], f"[{base}+{moved}]" if moved >= 0 else f"[{base}{moved}]")

    def with_operand(self, at: int, operand: str) -> str:
        """The statement's PTX text with the operand at position ``at`` replaced."""
        return self.text(*self.operands[:at], operand, *self.operands[at:][1:])


@dataclass(frozen=True)
class Plant:
    """A fault to plant in a kernel: a statement and the PTX text that replaces it."""

    statement: Statement
    what: str  # the change of the statement, in words
    text: str  # that replaces the statement; the same text leaves the kernel as it is
    sure: bool = True  # true for a fault in any kernel; a dropped barrier may not be one
    freed: int | None = None  # position of an array that is freed before the launch

    def ptx(self, text: str) -> str:
        """The kernel's PTX text with the fault planted."""
        return text[: self.statement.start] + self.text + text[self.statement.end :]


@dataclass(frozen=True)
class Code:
    """A kernel, the arguments of a launch, and the statements that it executed."""

    work: Work
    arguments: Sequence[Argument]
    statements: Sequence[Statement]

    def ran(self, matches: Callable[[Statement], bool]) -> list[Statement]:
        """The executed statements that match; statements of the user's own file come first."""
        found = [statement for statement in self.statements if matches(statement)]
        return sorted(found, key=self._is_foreign)

    def _is_foreign(self, statement: Statement) -> bool:
        line = statement.instruction.source
        return line is not None and line.file not in self.work.source.files

    def array_at(self, addresses: set[int]) -> Argument | None:
        """The array argument that one of some addresses lies in."""
        for argument in self.arguments:
            if argument.is_array and any(
                argument.value.pointer <= address < argument.value.pointer + argument.value.nbytes
                for address in addresses
            ):
                return argument
        return None


def executed(work: Work, recorder: Recorder) -> Iterator[Statement]:
    """The statements that a launch executed, in the order of the text."""
    functions = (work.kernel, *work.source.module.functions.values())
    for function, instruction, match in located(work.source.ptx, functions):
        key = _key(instruction)
        if key in recorder.seen:
            seen, guard = recorder.seen[key], match["guard"] or ""
            place = match.start(), match.end()
            yield Statement(instruction, function, seen, *place, guard, _operands(match["operands"]))


def without_comments(ptx: str) -> str:
    """PTX with spaces in place of its comments."""
    return _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), ptx)


def located(ptx: str, functions: Sequence[Function]) -> Iterator[tuple[Function, Instruction, re.Match[str]]]:
    """Each instruction of functions with its place in the text, from the guard to the semicolon."""
    text, starts = without_comments(ptx), [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    for function in functions:
        before: dict[Key, int] = defaultdict(int)
        for instruction in function.instructions:
            key = _key(instruction)
            found = list(
                _written(text, instruction.opcode, *starts[instruction.line - 1 : instruction.line + 1])
            )
            at, before[key] = before[key], before[key] + 1
            if at < len(found):
                yield function, instruction, found[at]


def _written(text: str, opcode: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """The statements of an opcode that begin between two offsets."""
    pattern = re.compile(
        rf"(?<![\w.$%@!])(?P<guard>@!?[%\w$]+\s+)?(?<![\w.$%]){re.escape(opcode)}(?=[\s;])(?P<operands>[^;]*);"
    )
    for match in pattern.finditer(text, start):
        if match.start() >= end:
            return
        yield match


def _operands(text: str) -> tuple[str, ...]:
    """The operands of a statement: the texts between the commas outside of brackets."""
    parts, depth = [""], 0
    for character in text.strip():
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())


def _key(instruction: Instruction) -> Key:
    return instruction.line, instruction.opcode
