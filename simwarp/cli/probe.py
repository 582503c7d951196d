"""The command ``simwarp probe``: measure the fragment maps of a device.

>>> probe_command(["movmatrix"], list_forms=True)  # doctest: +ELLIPSIS
movmatrix.sync.aligned.m8n8.trans.b16  (PTX ISA 9.7.14.5.17, ...)
0
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.text import Text

from simwarp.cli.latency import latency_command
from simwarp.cli.output import (
    Json,
    OneDevice,
    cuda_device,
    print_json,
    progress_bar,
    table,
    wide_console,
)

if TYPE_CHECKING:
    from simwarp.lab.probe import Finding
    from simwarp.lab.probe.bmma import BmmaMaps

_SINGLY = 24
"""The most forms that are shown one by one; more are shown by family."""


def probe_command(
    instructions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Opcodes or their first words (wmma.load, mma.sync); bmma: section 4 of the BTC paper;"
            " latency: its figures 2 to 13."
        ),
    ] = None,
    device: Annotated[OneDevice, typer.Option(help="The simulator, or this machine's GPU.")] = OneDevice.sim,
    as_json: Json = False,
    list_forms: Annotated[bool, typer.Option("--list", help="Only list the forms.")] = False,
    figure: Annotated[
        int | None, typer.Option(help="One figure of BTC, with latency.", metavar="2-13")
    ] = None,
) -> int:
    """Find fragment maps by experiment, and compare them with those of simwarp.fragments."""
    from simwarp.device.device import Device
    from simwarp.lab.probe import forms_named
    from simwarp.lab.probe.bmma import bmma_maps
    from simwarp.lab.probe.ptx import NotExecutedError

    words = instructions or []
    if words == ["latency"]:
        return latency_command(figure, device, as_json=as_json)
    if figure is not None or "latency" in words:
        raise typer.BadParameter("latency stands alone, with or without --figure")
    forms = forms_named(words)
    if list_forms:
        _list(forms, as_json)
        return 0
    target = Device() if device is OneDevice.sim else cuda_device("give --device sim to probe the simulator")
    findings = _probe(forms, target, quiet=as_json)
    maps = None
    with suppress(NotExecutedError):  # the findings list each form that was not executed
        maps = bmma_maps(target) if "bmma" in words else None
    if as_json:
        _report(findings, maps, target)
    else:
        _show(findings, maps, target)
    return 1 if any(finding.executed and not finding.agreed for finding in findings) else 0


def _probe(forms: list[str], device: Any, *, quiet: bool) -> list[Finding]:
    from simwarp.lab.probe import probe

    findings: list[Finding] = []
    with progress_bar("probing", MofNCompleteColumn(), len(forms), quiet=quiet) as update:
        for form in forms:
            update(description=form.split(".sync")[0])
            findings.append(probe(form, device))
            update(advance=1)
    return findings


def _report(findings: list[Finding], maps: BmmaMaps | None, device: Any) -> None:
    report = {
        "device": device.name,
        **{what.replace(" ", "_"): count for what, count in _counts(findings).items()},
        "forms": [finding.to_json() for finding in findings],
    }
    if maps is not None:
        report["bmma"] = maps.to_json()
    print_json(report)


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    agreed = sum(finding.agreed for finding in findings)
    executed = sum(finding.executed for finding in findings)
    return {"agreed": agreed, "differ": executed - agreed, "not executed": len(findings) - executed}


def _show(findings: list[Finding], maps: BmmaMaps | None, device: Any) -> None:
    from simwarp.lab.probe.bmma import bmma_text

    console = wide_console()
    if maps is not None:
        console.print(Text(bmma_text(maps)))
        console.print()
    if many := len(findings) > _SINGLY:
        _show_families(console, findings)
    for finding in findings:
        if not many or (finding.executed and not finding.agreed):
            _show_one(console, finding)
    counts = ", ".join(f"{count} {what}" for what, count in _counts(findings).items() if count)
    console.print(Text(f"on {device.name}: {counts}"))


def _show_one(console: Console, finding: Finding) -> None:
    verdict = "agrees" if finding.agreed else "differs" if finding.executed else finding.refusal
    console.print(Text(f"{finding.opcode}: {verdict}"))
    for operand in finding.operands:
        line = str(operand.layout) if operand.agreed else f"differs: {operand.difference}"
        console.print(Text(f"  {operand.operand} {operand.type}  {line}"))


def _show_families(console: Console, findings: list[Finding]) -> None:
    families: dict[str, list[Finding]] = {}
    for finding in findings:
        families.setdefault(_family(finding.opcode), []).append(finding)
    shown = table("instruction", numbers=("forms", *_counts(())))
    for family, members in families.items():
        shown.add_row(family, str(len(members)), *map(str, _counts(members).values()))
    console.print(shown)


def _family(opcode: str) -> str:
    """The opcode's words before ``.sync``, without the operation of a bit product."""
    return ".".join(
        word for word in opcode.split(".sync")[0].split(".") if word not in ("and", "xor", "popc")
    )


def _list(forms: list[str], as_json: bool) -> None:
    from simwarp.fragments import fragments_of

    rows = [
        {"form": form, "operand": operand.name, "type": operand.type, "provenance": str(operand.provenance)}
        for form in forms
        for operand in fragments_of(form).operands.values()
    ]
    if as_json:
        print_json({"forms": forms, "rows": rows})
        return
    for form in forms:
        sources = {row["provenance"] for row in rows if row["form"] == form}
        sys.stdout.write(f"{form}  ({'; '.join(sorted(sources))})\n")
