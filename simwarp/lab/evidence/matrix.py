"""Probes of matrix instructions, which a warp executes as a whole, and operands for whole warps.

What a product reads and gives are cells like those of other instructions, one for each register of a
fragment. A matrix in memory has the warp's part of the probes' memory: 32 bytes of each of its threads,
one behind the other.

Examples
--------
>>> from simwarp.lab.evidence.catalogue import probe_of
>>> probe = probe_of("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
>>> [column.name for column in probe.operands]
['a0', 'a1', 'a2', 'a3', 'b0', 'b1', 'c0', 'c1', 'c2', 'c3']
>>> [line.strip() for line in probe.entry.splitlines() if "mma" in line]  # doctest: +ELLIPSIS
['mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, ...;']
"""

from __future__ import annotations

import numpy as np

from simwarp.fragments import Layout, Operand, fragments_of
from simwarp.lab.evidence.memory import space
from simwarp.lab.evidence.operands import Column, Words, width
from simwarp.lab.evidence.probe import BLOCK, ROOM, Probe, Writer
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
    if row.base == "movmatrix":  # the one whose operands are no vectors
        written, given = "%d0", ["%a0"]
    writer.line(f"{form.opcode} {', '.join([written, *given])};")
    for name in names:
        writer.give(name, f"b{result.register_bits}")
    return writer.probe()


def load(row: Row, form: Form) -> Probe:
    """A fragment of what lies in the warp's memory; once more with a wide stride.

    Examples
    --------
    >>> from simwarp.lab.evidence.catalogue import probe_of
    >>> [c.name for c in probe_of("wmma.load.a.sync.aligned.row.m8n8k128.b1").results]
    ['d0', 'd0_wide']
    """
    writer, layout = Writer(form.opcode), _in_memory(form)
    address = _address(writer, row, form, filled=True)
    for suffix, stride in _strides(writer, form):
        names = [f"d{i}{suffix}" for i in range(layout.registers)]
        registers = _braces([writer.register(name, f"b{layout.register_bits}") for name in names])
        writer.line(f"{form.opcode} {registers}, [{address}]{stride};")
        for name in names:
            writer.give(name, f"b{layout.register_bits}")
    writer.operands = [Column(f"memory{i}", "b64") for i in range(len(_CELLS))]
    return writer.probe(packed=8, count=256)


def store(row: Row, form: Form) -> Probe:
    """What the warp's memory holds when a fragment is stored where zeros were; once more with a wide stride.

    Examples
    --------
    >>> from simwarp.lab.evidence.catalogue import probe_of
    >>> probe = probe_of("stmatrix.sync.aligned.m8n8.x2.shared.b16")
    >>> [c.name for c in probe.operands], [c.name for c in probe.results]
    (['r0', 'r1'], ['memory0', 'memory1', 'memory2', 'memory3'])
    """
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
        for name in names:
            writer.give(name, "b64")
    return writer.probe(count=256)


def stride(form: Form) -> int:
    """The widest stride, in elements, with which a matrix fits: a multiple of the default; 0 if it has none.

    Examples
    --------
    >>> stride(Form("wmma.load.a.sync.aligned.row.m8n8k128.b1"))
    1152
    """
    memory = next(iter(fragments_of(form.opcode).operands.values())).memory
    if not memory:
        return 0
    layout = _in_memory(form)
    length, count = (layout.columns, layout.rows) if memory == "row" else (layout.rows, layout.columns)
    room = TILE * 8 // (length * layout.bits)
    return length * ((room - 1) // (count - 1))


_MEET = f"bar.warp.sync {(1 << WARP_SIZE) - 1:#x};"


def _in_memory(form: Form) -> Layout:
    """The fragment that a load or a store has."""
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
    """A form's space as the opcode of a plain load or store writes it."""
    return f".{space(form).split('::')[0]}" if space(form) else ""


def _strides(writer: Writer, form: Form) -> list[tuple[str, str]]:
    """What is written behind the address, with what the results' names end."""
    wide = stride(form)
    if not wide:
        return [("", "")]
    writer.line(f"mov.b32 {writer.register('stride', 'b32')}, {wide};")
    return [("", ""), ("_wide", ", %stride")]


def _address(writer: Writer, row: Row, form: Form, *, filled: bool) -> str:
    """The register with the address that a lane gives; ``%mine``: where its own 32 bytes are.

    Without a space, even warps have their memory in shared and odd ones in global memory; 8 x 8 matrices
    lie in shared memory always.
    """
    mine, where = writer.register("mine", "b64"), space(form).split("::")[0]
    if where == "global":
        writer.line(f"mov.b64 {mine}, %memory;")
    else:
        writer.declarations.append(f".shared .align 128 .b8 cells[{BLOCK * ROOM}];")
        writer.line(f"mov.u64 {mine}, cells;", f"mad.wide.u32 {mine}, %thread, {ROOM}, {mine};")
        if filled:
            through = writer.register("through", "b64")
            for at in _CELLS:
                writer.line(f"ld.global.b64 {through}, [%memory+{at}];")
                writer.line(f"st.shared.b64 [{mine}+{at}], {through};")
            writer.line(_MEET)
    if not where:
        writer.line(f"cvta.shared.u64 {mine}, {mine};")
        if row.base == "wmma":
            _every_other_warp(writer)
    return _row_of_matrix(writer) if row.base != "wmma" else _start_of_tile(writer)


def _every_other_warp(writer: Writer) -> None:
    """``%mine`` in global memory, in odd warps."""
    writer.register("odd", "pred")
    writer.register("bit", "b32")
    writer.line(
        f"and.b32 %bit, %thread, {WARP_SIZE};",
        "setp.ne.b32 %odd, %bit, 0;",
        "selp.b64 %mine, %memory, %mine, %odd;",
    )


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
    """Sets for whole warps; those of a product are matrices of one style in each warp.

    Parameters
    ----------
    probe : Probe
    form : Form

    Returns
    -------
    uint64 (probe.count, operands)
        32 rows for each warp.

    Examples
    --------
    >>> from simwarp.lab.evidence.catalogue import probe_of
    >>> probe = probe_of("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc")
    >>> operands(probe, Form(probe.form)).shape
    (1024, 4)
    """
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
