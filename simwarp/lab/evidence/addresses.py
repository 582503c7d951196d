"""Probes of address instructions: generic addresses, state spaces, and the blocks of a cluster.

Addresses depend on the device, so results are differences of addresses, and the words at them.
"""

from __future__ import annotations

from simwarp.lab.evidence.memory import constants, locate, space
from simwarp.lab.evidence.probe import Probe, Writer
from simwarp.ptx.rows import Form, Row

_SPACES = ("global", "shared", "local", "const", "param")


def conversion(row: Row, form: Form) -> Probe:
    """Probe an address conversion to generic and back; both addresses must reach the same word."""
    writer, where = Writer(form.opcode), space(form)
    writer.take("a", "b32")
    _stored(writer, where, "cell")
    forth, back = form.opcode.replace("cvta.to.", "cvta."), form.opcode
    if not back.startswith("cvta.to."):
        back = back.replace("cvta.", "cvta.to.")
    writer.declare("b64 generic back, b32 d x")
    writer.line(
        f"{forth} %generic, %cell; {back} %back, %generic; sub.u64 %back, %back, %cell;",
        f"ld.{where.split('::')[0]}.b32 %d, [%cell]; ld.b32 %x, [%generic];",
        "xor.b32 %d, %d, %x; xor.b32 %d, %d, %a;",
    )
    writer.give("b32", "d")
    writer.give("b64", "back")
    return writer.probe(preamble=constants()[0] if where == "const" else "")


def membership(row: Row, form: Form) -> Probe:
    """Probe whether a generic address of each state space lies in the form's space."""
    writer = Writer(form.opcode)
    writer.take("a", "b32")
    for where in _SPACES:
        cell = f"in_{where}"
        _stored(writer, where, cell)
        writer.register(f"p_{where}", "pred")
        writer.line(f"cvta.{where}.u64 %{cell}, %{cell}; {form.opcode} %p_{where}, %{cell};")
    writer.give("pred", *(f"p_{where}" for where in _SPACES))
    return writer.probe(preamble=constants()[0])


def cluster(row: Row, form: Form) -> Probe:
    """Probe a block's rank or a mapped address, in a cluster of one block."""
    writer = Writer(form.opcode)
    writer.take("a", "b32")
    _stored(writer, "shared", "cell")
    generic, narrow = not form.modifiers, form.T == "u32"
    if generic:
        writer.line("cvta.shared.u64 %cell, %cell;")
    address, d = writer.register("address", form.T), writer.register("d", "b32")
    writer.line(f"cvt.u32.u64 {address}, %cell;" if narrow else f"mov.b64 {address}, %cell;")
    if row.base == "getctarank":
        writer.line(f"{form.opcode} {d}, {address};")
    else:
        load = "ld.b32" if generic else "ld.shared::cluster.b32"
        writer.line(f"{form.opcode} {address}, {address}, 0; {load} {d}, [{address}];")
    return writer.probe("d")


def _stored(writer: Writer, where: str, name: str) -> None:
    """Set ``%name`` to an address in a state space, and store ``%a`` there if the space is writable."""
    cell, base = locate(writer, name, where), where.split("::")[0]
    if base not in ("const", "param"):
        writer.line(f"st.{base}.b32 [{cell}], %a;")
