"""Probes of loads, stores, atomics and reductions, in each state space.

Each thread has 16-byte aligned memory of its own in the space. Without a space (generic addresses)
even threads use global and odd ones shared memory.

Examples
--------
What lies in shared memory is read as two elements, then once more into wider registers:

>>> from simwarp.lab.evidence.catalogue import probe_of
>>> probe = probe_of("ld.shared.v2.b32")
>>> [column.name for column in probe.operands], [column.name for column in probe.results]
(['a0', 'a1'], ['d0', 'd1', 'd0_wide', 'd1_wide'])
>>> [line.strip() for line in probe.entry.splitlines() if "v2" in line]
['ld.shared.v2.b32 {%d0, %d1}, [%cell];', 'ld.shared.v2.b32 {%d0_wide, %d1_wide}, [%cell];']

An atomic operation gives what it finds, and leaves something else:

>>> [column.name for column in probe_of("atom.shared.add.u32").results]
['d0', 'new0']
"""

from __future__ import annotations

from functools import cache

import numpy as np

from simwarp.lab.evidence.operands import Column, Words, width
from simwarp.lab.evidence.probe import BLOCK, ROOM, Probe, Writer
from simwarp.lab.evidence.registers import integer
from simwarp.ptx.rows import Form, Row
from simwarp.verify.draw import Draw

_AT_ONCE = 32
"""Sets that a parameter holds."""
CONSTANTS = 1024
"""Words of 64 bits in the constant table."""


def space(form: Form) -> str:
    """The state space of a form, "" where it takes generic addresses.

    Examples
    --------
    >>> space(Form("ld.shared::cta.b32", ("shared::cta",), "b32"))
    'shared::cta'
    """
    known = ("param", "const", "local", "global", "shared")
    return next((m for m in form.modifiers if m.split("::")[0] in known), "")


def load(row: Row, form: Form) -> Probe:
    """What a load brings from memory that holds the operands; integers once more into 64 bits."""
    if space(form).startswith("param"):
        return _load_parameters(form)
    writer, size = Writer(form.opcode), width(form.T) // 8
    columns = [Column(f"a{i}", form.T) for i in range(form.vector)]
    if space(form) == "const":
        writer.line("mov.u64 %cell, constants;", f"mad.wide.u32 %cell, %i, {size * form.vector}, %cell;")
        writer.register("cell", "b64")
    else:
        _cell(writer, space(form), filled=True)
    for suffix in ("", "_wide") if integer(form.T) and row.base == "ld" else ("",):
        registers = [f"d{i}{suffix}" for i in range(form.vector)]
        kind = "b64" if suffix else form.T
        writer.line(f"{form.opcode} {_braces(writer, registers, kind)}, [%cell];")
        for name in registers:
            writer.give(name, kind)
    writer.operands = columns
    if space(form) == "const":
        return writer.probe(preamble=constants()[0], packed=size, baked=True, count=256)
    return writer.probe(packed=size, count=256)


def store(row: Row, form: Form) -> Probe:
    """What a store leaves in memory; of integers once more from registers of 64 bits."""
    if space(form).startswith("param"):
        return _store_arguments(form)
    writer, size, where = Writer(form.opcode), width(form.T) // 8, space(form)
    names = [f"b{i}" for i in range(form.vector)]
    for name in names:
        writer.take(name, "b64" if integer(form.T) else form.T)
    _cell(writer, where)
    for suffix in ("", "_narrow") if integer(form.T) and width(form.T) < 64 else ("",):
        if suffix:
            for name in names:
                narrow = writer.register(name + suffix, form.T)
                writer.line(f"cvt.u{max(16, width(form.T))}.u64 {narrow}, %{name};")
        writer.line(f"{form.opcode} [%cell], {_registers([name + suffix for name in names])};")
        _back(writer, where, [f"a{i}{suffix}" for i in range(form.vector)], f"b{size * 8}")
    return writer.probe(count=256)


def atomic(row: Row, form: Form) -> Probe:
    """Each thread has a cell of its own: what it finds there, and what it leaves."""
    writer, bits = Writer(form.opcode), f"b{width(form.T)}"
    # Vectors are for global memory alone, also where the address is generic.
    where = space(form) or ("global" if form.vector > 1 else "")
    size = width(form.T) // 8
    old = [writer.take(f"old{i}", form.T) for i in range(form.vector)]
    values = [spec.name for spec in row.sources if not spec.memory]
    for name in values:
        for i in range(form.vector):
            writer.take(f"{name}{i}", form.T)
    _cell(writer, where)
    for i, register in enumerate(old):
        writer.line(f"st{_dot(where)}.{bits} [%cell+{i * size}], {register};")
    groups = [_braces(writer, [f"{name}{i}" for i in range(form.vector)], form.T) for name in values]
    if row.destinations:
        found = [f"d{i}" for i in range(form.vector)]
        writer.line(f"{form.opcode} {', '.join([_braces(writer, found, form.T), '[%cell]', *groups])};")
        for name in found:
            writer.give(name, form.T)
    else:
        writer.line(f"{form.opcode} {', '.join(['[%cell]', *groups])};")
    _back(writer, where, [f"new{i}" for i in range(form.vector)], form.T)
    return writer.probe(count=512)


def _cell(writer: Writer, where: str, filled: bool = False) -> None:
    """``%cell``: the address of the thread's memory in a space; ``filled``: with the operands."""
    cell = writer.register("cell", "b64")
    base = where.split("::")[0]
    if base == "global":
        writer.line(f"mov.b64 {cell}, %memory;")
        return
    if base == "local":
        writer.declarations.append(f".local .align 16 .b8 depot[{ROOM}];")
        writer.line(f"mov.u64 {cell}, depot;")
    else:
        writer.declarations.append(f".shared .align 16 .b8 cells[{BLOCK * ROOM}];")
        writer.line(f"mov.u64 {cell}, cells;", f"mad.wide.u32 {cell}, %thread, {ROOM}, {cell};")
    if filled:
        through = writer.register("through", "b64")
        writer.line(*_copy(base or "shared", cell, through))
    if not base:
        odd = writer.register("odd", "pred")
        writer.register("bit", "b32")
        writer.line(
            f"cvta.shared.u64 {cell}, {cell};",
            "and.b32 %bit, %thread, 1;",
            f"setp.ne.b32 {odd}, %bit, 0;",
            f"selp.b64 {cell}, {cell}, %memory, {odd};",
        )


def _copy(target: str, cell: str, through: str) -> list[str]:
    """All bytes of the thread's memory from global to another space."""
    lines: list[str] = []
    for at in range(0, ROOM, 8):
        lines += [
            f"ld.global.b64 {through}, [%memory+{at}];",
            f"st.{target}.b64 [{cell}+{at}], {through};",
        ]
    return lines


def _back(writer: Writer, where: str, names: list[str], kind: str) -> None:
    """Give what lies in the thread's memory as results."""
    volatile = "" if where.startswith("local") else ".volatile"
    for i, name in enumerate(names):
        register = writer.register(name, kind)
        at = f"[%cell+{i * width(kind) // 8}]"
        writer.line(f"ld{volatile}{_dot(where)}.b{width(kind)} {register}, {at};")
    for name in names:
        writer.give(name, kind)


def _dot(where: str) -> str:
    """A space as the opcode of a plain load or store writes it."""
    return f".{where.split('::')[0]}" if where else ""


def _registers(names: list[str]) -> str:
    written = ", ".join(f"%{name}" for name in names)
    return f"{{{written}}}" if len(names) > 1 else written


def _braces(writer: Writer, names: list[str], kind: str) -> str:
    for name in names:
        writer.register(name, kind)
    return _registers(names)


# ------------------------------------------------------------------------- constants and parameters


@cache
def constants() -> tuple[str, bytes]:
    """A table in constant memory: its declaration, and its bytes.

    Examples
    --------
    >>> text, table = constants()
    >>> len(table) == 8 * CONSTANTS and text.startswith(".const")
    True
    """
    words = Draw(0, "the constant table", 0).words(CONSTANTS)
    values = ", ".join(f"{int(word):#x}" for word in words)
    return f".const .align 16 .b64 constants[{CONSTANTS}] = {{{values}}};\n", words.astype("<u8").tobytes()


def _load_parameters(form: Form) -> Probe:
    """Loads of a kernel's parameter: thread k loads set k."""
    writer, size = Writer(form.opcode), width(form.T) // 8
    names = {suffix: [f"d{i}{suffix}" for i in range(form.vector)] for suffix in ("", "_wide")}
    kinds = {"": form.T, "_wide": "b64"} if integer(form.T) else {"": form.T}
    mine = writer.register("mine", "pred")
    for k in range(_AT_ONCE):
        writer.line(f"setp.eq.u32 {mine}, %thread, {k};")
        for suffix, kind in kinds.items():
            registers = _braces(writer, names[suffix], kind)
            writer.line(f"@{mine} {form.opcode} {registers}, [in+{k * size * form.vector}];")
    for suffix, kind in kinds.items():
        for name in names[suffix]:
            writer.give(name, kind)
    writer.operands = [Column(f"a{i}", form.T) for i in range(form.vector)]
    return writer.probe(packed=size, at_once=_AT_ONCE, count=256)


def _store_arguments(form: Form) -> Probe:
    """Stores of an argument of a call: a function gives back the bytes that it is passed."""
    writer, size = Writer(form.opcode), width(form.T) // 8
    names = [f"b{i}" for i in range(form.vector)]
    for name in names:
        writer.take(name, form.T)
    bits = f"b{size * 8}"
    kept = [writer.register(f"a{i}", bits) for i in range(form.vector)]
    writer.line("{", f".param .align 16 .b8 given[{ROOM}];", f".param .align 16 .b8 taken[{ROOM}];")
    # What the instruction leaves out is passed too, and must have been written.
    writer.line(*(f"st.param.b64 [given+{at}], 0;" for at in range(0, ROOM, 8)))
    writer.line(f"{form.opcode} [given], {_registers(names)};", "call.uni (taken), echo, (given);")
    writer.line(*(f"ld.param.{bits} {register}, [taken+{i * size}];" for i, register in enumerate(kept)))
    writer.line("}")
    for i in range(form.vector):
        writer.give(f"a{i}", bits)
    return writer.probe(preamble=_echo(), count=256)


def _echo() -> str:
    """A device function that returns its argument."""
    lines = [f"\tld.param.b64 %b, [given+{at}]; st.param.b64 [taken+{at}], %b;\n" for at in range(0, ROOM, 8)]
    head = f".func (.param .align 16 .b8 taken[{ROOM}]) echo(.param .align 16 .b8 given[{ROOM}])\n"
    return f"{head}{{\n\t.reg .b64 %b;\n{''.join(lines)}\tret;\n}}\n"


# -------------------------------------------------------------------------------------------- operands


def baked(probe: Probe) -> Words:
    """The operands that stand in a probe's own text: what lies in the constant table.

    Examples
    --------
    >>> from simwarp.ptx.rows import Form
    >>> probe = Probe("", "", (Column("a0", "b8"),), (), packed=1, count=2)
    >>> baked(probe)[:, 0].tolist() == list(constants()[1][:2])
    True
    """
    count = len(probe.operands)
    bytes_ = np.frombuffer(constants()[1], np.uint8)[: probe.count * probe.packed * count]
    return bytes_.view(f"<u{probe.packed}").astype(np.uint64).reshape(probe.count, count)


def meeting_values(form: Form, drawn: Words) -> Words:
    """Of a compare-and-swap, every other set finds what it compares with.

    Examples
    --------
    >>> meeting_values(Form("", ("cas",)), np.array([[5, 6, 7]], np.uint64)).tolist()
    [[5, 5, 7]]
    """
    if form.has("cas"):
        drawn = drawn.copy()
        drawn[::2, 1] = drawn[::2, 0]
    return drawn
