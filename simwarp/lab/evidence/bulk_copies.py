"""Probes of bulk copies and reductions: each thread moves its own 16 bytes with its own mbarrier.

What goes from shared memory to the cluster goes to the same thread of the other one of two blocks: without a
cluster such an instruction is illegal on an H200.
"""

from __future__ import annotations

from simwarp.lab.evidence.probe import BLOCK, Probe, Writer
from simwarp.ptx.rows import DTYPES, Form, Row

_MEET = "barrier.cluster.arrive; barrier.cluster.wait;"
_GROUP = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
_STORE = "cp.async.bulk.global.shared::cta.bulk_group"


def transfer(row: Row, form: Form) -> Probe:
    """Bytes a and b, copied over c and d or combined with them, in shared or in global memory."""
    writer = _writer(form)
    hint = ", %policy" * form.has("L2::cache_hint")
    if any(spec.name == "bar" for spec in row.sources):
        many = ", %blocks" * form.has("multicast::cluster")
        source, count = ("[%in], 16" if form.has("global") else "[%cell+16], 16"), 16
        if not any(spec.name == "a" for spec in row.sources):
            source, count = _values(form)
        writer.line(f"mbarrier.arrive.expect_tx.shared.b64 _, [%own], {count};")
        remote = is_remote(form)
        cell, own = _across(writer, form) if remote else ("%cell", "%own")
        writer.line(f"{form.opcode} [{cell}], {source}, [{own}]{many}{hint};")
        _wait(writer)
        if remote:
            writer.line(_MEET)
        return _cell(writer, "" if form.has("global") else ".reqnctapercluster 2, 1, 1\n")
    writer.line(f"{form.opcode} [%memory], [%cell+16], 16{hint}; {_GROUP}")
    return _memory(writer)


def is_remote(form: Form) -> bool:
    """Whether the probe of a form writes to another block of the cluster."""
    spaces = [word for word in form.modifiers if word in ("global", "shared::cta", "shared::cluster")]
    return "global" not in spaces and spaces[:1] != ["shared::cta"]


def _across(writer: Writer, form: Form) -> tuple[str, str]:
    """The addresses of the other block's cell and mbarrier, valid after a cluster barrier."""
    writer.declare("b64 far farther, b32 rank")
    writer.line("mov.u32 %rank, %cluster_ctarank; xor.b32 %rank, %rank, 1;")
    space = ".shared::cluster" if form.has("shared::cluster") else ""
    for far, near in (("%far", "%cell"), ("%farther", "%own")):
        writer.line(*([f"cvta.shared.u64 {far}, {near};"] if not space else []))
        writer.line(f"mapa{space}.u64 {far}, {near if space else far}, %rank;")
    writer.line(_MEET)
    return "%far", "%farther"


def group(row: Row, form: Form) -> Probe:
    """A store in two groups, and waits for both."""
    writer = _writer(form)
    for at in (0, 16):
        writer.line(f"{_STORE} [%memory+{at}], [%cell+16], 16; cp.async.bulk.commit_group;")
    waits = (f"{form.opcode} 1;", f"{form.opcode} 0;") if row.sources else ()
    writer.line(*waits, "cp.async.bulk.wait_group 0;")
    return _memory(writer)


def arrival(row: Row, form: Form) -> Probe:
    """Probe a copy of each thread that ends with an arrival at its mbarrier, or with bytes of a phase."""
    writer = _writer(form)
    writer.line("cp.async.ca.shared.global [%cell], [%in], 16;")
    at = "%own" if ".shared" in form.opcode else writer.register("generic", "b64")
    if at != "%own":
        writer.line("cvta.shared.u64 %generic, %own;")
    writer.line(f"{form.opcode} [{at}];")
    if not form.has("noinc"):
        writer.line("mbarrier.arrive.shared.b64 _, [%own];")
    _wait(writer)
    return _cell(writer)


def prefetch(row: Row, form: Form) -> Probe:
    """Probe a prefetch, followed by a load of the prefetched bytes."""
    writer = _writer(form)
    writer.line(f"{form.opcode} [%in], 16{', %policy' * form.has('L2::cache_hint')};")
    writer.line("ld.global.b64 %x, [%in]; ld.global.b64 %y, [%in+8];")
    writer.give("b64", "x", "y")
    return writer.probe(count=256)


def _writer(form: Form) -> Writer:
    """Start a kernel: an mbarrier and a, b, c, d in shared memory per thread, c and d in global memory."""
    writer = Writer(form.opcode)
    for name in "abcd":
        writer.take(name, "b64")
    writer.declare("b64 cell own policy x y, b32 w0 w1 w2 w3, b16 blocks, pred done")
    writer.declarations += [
        f".shared .align 16 .b8 cells[{32 * BLOCK}];",
        f".shared .align 8 .b64 bars[{BLOCK}];",
    ]
    writer.line(
        "mov.u64 %cell, cells; mad.wide.u32 %cell, %thread, 32, %cell;",
        "mov.u64 %own, bars; mad.wide.u32 %own, %thread, 8, %own;",
        "mov.b64 %policy, 0x12F0000000000000; mov.b16 %blocks, 1;",
        "mov.b64 {%w0, %w1}, %a; mov.b64 {%w2, %w3}, %b;",
        "mbarrier.init.shared.b64 [%own], 1;",
        "st.shared.v2.b64 [%cell], {%c, %d}; st.shared.v2.b64 [%cell+16], {%a, %b};",
        "st.global.v2.b64 [%memory], {%c, %d};",
        "fence.mbarrier_init.release.cluster; fence.proxy.async;",
    )
    return writer


def _values(form: Form) -> tuple[str, int]:
    """The operand with the registers of the first bytes of a and b, and the number of these bytes."""
    size, count = DTYPES[form.T].itemsize, form.vector
    names = [f"%w{i}" for i in range(4)] if size == 4 else ["%a", "%b"]
    written = ", ".join(names[:count])
    return f"{{{written}}}" if count > 1 else written, size * count


def _wait(writer: Writer) -> None:
    writer.line("AGAIN: mbarrier.try_wait.parity.shared.b64 %done, [%own], 0;", "@!%done bra AGAIN;")


def _cell(writer: Writer, directives: str = "") -> Probe:
    writer.line("ld.shared.b64 %x, [%cell]; ld.shared.b64 %y, [%cell+8];")
    writer.give("b64", "x", "y")
    return writer.probe(count=2 * BLOCK, directives=directives)


def _memory(writer: Writer) -> Probe:
    writer.line("ld.global.b64 %x, [%memory]; ld.global.b64 %y, [%memory+8];")
    writer.give("b64", "x", "y")
    return writer.probe(count=256)
