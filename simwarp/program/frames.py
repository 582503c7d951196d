"""Local variables: where each of them lies in its function's frame.

A compiler puts all local variables of a function into one, ``__local_depot``. It takes the address of one of
them by an ``add.u64`` of its own to the frame's base, ``%SP`` or ``%SPL``: what is added is where a variable
starts, with and without optimisation. A member of a structure, or an element of an array, is added to that
by an ``add.s64``. So a variable ends, at the latest, where the next one starts whose address is taken.

Examples
--------
>>> from simwarp.ptx.parse import parse
>>> module = parse('''.version 9.0 .target sm_90 .entry k() {
... .local .align 8 .b8 __local_depot0[24]; .reg .b64 %SPL, %a<3>;
... mov.u64 %SPL, __local_depot0; add.u64 %a1, %SPL, 16; add.u64 %a2, %SPL, 0; add.s64 %a2, %a2, 4; ret; }''')
>>> local_variables(module.entries["k"], {"__local_depot0": 0}, {"__local_depot0": 24})
{'__local_depot0': (0, 24), '__local_depot0+0': (0, 16), '__local_depot0+16': (16, 24)}
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from simwarp.ptx.syntax import Function, Immediate, Instruction, Register

_DEPOT = "__local_depot"
_BASES = ("%SP", "%SPL")


def start_of(instruction: Instruction) -> int | None:
    """Where in the frame the local variable starts whose address an instruction takes; None if it takes none.

    Examples
    --------
    >>> base = Register("%SP")
    >>> start_of(Instruction("add.u64", (Register("%a"), base, Immediate(16)), None, 1, ""))
    16
    >>> start_of(Instruction("add.s64", (Register("%a"), base, Immediate(16)), None, 1, ""))
    """
    if instruction.opcode not in ("add.u64", "add.u32") or len(instruction.operands) != 3:
        return None
    _, base, offset = instruction.operands
    if isinstance(base, Register) and base.name in _BASES and isinstance(offset, Immediate):
        return offset.value
    return None


def local_variables(
    function: Function, offsets: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Where in a function's frame its local variables start and end; those without a name by ``depot+start``.

    Parameters
    ----------
    function : syntax
    offsets, sizes : mapping of str to int
        Of the variables that have a name.

    Examples
    --------
    >>> local_variables(Function("f", [], 1), {}, {})
    {}
    """
    names = [v.name for v in function.variables if v.space == "local"]
    found = {name: (offsets[name], offsets[name] + sizes[name]) for name in names}
    depot = next((name for name in names if name.startswith(_DEPOT)), None)
    if depot is not None:
        starts = {start for start in map(start_of, function.instructions) if start is not None}
        first, end = found[depot]
        for start, stop in pairwise([*sorted(s for s in starts if s < end - first), end - first]):
            found[f"{depot}+{start}"] = first + start, first + stop
    return found


def is_whole(name: str) -> bool:
    """Whether a name is that of all local variables of a frame.

    Examples
    --------
    >>> is_whole("__local_depot0"), is_whole("__local_depot0+16"), is_whole("cells")
    (True, False, False)
    """
    return name.startswith(_DEPOT) and "+" not in name


def name_of(name: str, size: int) -> str:
    """What a message calls a local variable.

    Examples
    --------
    >>> name_of("cells", 16)
    "cells of the function's stack frame"
    >>> name_of("__local_depot0+16", 16)
    "the local variable in bytes 16 to 31 of the function's stack frame"
    """
    if name.startswith(_DEPOT):
        start = int(name.partition("+")[2])
        name = f"the local variable in bytes {start} to {start + size - 1}"
    return f"{name} of the function's stack frame"
