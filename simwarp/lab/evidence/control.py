"""Probes written by hand: control flow, barriers, fences, and what else has no operands to cross.

A row whose instruction computes nothing needs its own kernel: one whose results would be others if
the instruction did something else, or nothing.

Examples
--------
Where the branch is taken, d stays a; where it is not, d is its complement:

>>> import simwarp
>>> from simwarp.lab.evidence.catalogue import operands_of, probe_of
>>> from simwarp.lab.evidence.launch import ask
>>> probe = probe_of("bra")
>>> (answer,) = ask(simwarp.Device(), [probe])
>>> a, taken = operands_of(probe).T
>>> d = answer[:, 0]
>>> bool((d[taken == 1] == a[taken == 1]).all()), bool((d[taken == 0] == a[taken == 0] ^ 0xFFFFFFFF).all())
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable

from simwarp.lab.evidence import addresses
from simwarp.lab.evidence.probe import BLOCK, Probe, Writer
from simwarp.ptx.rows import Form, Row

Make = Callable[[Row, Form], Probe]


def branch(row: Row, form: Form) -> Probe:
    """Where the branch is taken, d stays a; a uniform one is taken by all."""
    writer = Writer(form.opcode)
    a, taken = writer.take("a", "b32"), writer.take("taken", "pred")
    d = writer.register("d", "b32")
    guard = "" if form.has("uni") else f"@{taken} "
    writer.line(f"mov.b32 {d}, {a};", f"{guard}{form.opcode} OVER;", f"not.b32 {d}, {d};", "OVER:")
    writer.give("d", "b32")
    return writer.probe()


def indexed_branch(row: Row, form: Form) -> Probe:
    """The index, uniform in each block where it must be, chooses one of three labels."""
    writer = Writer(form.opcode)
    a, d, index = writer.take("a", "b32"), writer.register("d", "b32"), writer.register("index", "b32")
    writer.line(
        f"mov.b32 {index}, %ctaid.x;" if form.has("uni") else f"mov.b32 {index}, {a};",
        f"rem.u32 {index}, {index}, 3;",
        "TARGETS: .branchtargets FIRST, SECOND, THIRD;",
        f"{form.opcode} {index}, TARGETS;",
        f"FIRST: not.b32 {d}, {a};",
        "bra END;",
        f"SECOND: add.u32 {d}, {a}, 7;",
        "bra END;",
        f"THIRD: xor.b32 {d}, {a}, 0x12345678;",
        "END:",
    )
    writer.give("d", "b32")
    return writer.probe()


_TWICE = """.func (.param .b32 doubled) NAME_twice(.param .b32 number)
{
	.reg .b32 %r; .reg .pred %large;
	ld.param.b32 %r, [number];
	st.param.b32 [doubled], %r;
	setp.gt.u32 %large, %r, 0x7FFFFFFF;
	RETURN
	add.u32 %r, %r, %r;
	st.param.b32 [doubled], %r;
	ret;
}
"""


def call(row: Row, form: Form) -> Probe:
    """A function called by its name, and once more through its address."""
    writer = Writer(form.opcode)
    a, d, e = writer.take("a", "b32"), writer.register("d", "b32"), writer.register("e", "b32")
    address = writer.register("function", "b64")
    writer.line("prototype: .callprototype (.param .b32 _) _ (.param .b32 _);")
    for result, target in ((d, "twice, (given)"), (e, f"{address}, (given), prototype")):
        writer.line("{", ".param .b32 given;", ".param .b32 taken;", f"st.param.b32 [given], {a};")
        writer.line(f"mov.u64 {address}, twice;", f"{form.opcode} (taken), {target};")
        writer.line(f"ld.param.b32 {result}, [taken];", "}")
    writer.give("d", "b32")
    writer.give("e", "b32")
    return writer.probe(preamble=_function("@%large ret;"))


def leave(row: Row, form: Form) -> Probe:
    """Lanes whose operand holds leave with d = a; a uniform instruction takes all of them out."""
    writer = Writer(form.opcode)
    a, leaves = writer.take("a", "b32"), writer.take("leaves", "pred")
    d = writer.register("d", "b32")
    guard = "" if form.has("uni") else f"@{leaves} "
    writer.line(f"mov.b32 {d}, {a};")
    writer.give("d", "b32")
    writer.line(f"{guard}{form.opcode};", f"not.b32 {d}, {d};", f"st.global.b32 [%out], {d};")
    return writer.probe()


def trap(row: Row, form: Form) -> Probe:
    """A kernel that ends with a fault."""
    writer = Writer(form.opcode)
    writer.take("a", "b32")
    writer.line(f"{form.opcode};")
    writer.give("a", "b32")
    return writer.probe(faults=True, count=BLOCK)


def meeting(row: Row, form: Form) -> Probe:
    """Each thread reads what another one wrote before the barrier; odd threads come late."""
    writer = Writer(form.opcode)
    if row.kind == "warp barrier":
        operand, other = " -1", "xor.b32 %at, %thread, 31;"
    else:
        operand, other = " 0", f"xor.b32 %at, %thread, {BLOCK - 1};"
    _write_and_meet(writer, [f"{form.opcode}{operand};"], other)
    return writer.probe()


def _write_and_meet(writer: Writer, wait: list[str], other: str) -> None:
    """Write to shared memory, wait, read what thread ``%at`` wrote."""
    a, d, at = writer.take("a", "b32"), writer.register("d", "b32"), writer.register("at", "b32")
    cell = writer.register("cell", "b64")
    writer.register("odd", "pred")
    writer.declarations.append(f".shared .align 4 .b8 cells[{4 * BLOCK}];")
    here = ["mov.u64 %cell, cells;", f"mad.wide.u32 {cell}, INDEX, 4, {cell};"]
    writer.line(
        *(line.replace("INDEX", "%thread") for line in here),
        f"and.b32 {at}, %thread, 1;",
        f"setp.eq.u32 %odd, {at}, 1;",
        f"mov.b32 {d}, {a};",
        "@%odd bra LATE;",
        f"not.b32 {d}, {d};",
        "LATE:",
        f"st.shared.b32 [{cell}], {d};",
        *wait,
        other,
        *(line.replace("INDEX", "%at") for line in here),
        f"ld.shared.b32 {d}, [{cell}];",
    )
    writer.give("d", "b32")


def arrival(row: Row, form: Form) -> Probe:
    """The lower warps write and arrive; the upper ones wait for them and read."""
    writer = Writer(form.opcode)
    a, d, cell = writer.take("a", "b32"), writer.register("d", "b32"), writer.register("cell", "b64")
    half = BLOCK // 2
    writer.register("upper", "pred")
    at = writer.register("at", "b32")
    writer.declarations.append(f".shared .align 4 .b8 cells[{4 * half}];")
    sync = form.opcode.replace("arrive", "sync")
    writer.line(
        f"mov.b32 {d}, {a};",
        f"and.b32 {at}, %thread, {half - 1};",
        f"mov.u64 {cell}, cells;",
        f"mad.wide.u32 {cell}, {at}, 4, {cell};",
        f"setp.ge.u32 %upper, %thread, {half};",
        "@%upper bra WAIT;",
        f"st.shared.b32 [{cell}], {a};",
        f"{form.opcode} 1, {BLOCK};",
        "bra END;",
        f"WAIT: {sync} 1, {BLOCK};",
        f"ld.shared.b32 {d}, [{cell}];",
        "END:",
    )
    writer.give("d", "b32")
    return writer.probe()


def block_reduction(row: Row, form: Form) -> Probe:
    """A predicate combined over the block: of no thread, one, all but one, or all of them, by turns."""
    writer = Writer(form.opcode)
    writer.take("a", "b32")
    turn, p = writer.register("turn", "b32"), writer.register("p", "pred")
    writer.register("thread_or_turn", "b32")
    writer.register("everyone", "pred")
    kind = form.resolve(row.destinations[0].kind)
    d, e = writer.register("d", kind), writer.register("e", kind)
    # In every other block the predicate holds of all threads, or, negated, of none.
    writer.line(
        f"mov.b32 {turn}, %ctaid.x;",
        f"and.b32 %thread_or_turn, {turn}, 1;",
        "setp.eq.u32 %everyone, %thread_or_turn, 1;",
        f"selp.b32 %thread_or_turn, {turn}, %thread, %everyone;",
        f"setp.eq.u32 {p}, %thread_or_turn, {turn};",
        f"{form.opcode} {d}, 0, {p};",
        f"{form.opcode} {e}, 1, {BLOCK}, !{p};",
    )
    writer.give("d", kind)
    writer.give("e", kind)
    return writer.probe()


def barrier(row: Row, form: Form) -> Probe:
    """The barrier of a block: waiting, arriving, or reducing."""
    words = form.opcode.split(".")
    make = arrival if "arrive" in words else block_reduction if "red" in words else meeting
    return make(row, form)


def cluster_meeting(row: Row, form: Form) -> Probe:
    """The barrier of a cluster of one block: the form, and its other half."""
    writer = Writer(form.opcode)
    arrive, wait = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
    aligned = "aligned" in form.opcode.split(".")
    if not aligned:
        arrive, wait = "barrier.cluster.arrive;", "barrier.cluster.wait;"
    halves = [f"{form.opcode};", wait] if "arrive" in form.opcode else [arrive, f"{form.opcode};"]
    _write_and_meet(writer, halves, f"xor.b32 %at, %thread, {BLOCK - 1};")
    return writer.probe()


def quiet(row: Row, form: Form) -> Probe:
    """Between a store and a load of the same cell: nothing is seen of it."""
    writer = Writer(form.opcode)
    a, d = writer.take("a", "b32"), writer.register("d", "b32")
    written: list[str] = []
    for spec in row.sources:
        written.append("[%memory]" if spec.memory else _IMMEDIATES.get(row.base, "32"))
    operands = f" {', '.join(written)}" if written else ""
    writer.line(
        f"st.global.b32 [%memory], {a};", f"{form.opcode}{operands};", f"ld.global.b32 {d}, [%memory];"
    )
    writer.give("d", "b32")
    return writer.probe()


_IMMEDIATES = {"applypriority": "128", "pmevent": "3"}
"""What an operand must be, where not anything goes."""


def _function(ends: str) -> str:
    return _TWICE.replace("NAME_", "").replace("RETURN", ends)


BY_KIND: dict[str, Make] = {
    "branch": branch,
    "indexed branch": indexed_branch,
    "call": call,
    "return": leave,
    "exit": leave,
    "trap": trap,
    "barrier": barrier,
    "warp barrier": meeting,
    "cluster barrier": cluster_meeting,
    "fence": quiet,
}
"""The probe of each kind of row."""

BY_NAME: dict[str, Make] = {
    **dict.fromkeys(("cvta", "cvta.to"), addresses.conversion),
    "isspacep": addresses.membership,
    **dict.fromkeys(("mapa", "getctarank"), addresses.cluster),
}
"""The probe of a row that its kind's does not fit."""
