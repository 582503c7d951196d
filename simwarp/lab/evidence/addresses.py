"""Probes of instructions on addresses: generic ones, state spaces, and the blocks of a cluster.

Where memory lies is a device's own business, so that results are differences of addresses, and what
is found there.
"""

from __future__ import annotations

from simwarp.lab.evidence.memory import constants, space
from simwarp.lab.evidence.probe import BLOCK, ROOM, Probe, Writer
from simwarp.ptx.rows import Form, Row

_SPACES = ("global", "shared", "local", "const", "param")


def conversion(row: Row, form: Form) -> Probe:
    """To a generic address and back: the same address, and the same word behind both.

    Examples
    --------
    >>> from simwarp.ptx.instructions import TABLE
    >>> [column.name for column in conversion(*TABLE.find("cvta.shared.u64")).results]
    ['d', 'back']
    """
    writer, where = Writer(form.opcode), space(form)
    writer.take("a", "b32")
    _located(writer, where, "cell")
    forth, back = form.opcode.replace("cvta.to.", "cvta."), form.opcode
    if not back.startswith("cvta.to."):
        back = back.replace("cvta.", "cvta.to.")
    for name, kind in (("generic", "b64"), ("back", "b64"), ("d", "b32"), ("x", "b32")):
        writer.register(name, kind)
    writer.line(
        f"{forth} %generic, %cell;",
        f"{back} %back, %generic;",
        "sub.u64 %back, %back, %cell;",
        f"ld.{where.split('::')[0]}.b32 %d, [%cell];",
        "ld.b32 %x, [%generic];",
        "xor.b32 %d, %d, %x;",
        "xor.b32 %d, %d, %a;",
    )
    writer.give("d", "b32")
    writer.give("back", "b64")
    return writer.probe(preamble=constants()[0] if where == "const" else "")


def membership(row: Row, form: Form) -> Probe:
    """Of a generic address in each state space, whether it is said to lie in the form's.

    Examples
    --------
    >>> from simwarp.ptx.instructions import TABLE
    >>> [column.name for column in membership(*TABLE.find("isspacep.shared")).results]
    ['p_global', 'p_shared', 'p_local', 'p_const', 'p_param']
    """
    writer = Writer(form.opcode)
    writer.take("a", "b32")
    for where in _SPACES:
        cell = f"in_{where}"
        _located(writer, where, cell)
        writer.register(f"p_{where}", "pred")
        writer.line(f"cvta.{where}.u64 %{cell}, %{cell};", f"{form.opcode} %p_{where}, %{cell};")
    for where in _SPACES:
        writer.give(f"p_{where}", "pred")
    return writer.probe(preamble=constants()[0])


def cluster(row: Row, form: Form) -> Probe:
    """In a cluster of one block: that block's rank, or what its mapped address holds.

    Examples
    --------
    >>> from simwarp.ptx.instructions import TABLE
    >>> probe = cluster(*TABLE.find("mapa.u64"))
    >>> [line.strip() for line in probe.entry.splitlines() if "mapa" in line]
    ['mapa.u64 %address, %address, 0;']
    """
    writer = Writer(form.opcode)
    writer.take("a", "b32")
    _located(writer, "shared", "cell")
    generic, narrow = not form.modifiers, form.T == "u32"
    if generic:
        writer.line("cvta.shared.u64 %cell, %cell;")
    address = writer.register("address", form.T)
    d = writer.register("d", "b32")
    writer.line(f"cvt.u32.u64 {address}, %cell;" if narrow else f"mov.b64 {address}, %cell;")
    if row.base == "getctarank":
        writer.line(f"{form.opcode} {d}, {address};")
    else:
        load = "ld.b32" if generic else "ld.shared::cluster.b32"
        writer.line(f"{form.opcode} {address}, {address}, 0;", f"{load} {d}, [{address}];")
    writer.give("d", "b32")
    return writer.probe()


def _located(writer: Writer, where: str, name: str) -> None:
    """``%name``: an address in a state space, where ``%a`` was stored if that can be written."""
    cell, base = writer.register(name, "b64"), where.split("::")[0]
    if base == "global":
        writer.line(f"mov.b64 {cell}, %memory;")
    elif base == "const":
        writer.line(f"mov.u64 {cell}, constants;", f"mad.wide.u32 {cell}, %thread, 4, {cell};")
    elif base == "param":
        writer.line(f"mov.u64 {cell}, memory;")
    elif base == "local":
        writer.declarations.append(f".local .align 16 .b8 depot[{ROOM}];")
        writer.line(f"mov.u64 {cell}, depot;")
    else:
        writer.declarations.append(f".shared .align 16 .b8 cells[{BLOCK * ROOM}];")
        writer.line(f"mov.u64 {cell}, cells;", f"mad.wide.u32 {cell}, %thread, {ROOM}, {cell};")
    if base not in ("const", "param"):
        writer.line(f"st.{base}.b32 [{cell}], %a;")
