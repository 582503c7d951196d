"""Estimate of a kernel's registers per thread, and the typed registers of an operand.

PTX has unlimited registers; ``ptxas`` assigns hardware registers. It may use fewer than are live in the
PTX, by reordering and recomputing, and often uses more, to hide latency. ``ptxas -v`` prints the real
number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simwarp.program.liveness import live_registers
from simwarp.program.program import Program, Step
from simwarp.ptx.kinds import EXIT, LOAD, RETURN
from simwarp.ptx.rows import DTYPES, OperandSpec
from simwarp.ptx.syntax import Group, Immediate, Operand, Pair, Register, Vector

_REGISTER_BYTES = 4


def registers_of(program: Program) -> int:
    """A low estimate of a kernel's 32-bit registers per thread: the most that are live at a step.

    It is the maximum over functions: registers that callers keep live across a call are not added. Predicates
    do not count, nor do copies of kernel parameters and literals, which come from the constant bank and from
    immediates.

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
    """A step of a function as if it were a kernel: renumbered from 0, with returns as exits."""
    kind = EXIT if step.kind is RETURN else step.kind
    table = tuple(at - first for at in step.table)
    return replace(step, kind=kind, number=step.number - first, target=step.target - first, table=table)


def _most_live(steps: Sequence[Step], names: Sequence[str]) -> int:
    widths, copied = _widths(steps), _copies(steps)
    of_width: dict[int, int] = {}
    for slot, name in enumerate(names):
        if name in widths and name not in copied:
            of_width[widths[name]] = of_width.get(widths[name], 0) | 1 << slot
    live = set(live_registers(steps, names))
    return max(
        (sum(width * (at & slots).bit_count() for width, slots in of_width.items()) for at in live), default=0
    )


def _widths(steps: Sequence[Step]) -> dict[str, int]:
    """PTX register → the number of 32-bit registers for its widest use; 0 for a predicate."""
    found: dict[str, int] = {}
    for step in steps:
        for name, size in _sizes(step):
            found[name] = max(found.get(name, 0), -(-size // _REGISTER_BYTES))
    return found


def _sizes(step: Step) -> Iterator[tuple[str, int]]:
    """The registers of a step's operands, each with its size in bytes."""
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
    whole = step.form.vector > 1 or spec.is_fragment
    for name, part in typed_registers(operand, kind, whole=whole):
        yield name, 0 if part == "pred" else DTYPES[part].itemsize


def typed_registers(operand: Operand | None, kind: str, *, whole: bool) -> Iterator[tuple[str, str]]:
    """The registers of an operand with their types; a vector's elements share a ``kind`` unless ``whole``."""
    if isinstance(operand, Register):
        yield operand.name, kind
    elif isinstance(operand, Vector | Group):
        if isinstance(operand, Vector) and not whole:
            kind = f"b{DTYPES[kind].itemsize * 8 // len(operand.elements)}"
        yield from ((element.name, kind) for element in operand.elements if isinstance(element, Register))


def _copies(steps: Sequence[Step]) -> set[str]:
    """Registers that hold only parameters, literals and copies of such registers."""
    written = [(name, step) for step in steps if (name := destination(step))]
    copies = {name for name, _ in written}
    while True:
        lost = {name for name, step in written if name in copies and not _is_copy(step, copies)}
        if not lost:
            return copies
        copies -= lost


def destination(step: Step) -> str:
    """The name of the register that a step writes; "" if it writes none, or several."""
    first = step.instruction.operands[:1]
    return first[0].name if step.row.destinations and first and isinstance(first[0], Register) else ""


def _is_copy(step: Step, copies: set[str]) -> bool:
    if step.guard is not None:
        return False
    if step.kind is LOAD:
        return step.symbol != "" and step.form.vector == 1
    if not step.row.traits & {"move", "generic"}:
        return False
    source = step.instruction.operands[1]
    return isinstance(source, Immediate) or (isinstance(source, Register) and source.name in copies)
