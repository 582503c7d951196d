"""How many registers a thread needs at least, estimated from the PTX.

PTX has as many registers as it likes; ``ptxas`` decides which values share one. It can do with fewer
than are live here, by moving instructions and by computing values again, and it often takes more, to hide
latencies. Only ``ptxas -v`` and the loaded kernel know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simwarp.program.liveness import live_registers
from simwarp.program.program import Program, Step
from simwarp.ptx.rows import DTYPES, OperandSpec
from simwarp.ptx.syntax import Immediate, Operand, Pair, Register, Vector

_REGISTER_BYTES = 4


def registers_of(program: Program) -> int:
    """The largest number of 32-bit registers that are live at a step: a low estimate; ptxas decides.

    Parameters
    ----------
    program : Program
        Of device functions the largest counts; what their callers keep is not added.

    Returns
    -------
    int
        Per thread. Predicates are kept elsewhere; kernel parameters and literals, as long as they are only
        copied, come from the constant bank and from instructions.

    Examples
    --------
    >>> from simwarp.program.link import link
    >>> from simwarp.ptx.parse import parse
    >>> module = parse('''.version 9.0 .target sm_90
    ... .entry k() { .reg .b32 %r<2>; .reg .b64 %d;
    ... mov.u32 %r0, %tid.x; mul.wide.u32 %d, %r0, %r0; add.u32 %r1, %r0, 1;
    ... st.global.u32 [%d], %r1; ret; }''')
    >>> registers_of(link(module, module.entries["k"]))
    3
    """
    most = 0
    for routine in program.routines.values():
        steps = [_alone(step, routine.first) for step in program.steps_of(routine)]
        names = [program.registers[slot] for slot in routine.slots]
        most = max(most, _most_live(steps, names))
    return most


def _alone(step: Step, first: int) -> Step:
    """A step of a function by itself: its first step is number 0, and it ends at returns."""
    kind = "exit" if step.kind == "return" else step.kind
    table = tuple(at - first for at in step.table)
    return replace(step, kind=kind, number=step.number - first, target=step.target - first, table=table)


def _most_live(steps: Sequence[Step], names: Sequence[str]) -> int:
    widths, copied = _widths(steps), _copies(steps)
    counted = [(slot, widths[name]) for slot, name in enumerate(names) if name in widths.keys() - copied]
    live = live_registers(steps, names)
    return max((sum(width for slot, width in counted if at >> slot & 1) for at in set(live)), default=0)


def _widths(steps: Sequence[Step]) -> dict[str, int]:
    """How many 32-bit registers each register takes, by the widest operand that it is; a predicate none."""
    found: dict[str, int] = {}
    for step in steps:
        for name, size in _sizes(step):
            found[name] = max(found.get(name, 0), -(-size // _REGISTER_BYTES))
    return found


def _sizes(step: Step) -> Iterator[tuple[str, int]]:
    """The registers of a step and the bytes that the operands have."""
    operands = list(step.instruction.operands)
    if any(spec.kind != "carry" for spec in step.row.destinations) and operands:
        first = operands.pop(0)
        parts = (first.first, first.second) if isinstance(first, Pair) else (first,)
        for part, spec in zip(parts, step.row.destinations, strict=False):
            yield from _operand_sizes(step, part, spec)
    written = [spec for spec in step.row.sources if spec.kind not in ("carry", "rank")]
    for operand, spec in zip(operands, written, strict=False):
        yield from _operand_sizes(step, operand, spec)


def _operand_sizes(step: Step, operand: Operand | None, spec: OperandSpec) -> Iterator[tuple[str, int]]:
    kind = step.form.resolve(spec.kind)
    if spec.memory or kind not in DTYPES:
        return
    size = 0 if kind == "pred" else DTYPES[kind].itemsize
    if isinstance(operand, Register):
        yield operand.name, size
    elif isinstance(operand, Vector):
        whole = step.form.vector > 1 or spec.is_fragment
        each = size if whole else size // len(operand.elements)
        yield from ((part.name, each) for part in operand.elements if isinstance(part, Register))


def _copies(steps: Sequence[Step]) -> set[str]:
    """Registers that only ever hold a parameter, a literal, or a copy of such a register."""
    written = [(register.name, step) for step in steps if (register := _destination(step)) is not None]
    copies = {name for name, _ in written}
    while True:
        lost = {name for name, step in written if name in copies and not _is_copy(step, copies)}
        if not lost:
            return copies
        copies -= lost


def _destination(step: Step) -> Register | None:
    first = step.instruction.operands[:1]
    return first[0] if step.row.destinations and first and isinstance(first[0], Register) else None


def _is_copy(step: Step, copies: set[str]) -> bool:
    if step.guard is not None:
        return False
    if step.kind == "load":
        return step.symbol != "" and step.form.vector == 1
    if not step.row.traits & {"move", "generic"}:
        return False
    source = step.instruction.operands[1]
    return isinstance(source, Immediate) or (isinstance(source, Register) and source.name in copies)
