"""Progress of a long ``simwarp run`` in blocks, on a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from simwarp.engine.events import Observer

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Launch, Mask
    from simwarp.program.program import Step

_SHORT = 1.0
"""Seconds before a bar appears."""
_INTERVAL = 0.05
"""The least seconds between two updates of the bar."""


class BlocksDone(Observer):
    """Calls ``show`` with the numbers of ended blocks and of all blocks, once a chunk of blocks has ended."""

    def __init__(self, show: Callable[[int, int], object]) -> None:
        self._show = show
        self._blocks: Any = None
        """The blocks of the current chunk: an array that also copies of a part of the chunk have."""
        self._done = self._total = 0
        self._next = 0.0

    def on_launch(self, launch: Launch) -> None:
        """Reset the counts: 0 of the launch's blocks have ended."""
        self._blocks, self._done, self._total = None, 0, math.prod(launch.grid)

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Count the blocks of the chunk before, when another one begins; show now and then."""
        if chunk.block_numbers is not self._blocks:
            self._done += 0 if self._blocks is None else self._blocks.size
            self._blocks = chunk.block_numbers
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _INTERVAL
            self._show(self._done, self._total)

    def on_end(self, launch: Launch) -> None:
        """Show that all blocks of the launch have ended."""
        self._show(self._total, self._total)


@contextmanager
def block_bar(text: str, console: Console) -> Generator[tuple[Observer, ...]]:
    """Show a bar of blocks once a run on a terminal takes more than a second; yields its observers."""
    if console.quiet or not console.is_terminal:
        yield ()
        return
    columns: Any = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("blocks"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    start = time.monotonic()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(text, total=None, visible=False)

        def show(done: int, total: int) -> None:
            if time.monotonic() - start >= _SHORT:
                bar.update(task, completed=done, total=total, visible=True)

        yield (BlocksDone(show),)
