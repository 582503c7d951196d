"""Probes written by hand: control flow, barriers, fences, and others whose operands are not crossed.

A row whose instruction computes nothing needs its own kernel: one whose results would differ if
the instruction did something else, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simwarp.lab.evidence import addresses, bulk_copies, mbarriers, tensor_maps, textures, warpgroups
from simwarp.lab.evidence.probe import BLOCK, Probe, Writer
from simwarp.lanes import WARP_SIZE
from simwarp.ptx import kinds
from simwarp.ptx.kinds import Kind
from simwarp.ptx.rows import Form, Row

Make = Callable[[Row, Form], Probe]
"""A function that writes the probe of one form of a row."""


def branch(row: Row, form: Form) -> Probe:
    """Probe a branch: threads that take it keep d = a, the others invert d; all take a uniform one."""
    writer = _writer(form, "b32 d", takes="b32 a, pred taken")
    guard = "" if form.has("uni") else "@%taken "
    writer.line(f"mov.b32 %d, %a; {guard}{form.opcode} OVER; not.b32 %d, %d;", "OVER:")
    return writer.probe("d")


def indexed_branch(row: Row, form: Form) -> Probe:
    """Probe an indexed branch to three labels, with a uniform index in each block if the form requires it."""
    writer = _writer(form, "b32 d index")
    writer.line(
        "mov.b32 %index, %ctaid.x;" if form.has("uni") else "mov.b32 %index, %a;",
        "rem.u32 %index, %index, 3;",
        "TARGETS: .branchtargets FIRST, SECOND, THIRD;",
        f"{form.opcode} %index, TARGETS;",
        "FIRST: not.b32 %d, %a; bra END;",
        "SECOND: add.u32 %d, %a, 7; bra END;",
        "THIRD: xor.b32 %d, %a, 0x12345678;",
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
    """Probe a call of a function: by its name with result d, and through its address with result e."""
    writer = _writer(form, "b32 d e, b64 function")
    writer.line("prototype: .callprototype (.param .b32 _) _ (.param .b32 _);")
    for result, target in (("%d", "twice, (given)"), ("%e", "%function, (given), prototype")):
        writer.line("{", ".param .b32 given; .param .b32 taken; st.param.b32 [given], %a;")
        writer.line(f"mov.u64 %function, twice; {form.opcode} (taken), {target};")
        writer.line(f"ld.param.b32 {result}, [taken];", "}")
    return writer.probe("d", "e", preamble=_TWICE)


def leave(row: Row, form: Form) -> Probe:
    """Probe a return or exit: lanes whose predicate holds end with d = a; a uniform form ends all lanes."""
    writer = _writer(form, "b32 d", takes="b32 a, pred leaves")
    guard = "" if form.has("uni") else "@%leaves "
    writer.line("mov.b32 %d, %a;")
    writer.give("b32", "d")
    writer.line(f"{guard}{form.opcode}; not.b32 %d, %d; st.global.b32 [%out], %d;")
    return writer.probe()


def trap(row: Row, form: Form) -> Probe:
    """Probe a trap, which ends the kernel with a fault."""
    writer = _writer(form)
    writer.line(f"{form.opcode};")
    return writer.probe("a", faults=True, count=BLOCK)


def waiting(row: Row, form: Form) -> Probe:
    """Probe a barrier: each thread loads a word that another stored before it; odd threads arrive later."""
    if row.kind is kinds.WARP_BARRIER:
        return _exchange(form, [f"{form.opcode} -1;"], WARP_SIZE)
    return _exchange(form, [f"{form.opcode} 0;"], BLOCK)


def _exchange(form: Form, barrier: list[str], threads: int) -> Probe:
    """A probe that stores a word, waits at a barrier, and loads another thread's word."""
    writer = _writer(form, "b32 d at, b64 cell, pred odd")
    writer.declarations.append(f".shared .align 4 .b8 cells[{4 * BLOCK}];")
    address = "mov.u64 %cell, cells; mad.wide.u32 %cell, {}, 4, %cell;"
    writer.line(
        address.format("%thread"),
        "and.b32 %at, %thread, 1; setp.eq.u32 %odd, %at, 1;",
        "mov.b32 %d, %a; @%odd bra LATE; not.b32 %d, %d;",
        "LATE:",
        "st.shared.b32 [%cell], %d;",
        *barrier,
        f"xor.b32 %at, %thread, {threads - 1};",
        address.format("%at"),
        "ld.shared.b32 %d, [%cell];",
    )
    return writer.probe("d")


def arrival(row: Row, form: Form) -> Probe:
    """Probe an arrival at a barrier: the lower warps store and arrive, the upper warps wait and load."""
    writer, half = _writer(form, "b32 d, b64 cell, pred upper, b32 at"), BLOCK // 2
    writer.declarations.append(f".shared .align 4 .b8 cells[{4 * half}];")
    writer.line(
        f"mov.b32 %d, %a; and.b32 %at, %thread, {half - 1};",
        "mov.u64 %cell, cells; mad.wide.u32 %cell, %at, 4, %cell;",
        f"setp.ge.u32 %upper, %thread, {half}; @%upper bra WAIT;",
        f"st.shared.b32 [%cell], %a; {form.opcode} 1, {BLOCK}; bra END;",
        f"WAIT: {form.opcode.replace('arrive', 'sync')} 1, {BLOCK};",
        "ld.shared.b32 %d, [%cell];",
        "END:",
    )
    return writer.probe("d")


def block_reduction(row: Row, form: Form) -> Probe:
    """Probe a barrier reduction; by block, the predicate is true in no thread, one, all but one, or all."""
    kind = form.resolve(row.destinations[0].kind)
    writer = _writer(form, f"b32 turn, pred p, b32 thread_or_turn, pred everyone, {kind} d e")
    # In every other block the predicate holds for all threads, or, negated, for none.
    writer.line(
        "mov.b32 %turn, %ctaid.x;",
        "and.b32 %thread_or_turn, %turn, 1; setp.eq.u32 %everyone, %thread_or_turn, 1;",
        "selp.b32 %thread_or_turn, %turn, %thread, %everyone; setp.eq.u32 %p, %thread_or_turn, %turn;",
        f"{form.opcode} %d, 0, %p; {form.opcode} %e, 1, {BLOCK}, !%p;",
    )
    writer.give(kind, "d", "e")
    return writer.probe()


def barrier(row: Row, form: Form) -> Probe:
    """Probe a block barrier that waits, arrives, or reduces."""
    words = form.opcode.split(".")
    make = arrival if "arrive" in words else block_reduction if "red" in words else waiting
    return make(row, form)


def cluster_barrier(row: Row, form: Form) -> Probe:
    """Probe one half of a cluster barrier, together with the other half, in a cluster of one block."""
    aligned = ".aligned" * form.opcode.endswith(".aligned")
    if "arrive" in form.opcode.split("."):
        halves = [f"{form.opcode};", f"barrier.cluster.wait{aligned};"]
    else:
        halves = [f"barrier.cluster.arrive{aligned};", f"{form.opcode};"]
    return _exchange(form, halves, BLOCK)


def async_copy(row: Row, form: Form) -> Probe:
    """Probe copies of 16 bytes, whole, in part or not at all, in each size, and load them after a wait."""
    writer = _copying(form)
    policy = ", %policy" * form.has("L2::cache_hint")
    for size in (16,) if form.has("cg") else (4, 8, 16):
        writer.line(f"min.u32 %some, %count, {size};")
        for what in ("", ", %some", ", %none"):
            writer.line(f"{form.opcode} [%cell], [%in], {size}{what}{policy}; cp.async.wait_all;")
            _load_cell(writer, size)
    return writer.probe(count=256)


def async_group(row: Row, form: Form) -> Probe:
    """Copy operands in two groups, and load each after its wait."""
    writer, copy = _copying(form), "cp.async.ca.shared.global"
    waits = ["cp.async.wait_all;"] * 2
    if form.opcode != "cp.async.wait_all":
        waits = ["cp.async.wait_group 1;", "cp.async.wait_group 0;"]
    for at in (0, 8):
        writer.line(f"{copy} [%cell+{at}], [%in+{at}], 8; cp.async.commit_group;")
    for at, wait in zip((0, 8), waits, strict=True):
        writer.line(wait)
        _load_cell(writer, 8, at)
    return writer.probe(count=256)


def _copying(form: Form) -> Writer:
    """A writer with operands to copy, registers ``%count`` and ``%none``, and a shared cell's address."""
    writer = _writer(form, "b64 cell policy, b32 some", takes="b64 a, b64 b, b32 count, pred none")
    writer.declarations.append(f".shared .align 16 .b8 cells[{16 * BLOCK}];")
    writer.line("mov.u64 %cell, cells; mad.wide.u32 %cell, %thread, 16, %cell;")
    writer.line("mov.b64 %policy, 0x12F0000000000000; and.b32 %count, %count, 31;")
    return writer


def _load_cell(writer: Writer, size: int, at: int = 0) -> None:
    """Store ``size`` bytes of the shared cell as results."""
    kind = f"b{8 * min(size, 8)}"
    for offset in range(at, at + size, 8):
        name = writer.register(f"d{len(writer.results)}", kind)
        writer.line(f"ld.shared.{kind} {name}, [%cell+{offset}];")
        writer.give(kind, name.removeprefix("%"))


def without_effect(row: Row, form: Form) -> Probe:
    """Probe an instruction without visible effect, between a store and a load of one cell."""
    writer = _writer(form, "b32 d")
    operands = ["[%memory]" if spec.memory else _IMMEDIATES.get(row.base, "32") for spec in row.sources]
    instruction = f"{form.opcode} {', '.join(operands)}".rstrip()
    writer.line(f"st.global.b32 [%memory], %a; {instruction}; ld.global.b32 %d, [%memory];")
    return writer.probe("d")


def register_count(row: Row, form: Form) -> Probe:
    """Probe a change of register counts in a block of one warpgroup; the warps' values must not change."""
    writer = _writer(form)
    if form.has("inc"):
        released = form.opcode.replace(".inc", ".dec")
        writer.line(f"{released} 24; bar.sync 0;")
    writer.line(f"{form.opcode} 40;")
    writer.give("b32", "a")
    probe = replace(writer.probe(), target="sm_90a")
    return replace(probe, entry=probe.entry.replace(")\n{", ") .maxnreg 64\n{", 1))


_IMMEDIATES = {"applypriority": "128", "pmevent": "3"}
"""By base opcode, a legal immediate operand where few values are legal."""


def _writer(form: Form, registers: str = "", takes: str = "b32 a") -> Writer:
    """A writer that has taken its operands and declared its registers, both as in `Writer.declare`."""
    writer = Writer(form.opcode)
    for part in takes.split(", "):
        kind, name = part.split()
        writer.take(name, kind)
    writer.declare(registers)
    return writer


BY_KIND: dict[Kind, Make] = {
    kinds.BRANCH: branch,
    kinds.INDEXED_BRANCH: indexed_branch,
    kinds.CALL: call,
    kinds.RETURN: leave,
    kinds.EXIT: leave,
    kinds.TRAP: trap,
    kinds.BARRIER: barrier,
    kinds.WARP_BARRIER: waiting,
    kinds.CLUSTER_BARRIER: cluster_barrier,
    kinds.FENCE: without_effect,
    kinds.REGISTER_COUNT: register_count,
    kinds.ASYNC_COPY: async_copy,
    kinds.ASYNC_GROUP: async_group,
    kinds.MBARRIER: mbarriers.mbarrier,
    kinds.BULK_COPY: bulk_copies.transfer,
    kinds.BULK_REDUCTION: bulk_copies.transfer,
    kinds.TENSOR_COPY: tensor_maps.copy,
    kinds.TENSOR_REDUCTION: tensor_maps.reduction,
    kinds.TENSOR_MAP: tensor_maps.change,
    kinds.BULK_GROUP: bulk_copies.group,
    kinds.WARPGROUP_PRODUCT: warpgroups.product,
    kinds.WARPGROUP_ORDER: warpgroups.product,
    **dict.fromkeys((kinds.TEXTURE, kinds.TEXTURE_GATHER), textures.read),
    kinds.SURFACE_LOAD: textures.load,
    kinds.SURFACE_STORE: textures.store,
    **dict.fromkeys((kinds.TEXTURE_QUERY, kinds.SURFACE_QUERY), textures.query),
}
"""By kind of row, the function that writes its probes."""

BY_NAME: dict[str, Make] = {
    **dict.fromkeys(("cvta", "cvta.to"), addresses.conversion),
    "isspacep": addresses.membership,
    **dict.fromkeys(("mapa", "getctarank"), addresses.cluster),
    **dict.fromkeys(("cp.async.mbarrier.arrive", "cp.async.mbarrier.arrive.noinc"), bulk_copies.arrival),
    "cp.async.bulk.prefetch.L2.global": bulk_copies.prefetch,
    **dict.fromkeys(
        (
            "cp.async.bulk.prefetch.tensor (tile)",
            "cp.async.bulk.prefetch.tensor (im2col)",
            "prefetch.tensormap",
        ),
        tensor_maps.prefetch,
    ),
}
"""By row name, the function that writes its probes, for rows that the kind's function does not fit."""
