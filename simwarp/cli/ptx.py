"""The command ``simwarp ptx``: the PTX of each source line, and the costs of the line.

>>> ptx_command(Path("no-such-file.cu"))
Traceback (most recent call last):
...
reference.errors.InputFileError: no-such-file.cu cannot be read: No such file or directory
give a .cu or .ptx file
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from simwarp.cli.output import Json, print_json, table, wide_console
from simwarp.cli.run_compiler import (
    CompilerOptions,
    Debug,
    Defines,
    Fmad,
    Includes,
    MoreOptions,
    Std,
    write_ptx,
)
from simwarp.cli.run_words import read_capability
from simwarp.draw.text import printable

if TYPE_CHECKING:
    from simwarp.observe.static_costs import LineCost
    from simwarp.ptx.syntax import Function
    from simwarp.run.source import Source


_BESIDE = 140
"""The least columns of a terminal on which source and PTX stand side by side."""


@dataclass(frozen=True)
class Listing:
    """A kernel or device function: its name in the source, and its lines."""

    name: str
    costs: list[LineCost]
    labels: dict[int, list[str]]
    """The labels before the instruction of a PTX line, by that line's number."""


def ptx_command(
    file: Annotated[Path, typer.Argument(help="CUDA C++ (.cu), of which kernels count, or PTX (.ptx).")],
    kernel: Annotated[str | None, typer.Option(help="Only this kernel.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the PTX to a file instead.")
    ] = None,
    cc: Annotated[str, typer.Option(help="The compute capability to compile for.")] = "",
    define: Defines = None,
    include: Includes = None,
    debug: Debug = False,
    std: Std = None,
    fmad: Fmad = None,
    option: MoreOptions = None,
    as_json: Json = False,
) -> int:
    """Show the PTX of each source line, with its instructions, bytes and operations.

    The numbers are those of a thread that executes each instruction once.
    """
    from simwarp.run.source import load

    compiler = CompilerOptions(define or [], include or [], debug, std, fmad, option or [])
    source = load(file, cc=read_capability(cc) or (9, 0), kernel=kernel, **compiler.for_file(file))
    chosen = [source.kernel(kernel)] if kernel else [*source.entries.values()]
    listings = [listing for function in chosen for listing in _listings(source, function)]
    if output is not None:
        write_ptx(output, source.ptx, "-o")
    if as_json:
        print_json({"file": str(file), "functions": [_facts(source, listing) for listing in listings]})
    elif output is None:
        _show(source, listings)
    return 0


def _listings(source: Source, kernel: Function) -> Iterator[Listing]:
    """A kernel, and the device functions that it calls and that are not inlined."""
    from simwarp.observe.static_costs import line_costs
    from simwarp.program.call_graph import CallGraph
    from simwarp.ptx.mangled_names import readable

    called = (source.module.functions[name] for name in sorted(CallGraph(source.module).reached(kernel.name)))
    for function in (kernel, *called):
        labels: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            if index < len(function.instructions):
                labels.setdefault(function.instructions[index].line, []).append(label)
        yield Listing(readable(function.name), line_costs(function.instructions), labels)


def _text_of(source: Source, line: str) -> str:
    """The text of a source line; "" if the file is not known."""
    file, _, number = line.rpartition(":")
    lines = source.files.get(file, "").splitlines()
    return lines[int(number) - 1] if int(number) <= len(lines) else ""


def _facts(source: Source, listing: Listing) -> dict[str, Any]:
    """The source lines of a function with their PTX and costs, as a JSON object."""
    lines = [
        {
            **cost.to_json(),
            "source": _text_of(source, cost.line),
            "ptx": [{"line": i.line, "text": _one_line(i.text)} for i in cost.instructions],
        }
        for cost in listing.costs
    ]
    return {"name": listing.name, "lines": lines, "total": _total(listing).to_json()}


def _total(listing: Listing) -> LineCost:
    """The sum of the static costs of all source lines."""
    from simwarp.observe.static_costs import LineCost

    total = LineCost("total")
    for cost in listing.costs:
        for instruction in cost.instructions:
            total.add(instruction)
    return total


def _show(source: Source, listings: list[Listing]) -> None:
    """Print each function's source lines with their PTX: beside them, or below on a narrow terminal."""
    console = wide_console(highlight=False, soft_wrap=True)
    for listing in listings:
        console.print(Text(listing.name, style="bold"))
        if console.width >= _BESIDE:
            console.print(_table(source, listing))
        else:
            console.print(*_stacked(source, listing), sep="\n")
        console.print()


def _table(source: Source, listing: Listing) -> Table:
    """A table of a function's source lines, each with its PTX and costs beside it."""
    shown = table("line", "source", "PTX", "bytes", "operations", numbers=("instructions",))
    for column in shown.columns[1:3]:
        column.no_wrap, column.overflow = False, "fold"
    texts = _source_of(source, listing)
    for cost in listing.costs:
        line, text = texts[cost.line]
        shown.add_row(Text(line, style="cyan"), Text(text), _ptx(listing, cost), *_costs(cost))
    shown.add_row("total", "", "", *_costs(_total(listing)))
    return shown


def _stacked(source: Source, listing: Listing) -> Iterator[Text]:
    """The source of a function, and below each line its costs and its PTX."""
    texts = {"total": ("total", ""), **_source_of(source, listing)}
    for cost in [*listing.costs, _total(listing)]:
        line, text = texts[cost.line]
        bytes_of, work, count = _costs(cost)
        facts = [f"{count} instructions", *bytes_of.splitlines(), work]
        yield Text.assemble((line, "cyan"), f" {text}" if text else "")
        yield Text(f"    {'; '.join(filter(None, facts))}", style="green")
        if cost.line != "total":
            yield _ptx(listing, cost)


def _source_of(source: Source, listing: Listing) -> dict[str, tuple[str, str]]:
    """Source location of each line ("" without line information), and its text without common indentation."""
    texts = {cost.line: printable(_text_of(source, cost.line).expandtabs(4)) for cost in listing.costs}
    indents = [len(text) - len(text.lstrip()) for text in texts.values() if text.strip()]
    common = min(indents, default=0)
    return {line: ("" if line.startswith("ptx:") else line, text[common:]) for line, text in texts.items()}


def _ptx(listing: Listing, cost: LineCost) -> Text:
    """The instructions of a line with their line numbers, and the labels in front of them."""
    text = Text()
    for instruction in cost.instructions:
        for label in listing.labels.get(instruction.line, []):
            text.append(f"{label}:\n", style="yellow")
        text.append(f"{instruction.line:>5} ", style="dim").append(f"{_one_line(instruction.text)}\n")
    text.rstrip()
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _costs(cost: LineCost) -> tuple[str, str, str]:
    """The bytes, the operations and the number of instructions of a line, as cells."""
    bytes_of = [
        *_listed(cost.loaded, "{space}: {count} read"),
        *_listed(cost.stored, "{space}: {count} written"),
        *_listed(cost.atomics, "{space}: {count} atomic"),
    ]
    work = [f"{count} {kind}" for kind, count in sorted(cost.operations.items())]
    return "\n".join(bytes_of), ", ".join(work), str(len(cost.instructions))


def _listed(counts: Counter[str], form: str) -> list[str]:
    return [form.format(space=space, count=count) for space, count in sorted(counts.items())]
