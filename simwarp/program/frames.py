"""The extents of local variables in their function's stack frame.

A compiler puts all local variables of a function into one array, ``__local_depot``. It takes the address of a
variable by an ``add.u64`` of its offset to the frame's base, ``%SP`` or ``%SPL``, with and without
optimisation; the offset of a member or element is added to that by an ``add.s64``. So a variable ends, at the
latest, where the next variable starts whose address is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from simwarp.ptx.instructions import TABLE
from simwarp.ptx.syntax import Function, Immediate, Instruction, Register

_DEPOT = "__local_depot"
_BASES = ("%SP", "%SPL")


def start_of(instruction: Instruction) -> int | None:
    """The frame offset of the local variable whose address an instruction takes; None if it takes none."""
    entry = TABLE.find(instruction.opcode)
    if entry is None or "displace" not in entry[0].traits or not entry[1].T.startswith("u"):
        return None
    _, base, offset = instruction.operands
    if isinstance(base, Register) and base.name in _BASES and isinstance(offset, Immediate):
        return offset.value
    return None


def local_variables(
    function: Function, offsets: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Name → start and end in the frame of each local variable; part of a depot is named ``depot+start``."""
    names = [v.name for v in function.variables if v.space == "local"]
    ranges = {name: (offsets[name], offsets[name] + sizes[name]) for name in names}
    depot = next((name for name in names if name.startswith(_DEPOT)), None)
    if depot is not None:
        starts = {start for start in map(start_of, function.instructions) if start is not None}
        first, end = ranges[depot]
        for start, stop in pairwise([*sorted(s for s in starts if s < end - first), end - first]):
            ranges[f"{depot}+{start}"] = first + start, first + stop
    return ranges


def is_whole(name: str) -> bool:
    """Whether a name stands for the whole depot."""
    return name.startswith(_DEPOT) and "+" not in name


def name_of(name: str, size: int) -> str:
    """A local variable, named for messages by its bytes in the function's stack frame."""
    if name.startswith(_DEPOT):
        start = int(name.partition("+")[2])
        name = f"the local variable in bytes {start} to {start + size - 1}"
    return f"{name} of the function's stack frame"
