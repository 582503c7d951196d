"""Probes written by hand: control flow, barriers, fences, and others without operands to cross.

A row whose instruction computes nothing needs its own kernel: one whose results would differ if
the instruction did something else, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from simwarp.lab.evidence import addresses
from simwarp.lab.evidence.probe import BLOCK, Probe, Writer
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.rows import Form, Row

Make = Callable[[Row, Form], Probe]


def branch(row: Row, form: Form) -> Probe:
    """Where the branch is taken, d stays a; all threads take a uniform one."""
    writer = Writer(form.opcode)
    a, taken = writer.take("a", "b32"), writer.take("taken", "pred")
    d = writer.register("d", "b32")
    guard = "" if form.has("uni") else f"@{taken} "
    writer.line(f"mov.b32 {d}, {a};", f"{guard}{form.opcode} OVER;", f"not.b32 {d}, {d};", "OVER:")
    return writer.probe("d")


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
    return writer.probe("d")


_TWICE = """.func (.param .b32 doubled) twice(.param .b32 number)
{
	.reg .b32 %r; .reg .pred %large;
	ld.param.b32 %r, [number];
	st.param.b32 [doubled], %r;
	setp.gt.u32 %large, %r, 0x7FFFFFFF;
	@%large ret;
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
    return writer.probe("d", "e", preamble=_TWICE)


def leave(row: Row, form: Form) -> Probe:
    """Lanes with a true operand leave with d = a; after a uniform instruction all have left."""
    writer = Writer(form.opcode)
    a, leaves = writer.take("a", "b32"), writer.take("leaves", "pred")
    d = writer.register("d", "b32")
    guard = "" if form.has("uni") else f"@{leaves} "
    writer.line(f"mov.b32 {d}, {a};")
    writer.give("b32", "d")
    writer.line(f"{guard}{form.opcode};", f"not.b32 {d}, {d};", f"st.global.b32 [%out], {d};")
    return writer.probe()


def trap(row: Row, form: Form) -> Probe:
    """A kernel that ends with a fault."""
    writer = Writer(form.opcode)
    writer.take("a", "b32")
    writer.line(f"{form.opcode};")
    return writer.probe("a", faults=True, count=BLOCK)


def meeting(row: Row, form: Form) -> Probe:
    """Each thread reads another thread's word, written before the barrier; odd threads come late."""
    if row.kind == "warp barrier":
        return _write_and_meet(form, [f"{form.opcode} -1;"], WARP_SIZE)
    return _write_and_meet(form, [f"{form.opcode} 0;"], BLOCK)


def _write_and_meet(form: Form, wait: list[str], threads: int) -> Probe:
    """Write to shared memory, wait, read the word of the thread on the other side of warp or block."""
    writer = Writer(form.opcode)
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
        f"xor.b32 {at}, %thread, {threads - 1};",
        *(line.replace("INDEX", "%at") for line in here),
        f"ld.shared.b32 {d}, [{cell}];",
    )
    return writer.probe("d")


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
    return writer.probe("d")


def block_reduction(row: Row, form: Form) -> Probe:
    """A predicate combined over the block: of no thread, one, all except one, or all, by turns."""
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
    writer.give(kind, "d", "e")
    return writer.probe()


def barrier(row: Row, form: Form) -> Probe:
    """The barrier of a block: waiting, arriving, or reducing."""
    words = form.opcode.split(".")
    make = arrival if "arrive" in words else block_reduction if "red" in words else meeting
    return make(row, form)


def cluster_meeting(row: Row, form: Form) -> Probe:
    """The barrier of a cluster of one block: the form, and its other half."""
    words = form.opcode.split(".")
    aligned = ".aligned" if "aligned" in words else ""
    if "arrive" in words:
        halves = [f"{form.opcode};", f"barrier.cluster.wait{aligned};"]
    else:
        halves = [f"barrier.cluster.arrive{aligned};", f"{form.opcode};"]
    return _write_and_meet(form, halves, BLOCK)


def quiet(row: Row, form: Form) -> Probe:
    """Between a store and a load of the same cell: the instruction has no visible effect."""
    writer = Writer(form.opcode)
    a, d = writer.take("a", "b32"), writer.register("d", "b32")
    operands = ["[%memory]" if spec.memory else _IMMEDIATES.get(row.base, "32") for spec in row.sources]
    instruction = f"{form.opcode} {', '.join(operands)}".rstrip()
    writer.line(f"st.global.b32 [%memory], {a};", f"{instruction};", f"ld.global.b32 {d}, [%memory];")
    return writer.probe("d")


_IMMEDIATES = {"applypriority": "128", "pmevent": "3"}
"""Operands with few legal values."""


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
"""The probes of rows that their kind's probe does not fit."""
