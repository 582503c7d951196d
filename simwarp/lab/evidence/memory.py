"""Probes of loads, stores, atomics and reductions, in each state space.

Each thread has 16-byte aligned memory of its own in the space. Without a space (generic addresses)
even threads use global and odd ones shared memory.
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
"""Operand tuples in one parameter."""
CONSTANTS = 1024
"""Words of 64 bits in the constant table."""


def space(form: Form) -> str:
    """The state space of a form, "" where it takes generic addresses."""
    known = ("param", "const", "local", "global", "shared")
    return next((m for m in form.modifiers if m.split("::")[0] in known), "")


def load(row: Row, form: Form) -> Probe:
    """A load from memory that holds the operands; integers once more into 64 bits."""
    if space(form).startswith("param"):
        return _load_parameters(form)
    writer, size = Writer(form.opcode), width(form.T) // 8
    if space(form) == "const":
        writer.line("mov.u64 %cell, constants;", f"mad.wide.u32 %cell, %i, {size * form.vector}, %cell;")
        writer.register("cell", "b64")
    else:
        _cell(writer, space(form), filled=True)
    for suffix in ("", "_wide") if integer(form.T) and row.base == "ld" else ("",):
        names, kind = _names(form, "d", suffix), "b64" if suffix else form.T
        writer.line(f"{form.opcode} {_vector(writer, names, kind)}, [%cell];")
        writer.give(kind, *names)
    writer.operands = [Column(name, form.T) for name in _names(form, "a")]
    if space(form) == "const":
        return writer.probe(preamble=constants()[0], packed=size, baked=True, count=256)
    return writer.probe(packed=size, count=256)


def store(row: Row, form: Form) -> Probe:
    """The memory behind a store; integers once more from registers of 64 bits."""
    if space(form).startswith("param"):
        return _store_arguments(form)
    writer, size, where = Writer(form.opcode), width(form.T) // 8, space(form)
    names = _names(form, "b")
    for name in names:
        writer.take(name, "b64" if integer(form.T) else form.T)
    _cell(writer, where)
    for suffix in ("", "_narrow") if integer(form.T) and width(form.T) < 64 else ("",):
        if suffix:
            for name in names:
                narrow = writer.register(name + suffix, form.T)
                writer.line(f"cvt.u{max(16, width(form.T))}.u64 {narrow}, %{name};")
        writer.line(f"{form.opcode} [%cell], {_registers([name + suffix for name in names])};")
        _back(writer, where, _names(form, "a", suffix), f"b{size * 8}")
    return writer.probe(count=256)


def atomic(row: Row, form: Form) -> Probe:
    """The word before and the word after, in a cell of each thread's own."""
    writer, bits = Writer(form.opcode), f"b{width(form.T)}"
    # Vectors are for global memory alone, also where the address is generic.
    where = space(form) or ("global" if form.vector > 1 else "")
    size = width(form.T) // 8
    old = [writer.take(name, form.T) for name in _names(form, "old")]
    values = [_names(form, spec.name) for spec in row.sources if not spec.memory]
    for names in values:
        for name in names:
            writer.take(name, form.T)
    _cell(writer, where)
    for i, register in enumerate(old):
        writer.line(f"st{_dot(where)}.{bits} [%cell+{i * size}], {register};")
    groups = ["[%cell]", *(_vector(writer, names, form.T) for names in values)]
    found = _names(form, "d") if row.destinations else []
    if found:
        groups.insert(0, _vector(writer, found, form.T))
    writer.line(f"{form.opcode} {', '.join(groups)};")
    writer.give(form.T, *found)
    _back(writer, where, _names(form, "new"), form.T)
    return writer.probe(count=512)


def locate(writer: Writer, name: str, where: str, align: int = 16) -> str:
    """``%name``: the address of the thread's memory in a space; without a space, in shared memory."""
    cell, base = writer.register(name, "b64"), where.split("::")[0]
    if base == "global":
        writer.line(f"mov.b64 {cell}, %memory;")
    elif base == "const":
        writer.line(f"mov.u64 {cell}, constants;", f"mad.wide.u32 {cell}, %thread, 4, {cell};")
    elif base == "param":
        writer.line(f"mov.u64 {cell}, memory;")
    elif base == "local":
        writer.declarations.append(f".local .align {align} .b8 depot[{ROOM}];")
        writer.line(f"mov.u64 {cell}, depot;")
    else:
        writer.declarations.append(f".shared .align {align} .b8 cells[{BLOCK * ROOM}];")
        writer.line(f"mov.u64 {cell}, cells;", f"mad.wide.u32 {cell}, %thread, {ROOM}, {cell};")
    return cell


def fill(writer: Writer, target: str, cell: str) -> None:
    """Copy all bytes of the thread's memory from global to another space."""
    through = writer.register("through", "b64")
    for at in range(0, ROOM, 8):
        writer.line(f"ld.global.b64 {through}, [%memory+{at}];", f"st.{target}.b64 [{cell}+{at}], {through};")


def choose(writer: Writer, cell: str, bit: int, one: str, zero: str) -> None:
    """``cell`` becomes one of two addresses, by a bit of the thread's number."""
    writer.register("odd", "pred")
    writer.register("bit", "b32")
    writer.line(
        f"and.b32 %bit, %thread, {bit};",
        "setp.ne.b32 %odd, %bit, 0;",
        f"selp.b64 {cell}, {one}, {zero}, %odd;",
    )


def _cell(writer: Writer, where: str, filled: bool = False) -> None:
    """``%cell``: the address of the thread's memory in a space; ``filled``: with the operands."""
    cell, base = locate(writer, "cell", where), where.split("::")[0]
    if filled and base != "global":
        fill(writer, base or "shared", cell)
    if not base:
        writer.line(f"cvta.shared.u64 {cell}, {cell};")
        choose(writer, cell, 1, cell, "%memory")


def _back(writer: Writer, where: str, names: list[str], kind: str) -> None:
    """Give the thread's memory as results."""
    volatile = "" if where.startswith("local") else ".volatile"
    for i, name in enumerate(names):
        register = writer.register(name, kind)
        at = f"[%cell+{i * width(kind) // 8}]"
        writer.line(f"ld{volatile}{_dot(where)}.b{width(kind)} {register}, {at};")
    writer.give(kind, *names)


def _dot(where: str) -> str:
    """A space in the opcode of a plain load or store."""
    return f".{where.split('::')[0]}" if where else ""


def _names(form: Form, name: str, suffix: str = "") -> list[str]:
    """A register for each element of a vector."""
    return [f"{name}{i}{suffix}" for i in range(form.vector)]


def _registers(names: list[str]) -> str:
    written = ", ".join(f"%{name}" for name in names)
    return f"{{{written}}}" if len(names) > 1 else written


def _vector(writer: Writer, names: list[str], kind: str) -> str:
    for name in names:
        writer.register(name, kind)
    return _registers(names)


# ------------------------------------------------------------------------- constants and parameters


@cache
def constants() -> tuple[str, bytes]:
    """A table in constant memory: its declaration, and its bytes."""
    words = Draw(0, "the constant table", 0).words(CONSTANTS)
    values = ", ".join(f"{int(word):#x}" for word in words)
    return f".const .align 16 .b64 constants[{CONSTANTS}] = {{{values}}};\n", words.astype("<u8").tobytes()


def _load_parameters(form: Form) -> Probe:
    """Loads of a kernel's parameter: thread k loads operand tuple k."""
    writer, size = Writer(form.opcode), width(form.T) // 8
    kinds = {"": form.T, "_wide": "b64"} if integer(form.T) else {"": form.T}
    mine = writer.register("mine", "pred")
    for k in range(_AT_ONCE):
        writer.line(f"setp.eq.u32 {mine}, %thread, {k};")
        for suffix, kind in kinds.items():
            registers = _vector(writer, _names(form, "d", suffix), kind)
            writer.line(f"@{mine} {form.opcode} {registers}, [in+{k * size * form.vector}];")
    for suffix, kind in kinds.items():
        writer.give(kind, *_names(form, "d", suffix))
    writer.operands = [Column(name, form.T) for name in _names(form, "a")]
    return writer.probe(packed=size, at_once=_AT_ONCE, count=256)


def _store_arguments(form: Form) -> Probe:
    """Stores of an argument of a call: the function returns the bytes of its argument."""
    writer, size = Writer(form.opcode), width(form.T) // 8
    names = _names(form, "b")
    for name in names:
        writer.take(name, form.T)
    bits = f"b{size * 8}"
    kept = [writer.register(name, bits) for name in _names(form, "a")]
    writer.line("{", f".param .align 16 .b8 given[{ROOM}];", f".param .align 16 .b8 taken[{ROOM}];")
    # The bytes that the instruction leaves out are passed too, and must have been written.
    writer.line(*(f"st.param.b64 [given+{at}], 0;" for at in range(0, ROOM, 8)))
    writer.line(f"{form.opcode} [given], {_registers(names)};", "call.uni (taken), echo, (given);")
    writer.line(*(f"ld.param.{bits} {register}, [taken+{i * size}];" for i, register in enumerate(kept)))
    writer.line("}")
    writer.give(bits, *_names(form, "a"))
    return writer.probe(preamble=_echo(), count=256)


def _echo() -> str:
    """A device function that returns its argument."""
    lines = [f"\tld.param.b64 %b, [given+{at}]; st.param.b64 [taken+{at}], %b;\n" for at in range(0, ROOM, 8)]
    head = f".func (.param .align 16 .b8 taken[{ROOM}]) echo(.param .align 16 .b8 given[{ROOM}])\n"
    return f"{head}{{\n\t.reg .b64 %b;\n{''.join(lines)}\tret;\n}}\n"


# -------------------------------------------------------------------------------------------- operands


def baked(probe: Probe) -> Words:
    """The operands in a probe's own text: the words of the constant table."""
    count = len(probe.operands)
    bytes_ = np.frombuffer(constants()[1], np.uint8)[: probe.count * probe.packed * count]
    return bytes_.view(f"<u{probe.packed}").astype(np.uint64).reshape(probe.count, count)


def meeting_values(form: Form, drawn: Words) -> Words:
    """Operand tuples of which every other compare-and-swap succeeds."""
    if form.has("cas"):
        drawn = drawn.copy()
        drawn[::2, 1] = drawn[::2, 0]
    return drawn
