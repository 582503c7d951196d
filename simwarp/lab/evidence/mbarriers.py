"""Probes of mbarriers: each thread uses its own through two phases."""

from __future__ import annotations

from simwarp.lab.evidence.probe import BLOCK, Probe, Writer
from simwarp.ptx.rows import Form, Row

_EXPECT, _COMPLETE = (
    f"mbarrier.{word}.relaxed.cta.shared::cta.b64 [%own]" for word in ("expect_tx", "complete_tx")
)


def mbarrier(row: Row, form: Form) -> Probe:
    """Probe arrivals and bytes of a form, then the next phase's pending count and parity."""
    writer = Writer(form.opcode)
    for name in ("count", "bytes"):
        writer.take(name, "b32")
    writer.declare("b64 own at state, b32 n rest, pred done")
    writer.declarations.append(f".shared .align 8 .b64 cells[{BLOCK}];")
    writer.line("mov.u64 %own, cells; mad.wide.u32 %own, %thread, 8, %own; mov.b64 %at, %own;")
    if not any(word.startswith("shared") for word in form.opcode.split(".")):
        writer.line("cvta.shared.u64 %at, %own;")
    writer.line(
        "and.b32 %n, %count, 7; add.u32 %n, %n, 3; sub.u32 %rest, %n, 1; and.b32 %bytes, %bytes, 0xFFF;"
    )
    _first_phase(writer, row.name.removeprefix("mbarrier."), form.opcode)
    writer.line("mbarrier.arrive.shared.b64 %state, [%own];")
    _pending(writer)
    _test(writer, "mbarrier.test_wait.parity.shared.b64", "0")
    _test(writer, "mbarrier.test_wait.parity.shared.b64", "1")
    return writer.probe(count=2 * BLOCK)


def _first_phase(writer: Writer, name: str, opcode: str) -> None:
    """Initialise an mbarrier, and advance its first phase as far as the form can."""
    make, arrive = "mbarrier.init.shared.b64 [%own], %n;", "mbarrier.arrive.shared.b64 %state, [%own]"
    if name == "init":
        writer.line(f"{opcode} [%at], %n;")
        return
    if name == "inval":
        writer.line(f"mbarrier.init.shared.b64 [%own], 1; {opcode} [%at]; {make}")
        return
    writer.line(make)
    if name in ("expect_tx", "complete_tx"):
        expect, complete = (
            (f"{opcode} [%at]", _COMPLETE) if name == "expect_tx" else (_EXPECT, f"{opcode} [%at]")
        )
        writer.line(f"{expect}, %bytes; {arrive}, %n;")
        _complete(writer, f"{complete}, %bytes;")
    elif name.startswith("arrive"):
        _arrive(writer, name, opcode, arrive)
    elif name == "pending_count":
        writer.line(f"{arrive};")
        _pending(writer, opcode)
    else:
        _wait(writer, name, opcode, arrive)


def _arrive(writer: Writer, name: str, opcode: str, arrive: str) -> None:
    """Write an arrival by the form, whose state has all arrivals pending; then the other arrivals."""
    cluster = "shared::cluster" in opcode
    operand = {"expect_tx": ", %bytes", "noComplete": ", 1"}.get(name.rpartition(".")[2], "")
    writer.line(f"{opcode} {'_' if cluster else '%state'}, [%at]{operand};")
    if not cluster:
        _pending(writer)
    if name == "arrive":
        writer.line(f"{opcode} {'_' if cluster else '%state'}, [%at], %rest;")
    else:
        writer.line(f"{arrive}, %rest;")
    if name.endswith("expect_tx"):
        _complete(writer, f"{_COMPLETE}, %bytes;")


def _complete(writer: Writer, complete: str) -> None:
    """Test whether the phase is complete before its bytes have arrived; some forms expect no bytes."""
    _test(writer, "mbarrier.test_wait.parity.shared.b64", "0")
    writer.line(complete)


def _wait(writer: Writer, name: str, opcode: str, arrive: str) -> None:
    """Write waits before the end of the phase, if they do not block, and waits after it."""
    writer.line(f"{arrive};")
    which, tries = ("0" if name.endswith("parity") else "%state"), name.startswith("try_wait")
    if which == "0":
        _test(writer, opcode, "1")
    if not tries:
        _test(writer, opcode, which)
    writer.line("mbarrier.arrive.shared.b64 _, [%own], %rest;")
    _test(writer, opcode, f"{which}, 1000" if tries else which)


def _test(writer: Writer, opcode: str, which: str) -> None:
    """Write a test or try_wait of a barrier's phase, and store its predicate as a result."""
    at = "%at" if opcode == writer.form else "%own"
    name = f"d{len(writer.results)}"
    writer.register(name, "pred")
    writer.line(f"{opcode} %{name}, [{at}], {which};")
    writer.give("pred", name)


def _pending(writer: Writer, opcode: str = "mbarrier.pending_count.b64") -> None:
    """Write an instruction for the pending count of ``%state``, and store the count as a result."""
    name = f"d{len(writer.results)}"
    writer.register(name, "b32")
    writer.line(f"{opcode} %{name}, %state;")
    writer.give("b32", name)
