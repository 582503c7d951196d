"""Probes of loads, stores, atomics and reductions, in each state space.

Each thread has its own 16-byte aligned cell in the space. Without a space (generic addresses) even
threads have theirs in global and odd threads in shared memory.
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
"""Operand tuples that one kernel parameter holds."""
CONSTANTS = 1024
"""The number of 64-bit words in the constant table."""


def space(form: Form) -> str:
    """The state space of a form; "" for generic addresses."""
    known = ("param", "const", "local", "global", "shared")
    return next((m for m in form.modifiers if m.split("::")[0] in known), "")


def load(row: Row, form: Form) -> Probe:
    """Probe a load of the operands from memory; integers also into 64-bit registers."""
    if space(form).startswith("param"):
        return _load_parameters(form)
    writer, size = Writer(form.opcode), width(form.T) // 8
    if space(form) == "const":
        writer.line(f"mov.u64 %cell, constants; mad.wide.u32 %cell, %i, {size * form.vector}, %cell;")
        writer.declare("b64 cell")
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
    """Probe a store, with the memory as result; integers are also stored from 64-bit registers."""
    if space(form).startswith("param"):
        return _store_arguments(form)
    writer, bits, where = Writer(form.opcode), width(form.T), space(form)
    names = _names(form, "b")
    _take(writer, names, "b64" if integer(form.T) else form.T)
    _cell(writer, where)
    for suffix in ("", "_narrow") if integer(form.T) and bits < 64 else ("",):
        for name in names if suffix else ():
            writer.line(f"cvt.u{max(16, bits)}.u64 {writer.register(name + suffix, form.T)}, %{name};")
        writer.line(f"{form.opcode} [%cell], {_registers([name + suffix for name in names])};")
        _back(writer, where, _names(form, "a", suffix), f"b{bits}")
    return writer.probe(count=256)


def atomic(row: Row, form: Form) -> Probe:
    """Probe an atomic operation on the thread's own cell, with the words before and after it as results."""
    writer, bits = Writer(form.opcode), width(form.T)
    # Only global memory has wide vectors, even if the address is generic.
    where = space(form) or ("global" if form.vector > 1 else "")
    old = _take(writer, _names(form, "old"), form.T)
    values = [_names(form, spec.name) for spec in row.sources if not spec.memory]
    for names in values:
        _take(writer, names, form.T)
    _cell(writer, where)
    for i, register in enumerate(old):
        writer.line(f"st{dot(where)}.b{bits} [%cell+{i * bits // 8}], {register};")
    groups = ["[%cell]", *(_vector(writer, names, form.T) for names in values)]
    found = _names(form, "d") if row.destinations else []
    if found:
        groups.insert(0, _vector(writer, found, form.T))
    writer.line(f"{form.opcode} {', '.join(groups)};")
    writer.give(form.T, *found)
    _back(writer, where, _names(form, "new"), form.T)
    return writer.probe(count=512)


def locate(writer: Writer, name: str, where: str, align: int = 16) -> str:
    """Set ``%name`` to the address of the thread's cell in a space; without a space, in shared memory."""
    cell, base = writer.register(name, "b64"), where.split("::")[0]
    if base == "global":
        writer.line(f"mov.b64 {cell}, %memory;")
    elif base == "const":
        writer.line(f"mov.u64 {cell}, constants; mad.wide.u32 {cell}, %thread, 4, {cell};")
    elif base == "param":
        writer.line(f"mov.u64 {cell}, memory;")
    elif base == "local":
        writer.declarations.append(f".local .align {align} .b8 depot[{ROOM}];")
        writer.line(f"mov.u64 {cell}, depot;")
    else:
        writer.declarations.append(f".shared .align {align} .b8 cells[{BLOCK * ROOM}];")
        writer.line(f"mov.u64 {cell}, cells; mad.wide.u32 {cell}, %thread, {ROOM}, {cell};")
    return cell


def fill(writer: Writer, target: str, cell: str) -> None:
    """Copy the thread's cell from global memory to another space."""
    through = writer.register("through", "b64")
    for at in range(0, ROOM, 8):
        writer.line(f"ld.global.b64 {through}, [%memory+{at}]; st.{target}.b64 [{cell}+{at}], {through};")


def choose(writer: Writer, cell: str, bit: int, one: str, zero: str) -> None:
    """Set ``cell`` to the address ``one`` or ``zero``, by a bit of the thread's number."""
    writer.declare("pred odd, b32 bit")
    writer.line(f"and.b32 %bit, %thread, {bit}; setp.ne.b32 %odd, %bit, 0;")
    writer.line(f"selp.b64 {cell}, {one}, {zero}, %odd;")


def _cell(writer: Writer, where: str, filled: bool = False) -> None:
    """Set ``%cell`` to the address of the thread's cell in a space, perhaps filled with the operands."""
    cell, base = locate(writer, "cell", where), where.split("::")[0]
    if filled and base != "global":
        fill(writer, base or "shared", cell)
    if not base:
        writer.line(f"cvta.shared.u64 {cell}, {cell};")
        choose(writer, cell, 1, cell, "%memory")


def _back(writer: Writer, where: str, names: list[str], kind: str) -> None:
    """Store the contents of the thread's cell as results."""
    volatile = "" if where.startswith("local") else ".volatile"
    for i, name in enumerate(names):
        register = writer.register(name, kind)
        at = f"[%cell+{i * width(kind) // 8}]"
        writer.line(f"ld{volatile}{dot(where)}.b{width(kind)} {register}, {at};")
    writer.give(kind, *names)


def dot(where: str) -> str:
    """The modifier of a plain load or store in a state space; "" for generic addresses."""
    return f".{where.split('::')[0]}" if where else ""


def _names(form: Form, name: str, suffix: str = "") -> list[str]:
    """Register names, one for each element of the form's vector."""
    return [f"{name}{i}{suffix}" for i in range(form.vector)]


def _registers(names: list[str]) -> str:
    written = ", ".join(f"%{name}" for name in names)
    return f"{{{written}}}" if len(names) > 1 else written


def _vector(writer: Writer, names: list[str], kind: str) -> str:
    writer.declare(" ".join([kind, *names]))
    return _registers(names)


def _take(writer: Writer, names: list[str], kind: str) -> list[str]:
    return [writer.take(name, kind) for name in names]


# ------------------------------------------------------------------------- constants and parameters


@cache
def constants() -> tuple[str, bytes]:
    """The table in constant memory: its declaration in PTX, and its bytes."""
    words = Draw(0, "the constant table", 0).words(CONSTANTS)
    values = ", ".join(f"{int(word):#x}" for word in words)
    return f".const .align 16 .b64 constants[{CONSTANTS}] = {{{values}}};\n", words.astype("<u8").tobytes()


def _load_parameters(form: Form) -> Probe:
    """Probe a load from a kernel parameter: thread k loads operand tuple k."""
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
    """Probe a store to the argument of a function that returns it unchanged."""
    writer, size = Writer(form.opcode), width(form.T) // 8
    names, bits = _names(form, "b"), f"b{size * 8}"
    _take(writer, names, form.T)
    kept = [writer.register(name, bits) for name in _names(form, "a")]
    writer.line("{", f".param .align 16 .b8 given[{ROOM}];", f".param .align 16 .b8 taken[{ROOM}];")
    # The call also passes the bytes that the instruction does not write; they must be initialised.
    writer.line(*(f"st.param.b64 [given+{at}], 0;" for at in range(0, ROOM, 8)))
    writer.line(f"{form.opcode} [given], {_registers(names)};", "call.uni (taken), echo, (given);")
    writer.line(*(f"ld.param.{bits} {register}, [taken+{i * size}];" for i, register in enumerate(kept)))
    writer.line("}")
    writer.give(bits, *_names(form, "a"))
    return writer.probe(preamble=_echo(), count=256)


def _echo() -> str:
    """The PTX of a device function that returns its argument."""
    lines = [f"\tld.param.b64 %b, [given+{at}]; st.param.b64 [taken+{at}], %b;\n" for at in range(0, ROOM, 8)]
    head = f".func (.param .align 16 .b8 taken[{ROOM}]) echo(.param .align 16 .b8 given[{ROOM}])\n"
    return f"{head}{{\n\t.reg .b64 %b;\n{''.join(lines)}\tret;\n}}\n"


# -------------------------------------------------------------------------------------------- operands


def constant_operands(probe: Probe) -> Words:
    """The operands of a probe that are constants in its text: words of the constant table."""
    count = len(probe.operands)
    bytes_ = np.frombuffer(constants()[1], np.uint8)[: probe.count * probe.packed * count]
    return bytes_.view(f"<u{probe.packed}").astype(np.uint64).reshape(probe.count, count)


def matching_swaps(form: Form, drawn: Words) -> Words:
    """Operand tuples of an atomic form, changed so that every other compare-and-swap succeeds."""
    if form.has("cas"):
        drawn = drawn.copy()
        drawn[::2, 1] = drawn[::2, 0]
    return drawn
