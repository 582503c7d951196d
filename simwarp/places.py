"""Locations of faults in a launch: thread, instruction, source line, and the calls that lead there."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST = 160
"""Most characters of a kernel's name in a text."""


def abridged(name: str) -> str:
    """A kernel's name shortened to fit on a line, without its innermost template arguments.

    >>> abridged("gemm<" + "layout<shape<1, 2>>, " * 9 + "float>")[:40]
    'gemm<layout<shape<…>>, layout<shape<…>>,'
    """
    while len(name) > _LONGEST and "<" in name:
        name = re.sub(r"<[^<>]*>", "\0", name)
    return name.replace("\0", "<…>")


@dataclass(frozen=True)
class Caller:
    """The call, or the inlining, of the function that contains a place.

    Attributes
    ----------
    function : str
        The name of the function in the source.
    inlined : bool
        Whether its code was inlined there.
    source_file, source_line, source_column, source_text
        The line of CUDA C++ of the call; see `Place`.
    """

    function: str
    inlined: bool
    source_file: str | None = None
    source_line: int | None = None
    source_column: int | None = None
    source_text: str = ""


@dataclass(frozen=True)
class Place:
    """A location in a launch: kernel, block, warp, lane and instruction; None or "" where unknown.

    Attributes
    ----------
    kernel : str
        Its name in the source, with template arguments.
    block : (x, y, z)
    warp, lane : int
        The warp within its block, the lane within its warp.
    thread : (x, y, z)
        The thread's index within its block.
    line : int
        The line of the PTX text, or of the Python source for a kernel written in Python.
    text : str
        The instruction.
    source_file, source_line, source_column
        The line of CUDA C++ that the PTX line was compiled from, and the column where its statement begins.
    source_text : str
        That line; "" if the device was not given the source.
    callers : tuple of Caller
        The calls that lead to the place, from the innermost one outwards.
    """

    kernel: str = ""
    block: tuple[int, int, int] | None = None
    warp: int | None = None
    lane: int | None = None
    thread: tuple[int, int, int] | None = None
    line: int | None = None
    text: str = ""
    source_file: str | None = None
    source_line: int | None = None
    source_column: int | None = None
    source_text: str = ""
    callers: tuple[Caller, ...] = ()

    def __str__(self) -> str:
        parts = [f"kernel {abridged(self.kernel)}"] if self.kernel else []
        if self.block is not None:
            parts.append(f"block {self.block}")
        if self.warp is not None:
            parts.append(f"warp {self.warp}")
        if self.lane is not None:
            parts.append(f"lane {self.lane}")
        if self.line is not None:
            parts.append(f"line {self.line}" + (f" `{self.text}`" if self.text else ""))
        if self.source_line is not None:
            parts.append(f"({self.source_file}:{self.source_line})")
        return ", ".join(parts)


@dataclass(frozen=True)
class Note:
    """A second location of a fault, such as the other access of a race.

    Attributes
    ----------
    label : str
        The event there, up to the thread: "written here by".
    place : Place
    """

    label: str
    place: Place
