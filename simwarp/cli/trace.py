"""The commands ``simwarp trace show`` and ``diff``: print a stored trace, or compare two.

>>> show_command(Path("no-such-trace.npz"))
Traceback (most recent call last):
...
reference.errors.InputFileError: no-such-trace.npz holds no trace: No such file or directory
give a file that Trace.save wrote
"""

from __future__ import annotations

import sys
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simwarp.cli.output import Json, print_json

if TYPE_CHECKING:
    from simwarp.observe.trace import Recording
    from simwarp.observe.trace.model import Block

trace_app = typer.Typer(help="Show stored traces, and compare them.", no_args_is_help=True)

_WARPS = 16
"""The most warps of a launch that the summary lists."""
_LINES = 12
"""The most lines that an error lists."""

File = Annotated[Path, typer.Argument(help="A file that Trace.save wrote.")]


class By(StrEnum):
    """The way in which `diff` matches the steps of two traces: see `simwarp.observe.trace.compare`."""

    ptx = "ptx"
    source = "source"
    lane = "lane"


@trace_app.command("show")
def show_command(
    file: File,
    launch: Annotated[int, typer.Option(min=0, help="The launch, counted from 0.")] = 0,
    block: Annotated[str | None, typer.Option(help="The block: 5, or 1,0,2.")] = None,
    warp: Annotated[int | None, typer.Option(min=0, help="The warp in its block.")] = None,
    lane: Annotated[
        list[int] | None, typer.Option(min=0, max=31, help="Show the values of this lane.")
    ] = None,
    line: Annotated[list[str] | None, typer.Option(help="Show only this line: 17, or mm.cu:42.")] = None,
    as_json: Json = False,
) -> int:
    """Show the steps of one warp; without --block and --warp, list the warps."""
    from simwarp.observe.line_counts import listed
    from simwarp.observe.trace import load
    from simwarp.observe.trace.model import TraceError

    recording = load(file)
    if block is None and warp is None:
        _summary(recording, as_json)
        return 0
    where: tuple[Block, int, int] = _block(block or "0"), warp or 0, launch
    lines = tuple(line or ())
    records = recording.warp(*where)
    chosen = [r for r in records if not lines or any(map(r.instruction.stands_at, lines))]
    if not chosen:
        known = list(dict.fromkeys(r.instruction.source or str(r.instruction.line) for r in records))
        raise TraceError(
            f"--line {', '.join(lines)}: this warp executed no step there\n"
            f"it executed steps at {listed(known, _LINES)}\ngive one of these lines"
        )
    if as_json:
        place = {"launch": launch, "block": block or "0", "warp": where[1]}
        print_json({"file": str(file), **place, "steps": [record.to_json() for record in chosen]})
    else:
        sys.stdout.write(recording.to_text(*where, lanes=tuple(lane or ()), lines=lines) + "\n")
    return 0


@trace_app.command("diff")
def diff_command(
    first: File,
    second: File,
    by: Annotated[By, typer.Option(help="ptx: the same PTX; source: the same source lines; lane.")] = By.ptx,
    every: Annotated[bool, typer.Option("--all", help="Show the first difference of each warp.")] = False,
    as_json: Json = False,
) -> int:
    """Find the first step at which two traces differ."""
    from simwarp.observe.trace import differences, load

    found = list(differences(load(first), load(second), by.value))
    earliest = min(found, key=lambda one: (one.launch, one.number), default=None)
    chosen = found if every or earliest is None else [earliest]
    if as_json:
        shown = [one.to_json() for one in chosen]
        print_json({"equal": not found, "warps": len(found), "differences": shown})
    else:
        more = len(found) - len(chosen)
        after = [f"{more} more warps differ: --all shows them"] if more else []
        texts = [*map(str, chosen), *after] or ["the traces are equal"]
        sys.stdout.write("\n\n".join(texts) + "\n")
    return 1 if found else 0


def _summary(recording: Recording, as_json: bool) -> None:
    """Print the launches and the number of events of each of their warps."""
    launches: list[dict[str, Any]] = [
        {"kernel": launch.kernel, "grid": list(launch.grid), "block": list(launch.block), "warps": []}
        for launch in recording.launches
    ]
    for (launch, block, warp), rows in recording.warps.items():
        index = list(recording.block_of(launch, block))
        launches[launch]["warps"].append({"block": index, "warp": warp, "rows": rows.stop - rows.start})
    if as_json:
        print_json({"selection": recording.selection, "launches": launches, "faults": recording.faults})
        return
    lines: list[str] = []
    for number, launch in enumerate(launches):
        warps, shape = launch["warps"], f"grid {tuple(launch['grid'])}, block {tuple(launch['block'])}"
        lines.append(f"launch {number}: kernel {launch['kernel']}, {shape}, {len(warps)} warps traced")
        for one in warps[:_WARPS]:
            lines.append(f"  block {tuple(one['block'])}, warp {one['warp']}: {one['rows']} events")
        lines += [f"  and {len(warps) - _WARPS} more"] * (len(warps) > _WARPS)
    for fault, count in Counter(recording.faults).items():
        lines += [fault, f"{count} times"][: 1 + (count > 1)]
    sys.stdout.write("\n".join(lines or ["no launch was traced"]) + "\n")


def _block(text: str) -> Block:
    """The block of ``--block``: its number, or its index (x, y, z)."""
    from simwarp.observe.trace.model import TraceError

    parts = text.replace("(", "").replace(")", "").split(",")
    if len(parts) not in (1, 3) or not all(part.strip().isdigit() for part in parts):
        raise TraceError(f"--block {text} is not a block\ngive its number, as 5, or its index, as 1,0,2")
    numbers = [int(part) for part in parts]
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1], numbers[2])
