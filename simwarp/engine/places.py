"""Locations of faults: a thread of a launch at a step, its source line, and the calls that lead there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from simwarp.engine import special_registers
from simwarp.faults import Caller, Place
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.mangled_names import readable

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk
    from simwarp.program.program import Step
    from simwarp.ptx.syntax import Instruction, SourceLine

Dim = tuple[int, int, int]
_LINE = re.compile(r'\s*#\s*(?:line\s+)?(\d+)(?:\s+"([^"]*)")?')


class Geometry(NamedTuple):
    """Maps threads of a launch to the locations (block, thread, source line) that faults show."""

    kernel: str
    grid: Dim
    block: Dim
    sources: Mapping[str, str]

    def place(self, thread: int, step: Step, callers: tuple[Caller, ...] = ()) -> Place:
        """The location of a thread at a step; ``callers`` are the calls that led to the step's function."""
        return self.place_at(thread, step.instruction, callers)

    def place_at(self, thread: int, instruction: Instruction, callers: tuple[Caller, ...] = ()) -> Place:
        """The location of a thread at an instruction; threads are counted in whole warps, block by block."""
        number, within = divmod(thread, -(-math.prod(self.block) // WARP_SIZE) * WARP_SIZE)
        source = _given(instruction.source, self.sources)
        return Place(
            kernel=readable(self.kernel),
            block=special_registers.index_3d(number, self.grid),
            warp=within // WARP_SIZE,
            lane=within % WARP_SIZE,
            thread=special_registers.index_3d(within, self.block),
            line=instruction.line,
            text=" ".join(instruction.text.split()),
            **_line(source, self.sources),
            callers=(*_inlined(source, self.sources), *callers),
        )


def callers_of(chunk: Chunk, lane: int) -> tuple[Caller, ...]:
    """The calls that a lane is in, innermost first, including calls that the compiler inlined."""
    sources, callers = chunk.launch.sources, list[Caller]()
    for function, step in chunk.activations.of(lane):
        source = step.instruction.source
        callers.append(Caller(readable(function), False, **_line(source, sources)))
        callers += _inlined(source, sources)
    return tuple(callers)


def _given(source: SourceLine | None, sources: Mapping[str, str]) -> SourceLine | None:
    """The innermost source line in one of the user's files; a line in other files gives its caller's."""
    line = source
    while line is not None and line.file not in sources:
        line = line.caller
    return line or source


def _inlined(source: SourceLine | None, sources: Mapping[str, str]) -> Iterator[Caller]:
    """The calls that inlining replaced around a line, from the innermost one outwards."""
    while source is not None and source.caller is not None:
        yield Caller(source.function, True, **_line(source.caller, sources))
        source = source.caller


def _line(source: SourceLine | None, sources: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a location, or of a caller, for a line of source."""
    if source is None:
        return {}
    lines = _lines(source.file, sources.get(source.file, ""))
    return {
        "source_file": source.file,
        "source_line": source.line,
        "source_column": source.column or None,
        "source_text": lines.get(source.line, ""),
    }


@lru_cache(maxsize=32)
def _lines(file: str, text: str) -> dict[int, str]:
    """The lines of a file by the numbers that the compiler gives them, which ``#line`` changes."""
    number, name, lines = 1, file, dict[int, str]()
    for line in text.splitlines():
        if directive := _LINE.match(line):
            number, name = int(directive[1]), directive[2] or name
            continue
        if name == file or name.endswith(f"/{file}"):
            lines[number] = line
        number += 1
    return lines
