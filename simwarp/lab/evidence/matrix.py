"""Probes of matrix instructions, which a warp executes as a whole, and operands for whole warps.

The operands and results of a product are cells like those of other instructions, one for each register of
a fragment. A matrix in memory has the warp's part of the probes' memory: 32 bytes of each of its threads,
one behind the other.
"""

from __future__ import annotations

import numpy as np

from simwarp.fragments import Layout, Operand, fragments_of
from simwarp.lab.evidence.memory import choose, fill, locate, space
from simwarp.lab.evidence.operands import Column, Words, width
from simwarp.lab.evidence.probe import ROOM, Probe, Writer
from simwarp.lab.evidence.styles import Style, styles_of
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.rows import Form, Row
from simwarp.verify.draw import Draw

TILE = WARP_SIZE * ROOM
"""Bytes of memory of each warp."""
ORDER = 0b10101
"""Of the rows of 8 x 8 matrices, lane i names the one in the memory of lane ``i ^ ORDER``."""
_CELLS = range(0, ROOM, 8)


def product(row: Row, form: Form) -> Probe:
    """Fragments in registers, the instruction, a fragment in registers."""
    writer, fragments = Writer(form.opcode), fragments_of(form.opcode).operands
    given = [_taken(writer, spec.name, fragments[spec.name].layout) for spec in row.sources]
    result = fragments["d"].layout
    names = [f"d{i}" for i in range(result.registers)]
    written = _braces([writer.register(name, f"b{result.register_bits}") for name in names])
    if row.base == "movmatrix":  # its operands are not vectors
        written, given = "%d0", ["%a0"]
    writer.line(f"{form.opcode} {', '.join([written, *given])};")
    writer.give(f"b{result.register_bits}", *names)
    return writer.probe()


def load(row: Row, form: Form) -> Probe:
    """A fragment of the warp's memory; once more with a wide stride."""
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
    """The warp's memory after a fragment is stored where zeros were; once more with a wide stride."""
    writer, layout = Writer(form.opcode), _in_memory(form)
    (name,) = (spec.name for spec in row.sources if spec.is_fragment)
    registers = _taken(writer, name, layout)
    address = _address(writer, row, form, filled=False)
    for suffix, stride in _strides(writer, form):
        writer.line(*(f"st{_dot(form)}.b64 [%mine+{at}], 0;" for at in _CELLS))
        writer.line(_MEET, f"{form.opcode} [{address}], {registers}{stride};", _MEET)
        names = [f"memory{i}{suffix}" for i in range(len(_CELLS))]
        for name, at in zip(names, _CELLS, strict=True):
            writer.line(f"ld.volatile{_dot(form)}.b64 {writer.register(name, 'b64')}, [%mine+{at}];")
        writer.give("b64", *names)
    return writer.probe(count=256)


def stride(form: Form) -> int:
    """The widest stride, in elements, with which a matrix fits: a multiple of the default; 0 without one."""
    memory = next(iter(fragments_of(form.opcode).operands.values())).memory
    if not memory:
        return 0
    layout = _in_memory(form)
    length, count = (layout.columns, layout.rows) if memory == "row" else (layout.rows, layout.columns)
    room = TILE * 8 // (length * layout.bits)
    return length * ((room - 1) // (count - 1))


_MEET = f"bar.warp.sync {(1 << WARP_SIZE) - 1:#x};"


def _in_memory(form: Form) -> Layout:
    """The fragment of a load or a store."""
    (operand,) = fragments_of(form.opcode).operands.values()
    return operand.layout


def _taken(writer: Writer, name: str, layout: Layout) -> str:
    """Take a fragment, in which copies of an element are the same register."""
    different = layout.registers // layout.copies
    taken = [writer.take(f"{name}{i}", f"b{layout.register_bits}") for i in range(different)]
    return _braces(taken * layout.copies)


def _braces(registers: list[str]) -> str:
    return f"{{{', '.join(registers)}}}"


def _dot(form: Form) -> str:
    """A form's space in the opcode of a plain load or store."""
    return f".{space(form).split('::')[0]}" if space(form) else ""


def _strides(writer: Writer, form: Form) -> list[tuple[str, str]]:
    """Suffixes of the results' names, and the stride operand behind the address."""
    wide = stride(form)
    if not wide:
        return [("", "")]
    writer.line(f"mov.b32 {writer.register('stride', 'b32')}, {wide};")
    return [("", ""), ("_wide", ", %stride")]


def _address(writer: Writer, row: Row, form: Form, *, filled: bool) -> str:
    """The register with a lane's address operand; ``%mine``: the address of its own 32 bytes.

    Without a space, even warps have their memory in shared and odd ones in global memory; 8 x 8 matrices
    always lie in shared memory.
    """
    where = space(form).split("::")[0]
    mine = locate(writer, "mine", where, align=128)
    if filled and where != "global":
        fill(writer, "shared", mine)
        writer.line(_MEET)
    if not where:
        writer.line(f"cvta.shared.u64 {mine}, {mine};")
        if row.base == "wmma":
            choose(writer, mine, WARP_SIZE, "%memory", mine)
    return _row_of_matrix(writer) if row.base != "wmma" else _start_of_tile(writer)


def _start_of_tile(writer: Writer) -> str:
    writer.register("lane", "b32")
    tile = writer.register("tile", "b64")
    writer.line(
        f"and.b32 %lane, %thread, {WARP_SIZE - 1};",
        f"mul.wide.u32 {tile}, %lane, {ROOM};",
        f"sub.u64 {tile}, %mine, {tile};",
    )
    return tile


def _row_of_matrix(writer: Writer) -> str:
    _start_of_tile(writer)
    at = writer.register("row", "b64")
    writer.line(f"xor.b32 %lane, %lane, {ORDER};", f"mad.wide.u32 {at}, %lane, {ROOM}, %tile;")
    return at


# ------------------------------------------------------------------------------------------- operands


def operands(probe: Probe, form: Form) -> Words:
    """Operand tuples for whole warps; those of a product are matrices of one style in each warp."""
    draw = Draw(0, f"matrices of {probe.form}", 0)
    fragments = fragments_of(form.opcode).operands
    if "b" not in fragments or "a" not in fragments:
        masks = np.array([(1 << width(column.type)) - 1 for column in probe.operands], np.uint64)
        return draw.words(probe.count * masks.size).reshape(probe.count, -1) & masks
    styles = styles_of(fragments["a"].type)
    warps = [
        [_register(styles[k % len(styles)], draw, fragments[column.name[0]]) for column in probe.operands]
        for k in range(probe.count // WARP_SIZE)
    ]
    return np.concatenate([np.stack(registers, axis=1) for registers in warps])


def _register(style: Style, draw: Draw, operand: Operand) -> Words:
    """One register of each lane, filled with elements."""
    layout = operand.layout
    elements = style(draw, operand.name, operand.type, WARP_SIZE * layout.slots)
    shifts = np.arange(layout.slots, dtype=np.uint64) * np.uint64(layout.bits)
    return np.bitwise_or.reduce(elements.reshape(WARP_SIZE, layout.slots) << shifts, axis=1)
