"""The command ``simwarp paper``: the figures and tables of the five papers, printed numbers beside ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import TaskProgressColumn
from rich.text import Text

from reference.errors import SchemeError
from simwarp.cli.files import write_svg
from simwarp.cli.output import Json, OneDevice, print_json, progress_bar, table, wide_console, write_text
from simwarp.draw.text import printable

if TYPE_CHECKING:
    from simwarp.lab.papers.entries import Item, Paper


def paper_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]…", help="bstc, btc, mm-csf, blasx, ooc-cudnn; none lists all."),
    ] = None,
    figure: Annotated[str | None, typer.Option(metavar="N", help="Make this figure of one paper.")] = None,
    table: Annotated[str | None, typer.Option(metavar="N", help="Make this table.")] = None,
    section: Annotated[
        str | None, typer.Option(metavar="N", help="Make what this section has in its text.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Make all that the device makes.")] = False,
    device: Annotated[
        OneDevice, typer.Option(help="The simulator and simulated machines, or GPUs.")
    ] = OneDevice.sim,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Tensors NAME.tns and images NAME.npy in place of look-alikes."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep each entry in a file; those that are there are not made again."
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw an entry; FILE.json has its numbers.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Make figures and tables of the five papers: printed numbers beside ours, and why they differ.

    On the simulator they have counts at sizes that fit, on simulated machines seconds of their clock, on GPUs
    times. Without --figure, --table or --all the entries are listed.
    """
    from simwarp.lab.papers import NAMES, paper
    from simwarp.lab.papers.data import Data
    from simwarp.lab.papers.run import made

    papers = [paper(name) for name in dict.fromkeys(names or NAMES)]
    asked = {"figure": figure, "table": table, "section": section}
    given = {kind: number for kind, number in asked.items() if number is not None}
    if not given and not everything:
        _list(papers, as_json)
        return 0
    chosen = [*_chosen(papers, given, everything, device.value)]
    if svg is not None and len(chosen) != 1:
        raise SchemeError(
            f"--svg with {len(chosen)} entries\na file has one plot\ngive one --figure or --table"
        )
    found: list[dict[str, Any]] = []
    with progress_bar("entries", TaskProgressColumn(), len(chosen), quiet=as_json) as update:

        def progress(item: Item, done: int, total: int) -> None:
            update(description=item.name, completed=len(found) + done / max(total, 1))

        for facts in made(chosen, device.value, Data(data), progress, out):
            found.append(facts)
            if not as_json:
                _show(facts)
    if as_json:
        print_json(found[0] if len(chosen) == 1 and not everything else {"entries": found})
    if svg is not None:
        from simwarp.lab.papers.plots import to_svg

        write_svg(svg, to_svg(found[0]))
        sys.stderr.write(f"wrote {svg}\n")
        write_text(svg.with_suffix(".json"), json.dumps(found[0], indent=1, default=str) + "\n", "--svg")
    return 0


def _chosen(
    papers: list[Paper], given: dict[Any, str], everything: bool, device: Any
) -> Iterator[tuple[Paper, Item]]:
    """The entries that the options name."""
    if given and (everything or len(papers) != 1):
        option = f"--{next(iter(given))}"
        raise SchemeError(
            f"{option} with {'--all' if everything else f'{len(papers)} papers'}\n"
            f"{option} is of one paper, and --all is all of them\n"
            "give one of these, e.g. simwarp paper bstc --table 5"
        )
    for each in papers:
        yield from ((each, item) for item in each.made_on(device) if everything)
        yield from ((each, each.item(kind, number)) for kind, number in given.items())


# --------------------------------------------------------------------------------------------------
# Printing
# --------------------------------------------------------------------------------------------------


def _list(papers: list[Paper], as_json: bool) -> None:
    """List the entries of papers, with the devices that make them."""
    from simwarp.lab.papers.data import WANTED

    if as_json:
        print_json(
            [
                {
                    "paper": each.name,
                    "title": each.title,
                    "entries": [
                        {
                            "item": item.name,
                            "title": item.title,
                            "devices": list(item.makers),
                            "note": item.note,
                        }
                        for item in each.items
                    ],
                }
                for each in papers
            ]
        )
        return
    console = wide_console(highlight=False)
    for each in papers:
        shown = table("entry", "device", "what", cut=("what",))
        for item in each.items:
            what = item.title if item.makers else f"{item.title}: {item.note}"
            shown.add_row(item.name, ", ".join(item.makers) or "–", Text(what, no_wrap=True))
        console.print(Text(f"{each.name}: {each.title}", style="bold"))
        console.print(shown)
        console.print()
    console.print(
        Text(
            "simwarp paper NAME --figure N makes one, --all all that --device makes.\n"
            f"--data FOLDER:\n{WANTED}"
        )
    )


def _show(facts: dict[str, Any]) -> None:
    """Print an entry as a table."""
    from simwarp.lab.papers.compare import cell, columns, heads

    rows = facts["rows"]
    of = columns(rows)
    words = sum(1 for name, which in of if which == "ours" and _is_label(rows, name))
    titles = heads(of)
    shown = table(*titles[:words], numbers=tuple(titles[words:]))
    for row in rows:
        shown.add_row(*(Text(printable(cell(row, *each))) for each in of))
    console = wide_console(highlight=False)
    console.print(Text(f"{facts['paper']}, {facts['item']}: {facts['title']}", style="bold"))
    simulated = "what the simulator makes of it: " if facts["device"] == "sim" else ""
    console.print(Text(f"{simulated}{facts['sizes']}"))
    if facts["data"]:
        console.print(Text(f"data: {facts['data']}"))
    console.print(shown)
    for name, reason in facts["reasons"].items():
        console.print(Text(f"{name}: more than 20 % from print; {reason or 'no reason is known'}"))
    console.print(Text(f"{facts['meta']['seconds']:.1f} s\n"))


def _is_label(rows: list[dict[str, Any]], name: str) -> bool:
    return all(isinstance(row.get(name), str | list | None) for row in rows)
