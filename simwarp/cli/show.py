"""How outcomes look in a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from simwarp.verify import Outcome
from simwarp.verify.runner import LEAST_SHAPES

TIERS = {
    "reference": "reference",
    "listing": "simwarp.listings",
    "simulator": "gpu on simwarp.Device",
    "cuda": "gpu on gpu.CudaDevice",
}
"""What each tier is called in tables."""


@contextmanager
def live_table(budget: float) -> Generator[Callable[[Outcome], None]]:
    """A table that fills while cases run; yields the function that updates it."""
    start = shown = time.perf_counter()
    with Live(auto_refresh=False, transient=True) as live:  # no thread, which forked processes would lack

        def update(outcome: Outcome) -> None:
            nonlocal shown
            now = time.perf_counter()
            if now - shown >= 0.25:
                shown, done = now, min(now - start, budget)
                bar = ProgressBar(total=budget, completed=done, width=40)
                live.update(Group(_table(outcome), bar), refresh=True)

        yield update


def _table(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("case")
    table.add_column("tier")
    for name in ("inputs", "shapes", "mismatches", "time"):
        table.add_column(name, justify="right")
    for row in outcome.rows:
        style = "bold red" if row.mismatches else ""
        cells = [str(row.inputs), str(row.shapes), str(row.mismatches), f"{row.seconds:.1f} s"]
        table.add_row(row.case, TIERS.get(row.tier, row.tier), *cells, style=style)
    return table


def verdict(outcome: Outcome) -> None:
    """The table, the mismatches, and one line that says whether the tiers agreed."""
    console = Console(soft_wrap=True)
    console.print(_table(outcome))
    for mismatch in outcome.mismatches:
        console.print(Text(f"\n{mismatch}"))
    if outcome.interrupted:
        console.print("stopped before the end")
    elif outcome.short:
        names = ", ".join(outcome.short)
        tried = f"{LEAST_SHAPES} shapes" if outcome.few is None else f"{outcome.few} inputs"
        more = "--inputs" if outcome.used_up else "--budget"
        console.print(f"fewer than {tried} tried: {names}; give a larger {more}")
    elif outcome.agreed:
        few = outcome.few and f" on the {outcome.few} inputs asked for; {LEAST_SHAPES} shapes verify a case"
        console.print(f"all tiers agree{few or ''}")
    else:
        wrong = sum(row.mismatches for row in outcome.rows)
        console.print(Text(f"\nthe tiers differ on {wrong} inputs", style="bold red"))


def facts(values: dict[str, Any]) -> None:
    """A flat table of facts; those that belong together are called ``group: name``."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
    for key, value in values.items():
        inner = cast("dict[str, Any]", value) if isinstance(value, dict) else {"": value}
        for name, fact in inner.items():
            table.add_row(f"{key}: {name}" if name else key, Text(str(fact)))
    Console().print(table)
