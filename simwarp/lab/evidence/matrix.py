"""Probes of matrix instructions, which a warp executes as a whole, and operands for whole warps.

Each register of a fragment is one operand or result of the probe, as in other probes. A matrix in memory
occupies the cells of the warp's 32 threads, 32 bytes each, in order.
"""

from __future__ import annotations

import numpy as np

from simwarp.fragments import Layout, Operand, fragments_of
from simwarp.lab.evidence.memory import choose, dot, fill, locate, space
from simwarp.lab.evidence.operands import Column, Words, width
from simwarp.lab.evidence.probe import ROOM, Probe, Writer
from simwarp.lab.evidence.styles import Style, styles_of
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.rows import Form, Row
from simwarp.verify.draw import Draw

TILE = WARP_SIZE * ROOM
"""Bytes of memory that a warp's threads have together."""
ORDER = 0b10101
"""For 8 x 8 matrices, lane i gives the address of the row in the cell of lane ``i ^ ORDER``."""
_CELLS = range(0, ROOM, 8)


def product(row: Row, form: Form) -> Probe:
    """Probe a product or transpose of fragments in registers."""
    writer, fragments = Writer(form.opcode), fragments_of(form.opcode).operands
    given = [_taken(writer, spec.name, fragments[spec.name].layout) for spec in row.sources]
    result = fragments["d"].layout
    names = [f"d{i}" for i in range(result.registers)]
    written = _braces([writer.register(name, f"b{result.register_bits}") for name in names])
    if row.base == "movmatrix":  # the operands of movmatrix are not vectors
        written, given = "%d0", ["%a0"]
    writer.line(f"{form.opcode} {', '.join([written, *given])};")
    writer.give(f"b{result.register_bits}", *names)
    return writer.probe()


def load(row: Row, form: Form) -> Probe:
    """Probe a fragment load from the warp's memory; with a stride operand, also with a wide stride."""
    writer, layout = Writer(form.opcode), _in_memory(form)
    address = _address(writer, row, form, filled=True)
    for suffix, stride in _strides(writer, form):
        names = [f"d{i}{suffix}" for i in range(layout.registers)]
        registers = _braces([writer.register(name, f"b{layout.register_bits}") for name in names])
        writer.line(f"{form.opcode} {registers}, [{address}]{stride};")
        writer.give(f"b{layout.register_bits}", *names)
    writer.operands = [Column(f"memory{i}", "b64") for i in range(len(_CELLS))]
    return writer.probe(packed=8, count=256)


def store(row: Row, form: Form) -> Probe:
    """Probe a fragment store over zeros; with a stride operand, also with a wide stride."""
    writer, layout = Writer(form.opcode), _in_memory(form)
    (name,) = (spec.name for spec in row.sources if spec.is_fragment)
    registers = _taken(writer, name, layout)
    address = _address(writer, row, form, filled=False)
    for suffix, stride in _strides(writer, form):
        where = dot(space(form))
        writer.line(*(f"st{where}.b64 [%mine+{at}], 0;" for at in _CELLS))
        writer.line(_SYNC_WARP, f"{form.opcode} [{address}], {registers}{stride};", _SYNC_WARP)
        names = [f"memory{i}{suffix}" for i in range(len(_CELLS))]
        for name, at in zip(names, _CELLS, strict=True):
            writer.line(f"ld.volatile{where}.b64 {writer.register(name, 'b64')}, [%mine+{at}];")
        writer.give("b64", *names)
    return writer.probe(count=256)


def stride(form: Form) -> int:
    """The widest stride, in elements, with which a form's matrix fits its memory; 0 without a stride."""
    memory = next(iter(fragments_of(form.opcode).operands.values())).memory
    if not memory:
        return 0
    layout = _in_memory(form)
    length, count = (layout.columns, layout.rows) if memory == "row" else (layout.rows, layout.columns)
    room = TILE * 8 // (length * layout.bits)
    return length * ((room - 1) // (count - 1))


_SYNC_WARP = f"bar.warp.sync {(1 << WARP_SIZE) - 1:#x};"


def _in_memory(form: Form) -> Layout:
    """The fragment layout of a load or a store."""
    (operand,) = fragments_of(form.opcode).operands.values()
    return operand.layout


def _taken(writer: Writer, name: str, layout: Layout) -> str:
    """Load the registers of a fragment as operands; copies of an element share a register."""
    different = layout.registers // layout.copies
    taken = [writer.take(f"{name}{i}", f"b{layout.register_bits}") for i in range(different)]
    return _braces(taken * layout.copies)


def _braces(registers: list[str]) -> str:
    return f"{{{', '.join(registers)}}}"


def _strides(writer: Writer, form: Form) -> list[tuple[str, str]]:
    """For each stride, the suffix of the results' names and the stride operand in PTX."""
    wide = stride(form)
    if not wide:
        return [("", "")]
    writer.line(f"mov.b32 {writer.register('stride', 'b32')}, {wide};")
    return [("", ""), ("_wide", ", %stride")]


def _address(writer: Writer, row: Row, form: Form, *, filled: bool) -> str:
    """The register with a lane's address operand; ``%mine`` gets the address of its own 32 bytes.

    Without a space, even warps use shared and odd warps global memory; 8 x 8 matrices always lie in
    shared memory.
    """
    where = space(form).split("::")[0]
    mine = locate(writer, "mine", where, align=128)
    if filled and where != "global":
        fill(writer, "shared", mine)
        writer.line(_SYNC_WARP)
    if not where:
        writer.line(f"cvta.shared.u64 {mine}, {mine};")
        if row.base == "wmma":
            choose(writer, mine, WARP_SIZE, "%memory", mine)
    writer.declare("b32 lane, b64 tile")
    writer.line(f"and.b32 %lane, %thread, {WARP_SIZE - 1};")
    writer.line(f"mul.wide.u32 %tile, %lane, {ROOM}; sub.u64 %tile, %mine, %tile;")
    if row.base == "wmma":
        return "%tile"
    writer.declare("b64 row")
    writer.line(f"xor.b32 %lane, %lane, {ORDER}; mad.wide.u32 %row, %lane, {ROOM}, %tile;")
    return "%row"


# ------------------------------------------------------------------------------------------- operands


def operands(probe: Probe, form: Form) -> Words:
    """Operand tuples for whole warps; in each warp a product's matrices share one style of elements."""
    draw = Draw(0, f"matrices of {probe.form}", 0)
    fragments = fragments_of(form.opcode).operands
    if "b" not in fragments or "a" not in fragments:
        masks = np.array([(1 << width(column.type)) - 1 for column in probe.operands], np.uint64)
        return draw.words(probe.count * masks.size).reshape(probe.count, -1) & masks
    styles = styles_of(fragments["a"].type)
    warps = [
        [register(styles[k % len(styles)], draw, fragments[column.name[0]]) for column in probe.operands]
        for k in range(probe.count // WARP_SIZE)
    ]
    return np.concatenate([np.stack(registers, axis=1) for registers in warps])


def register(style: Style, draw: Draw, operand: Operand) -> Words:
    """One fragment register of each lane, filled with random elements in a style."""
    layout = operand.layout
    elements = style(draw, operand.name, operand.type, layout.lanes * layout.slots)
    shifts = np.arange(layout.slots, dtype=np.uint64) * np.uint64(layout.bits)
    return np.bitwise_or.reduce(elements.reshape(layout.lanes, layout.slots) << shifts, axis=1)
