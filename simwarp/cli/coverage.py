"""The command ``simwarp coverage``: list the supported PTX, or the unsupported instructions of a file.

>>> coverage_command(Path("no-such-file.ptx"))
Traceback (most recent call last):
...
reference.errors.InputFileError: no-such-file.ptx cannot be read: No such file or directory
give a .cu or .ptx file
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reference.errors import LaunchError, SimwarpError
from simwarp.cli.output import Json, print_json, table, wide_console

if TYPE_CHECKING:
    from simwarp.program.call_graph import CallGraph
    from simwarp.ptx.rows import Row
    from simwarp.ptx.syntax import Function, Module


@dataclass(frozen=True)
class FormFacts:
    """The row, the fidelity and the evidence of one form; ``row`` is "" if no row has the form."""

    form: str
    row: str = ""
    section: str = ""
    fidelity: str = "unsupported"
    bound: str = ""
    min_sm: int = 0
    golden: str | None = None  # the file with the hardware's recording
    sets: int = 0  # operand tuples of the recording
    largest_error: float | None = None  # the largest error of a form with an error bound, in the bound's unit
    census: bool = False  # nvcc emits the form for a kernel of the census
    invariant: str = ""  # the comparison of results that the PTX ISA leaves open

    @property
    def unwitnessed(self) -> bool:
        """True if the form runs here and has no recording of hardware."""
        return bool(self.row) and self.fidelity != "unsupported" and self.golden is None


@dataclass(frozen=True)
class Lack:
    """An unsupported opcode of a kernel, with its first line and its number of uses."""

    opcode: str
    line: int
    count: int


@dataclass(frozen=True)
class KernelFacts:
    """The reasons why a kernel cannot run; empty if it can."""

    name: str  # kernel name in the source, with parameters if it is overloaded
    entry: str  # kernel name in the PTX
    lacks: list[Lack] = field(default_factory=list[Lack])  # unsupported opcodes
    error: str = ""  # the message, if linking failed for another reason

    @property
    def runs(self) -> bool:
        """Whether the simulator can run the kernel."""
        return not self.lacks and not self.error


def coverage_command(
    file: Annotated[
        Path | None, typer.Argument(help="CUDA C++ (.cu), or PTX as nvcc -ptx writes it (.ptx).")
    ] = None,
    list_forms: Annotated[bool, typer.Option("--forms", help="List forms in place of rows.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 if a form has no recording of hardware."),
    ] = False,
    as_json: Json = False,
) -> int:
    """List the supported PTX instructions with their evidence, or check whether a file's kernels run."""
    from simwarp.lab.evidence.forms import witness

    if file is not None:
        return _show_file(file, as_json)
    facts = all_forms()
    missing = [fact.form for fact in facts if fact.unwitnessed]
    if as_json:
        report = {**witness(), "unwitnessed": missing, "rows": [asdict(form) for form in facts]}
        print_json(report)
    elif list_forms:
        wide_console().print(_form_table(facts))
    else:
        _show_rows(facts)
    return 1 if strict and missing else 0


def all_forms() -> list[FormFacts]:
    """The forms of all rows, then the forms of the census that no row has."""
    from simwarp.lab.evidence.forms import census
    from simwarp.ptx.instructions import ROWS, TABLE

    listed = [fact for row in ROWS.values() for fact in _facts_of(row)]
    lacking = [form for form in census() if TABLE.find(form) is None]
    return listed + [FormFacts(form, census=True) for form in lacking]


def _facts_of(row: Row) -> list[FormFacts]:
    """The instruction forms of a row of the PTX table, each with its recorded evidence."""
    from simwarp.lab.evidence.forms import census, evidence, required
    from simwarp.lab.evidence.judge import strategy
    from simwarp.ptx.forms import forms

    emitted, known, plan = set(census()), evidence(), strategy(row)
    facts: list[FormFacts] = []
    for form in required(row) or forms(row):
        found = known.get(form)
        recorded = (found.golden, found.sets, found.largest_error) if found else (None, 0, None)
        about = row.name, row.section, row.fidelity, row.bound, row.minimum_sm
        facts.append(FormFacts(form, *about, *recorded, form in emitted, plan.rule if plan else ""))
    return facts


# ------------------------------------------------------------------------------------------- a file


def check(module: Module) -> list[KernelFacts]:
    """The reasons why each kernel of a module cannot run.

    >>> from simwarp.ptx.parse import parse
    >>> text = ".version 9.0 .target sm_90 .entry k() { .reg .b32 %r<2>; sured.p.1d %r0, %r1; ret; }"
    >>> check(parse(text))[0].lacks
    [Lack(opcode='sured.p.1d', line=1, count=1)]
    """
    from simwarp.program.call_graph import CallGraph
    from simwarp.ptx.mangled_names import told_apart

    graph, names = CallGraph(module), told_apart(module.entries)
    return [
        replace(_kernel(module, graph, entry), name=name)
        for name, entry in zip(names, module.entries.values(), strict=True)
    ]


def _kernel(module: Module, graph: CallGraph, entry: Function) -> KernelFacts:
    from simwarp.program.link import link
    from simwarp.ptx.instructions import TABLE

    lines: dict[str, list[int]] = {}
    for function in [entry, *(module.functions[name] for name in sorted(graph.reached(entry.name)))]:
        for instruction in function.instructions:
            found = TABLE.find(instruction.opcode)
            if found is None or found[0].fidelity == "unsupported":
                lines.setdefault(instruction.opcode, []).append(instruction.line)
    if lines:
        lacks = [Lack(opcode, min(at), len(at)) for opcode, at in lines.items()]
        return KernelFacts(entry.name, entry.name, lacks)
    try:
        link(module, entry, graph)
    except SimwarpError as error:
        return KernelFacts(entry.name, entry.name, [], str(error))
    return KernelFacts(entry.name, entry.name)


# -------------------------------------------------------------------------------------------- shown


def _show_file(file: Path, as_json: bool) -> int:
    from simwarp.run.source import load

    kernels = check(load(file).module)
    if not kernels:
        raise LaunchError(
            f"{file} has no kernel\ncoverage looks at kernels\n"
            "write a __global__ function; of a template an instance: template __global__ void f<int>(int*);"
        )
    if as_json:
        listed = [{**asdict(kernel), "runs": kernel.runs} for kernel in kernels]
        print_json({"file": str(file), "kernels": listed})
    else:
        _show_kernels(kernels)
    return 0 if all(kernel.runs for kernel in kernels) else 1


def _show_kernels(kernels: list[KernelFacts]) -> None:
    console = Console(soft_wrap=True)
    for kernel in kernels:
        console.print(Text(f"{kernel.name}: {'runs' if kernel.runs else 'does not run'}"))
        for lack in kernel.lacks:
            times = f", and {lack.count - 1} more" if lack.count > 1 else ""
            console.print(Text(f"  line {lack.line}: {lack.opcode}{times}"))
        for line in kernel.error.splitlines():
            console.print(Text(f"  {line}"))
    able = sum(kernel.runs for kernel in kernels)
    console.print(f"{able} of {len(kernels)} kernels run")


def _show_rows(facts: list[FormFacts]) -> None:
    from simwarp.ptx.instructions import ROWS

    shown = table(
        "row", "PTX ISA", "fidelity", "from", numbers=("forms", "recorded", "unwitnessed", "emitted by nvcc")
    )
    for row in ROWS.values():
        flags = [
            (True, fact.golden is not None, fact.unwitnessed, fact.census)
            for fact in facts
            if fact.row == row.name
        ]
        counts = map(sum, zip(*flags, strict=True))
        fidelity = f"{row.fidelity} {row.bound}".strip()
        shown.add_row(Text(row.name), row.section, fidelity, f"sm_{row.minimum_sm}", *map(str, counts))
    console = wide_console()
    console.print(shown)
    console.print(_totals(facts))
    for fact in facts:
        if not fact.row:
            console.print(Text(f"no row has {fact.form}"))
        elif fact.unwitnessed:
            console.print(Text(f"{fact.form} is unwitnessed: record it on a GPU with simwarp record 'ptx-*'"))


def _totals(facts: list[FormFacts]) -> str:
    from simwarp.lab.evidence.forms import witness
    from simwarp.ptx.instructions import ROWS

    emitted = [fact for fact in facts if fact.census]
    recorded, device = sum(fact.golden is not None for fact in facts), witness().get("gpu", {})
    unwitnessed = sum(fact.unwitnessed for fact in facts)
    where = f" on {device['name']}" if device else ""
    return (
        f"{len(ROWS)} rows, {len(facts)} forms, {recorded} recorded{where}, {unwitnessed} unwitnessed; "
        f"{sum(bool(fact.row) for fact in emitted)} of {len(emitted)} forms that nvcc emits"
    )


def _form_table(facts: list[FormFacts]) -> Table:
    shown = table("form", "row", "fidelity", "golden", numbers=("sets", "largest error", "emitted by nvcc"))
    for fact in facts:
        error = "" if fact.largest_error is None else f"{fact.largest_error:.3g}"
        evidence = fact.golden or "", str(fact.sets or ""), error, "yes" if fact.census else ""
        shown.add_row(Text(fact.form), Text(fact.row), fact.fidelity, *evidence)
    return shown
