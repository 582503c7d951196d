"""Warps of kernels in Python, run from barrier to barrier: of their block, or of the whole grid."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from types import GeneratorType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp import lanes
from simwarp.faults import BarrierFault, KernelFault, NotCooperative

_Run: TypeAlias = "GeneratorType[Any, Any, Any]"


class Barrier(Enum):
    """What a warp of a kernel in Python can wait for, other than for its block."""

    GRID = "grid"

    def __repr__(self) -> str:
        return self.name


class Warp(Protocol):
    """What barriers ask of a `simwarp.warp.Warp`."""

    index: int
    block: Any
    alive: npt.NDArray[np.bool_]
    active: npt.NDArray[np.bool_]

    def place(self, fault: KernelFault, lane: int | None = None, frame: Any = None) -> KernelFault:
        """Complete a fault's place."""
        ...


class Block:
    """The warps of a block, each a generator; a kernel without barriers ends in its call."""

    def __init__(
        self, kernel: Callable[..., object], warps: Sequence[Warp], args: tuple[object, ...]
    ) -> None:
        self.warps = warps
        self._runs: dict[Warp, _Run] = {}
        for warp in warps:
            run = kernel(warp, *args)
            if inspect.isgenerator(run):
                self._runs[warp] = run

    def waits_for_the_grid(self, *, cooperative: bool) -> bool:
        """Run the warps in turn, from barrier to barrier of the block; False if they have ended.

        Raises
        ------
        BarrierFault
            If not all warps, or not all lanes of a warp, reach a barrier.
        NotCooperative
            If they wait for the grid in a launch whose blocks need not run at once.
        """
        while self._runs:
            reached = {warp: self._next(warp, run) for warp, run in self._runs.items()}
            self._runs = {warp: run for warp, run in self._runs.items() if reached[warp] is not _ENDED}
            self._check_warps()
            of_grid = [warp for warp in self._runs if reached[warp] is Barrier.GRID]
            if not of_grid:
                continue
            self._check_grid(of_grid, cooperative)
            return True
        return False

    def place(self, fault: BarrierFault | NotCooperative) -> BarrierFault | NotCooperative:
        """Complete a fault with the place of the first warp that waits."""
        warp, run = next(iter(self._runs.items()))
        warp.place(fault, frame=run.gi_frame)
        return fault

    def _next(self, warp: Warp, run: _Run) -> object:
        """Run a warp to its next barrier or its end."""
        reached = next(run, _ENDED)
        missing = warp.alive & ~warp.active
        if reached is not _ENDED and missing.any():
            fault = BarrierFault(
                "barrier that some lanes of the warp do not reach",
                f"waiting {word_of(warp.active):#010x}, not exited {word_of(warp.alive):#010x}",
                "move the barrier out of the `where`, so that every lane reaches it",
            )
            raise warp.place(fault, int(missing.argmax()), run.gi_frame)
        return reached

    def _check_warps(self) -> None:
        if self._runs and len(self._runs) < len(self.warps):
            ended = [warp.index for warp in self.warps if warp not in self._runs]
            raise self.place(
                BarrierFault(
                    "barrier that some warps of the block never reach",
                    f"waiting: warps {[warp.index for warp in self._runs]}; ended: warps {ended}",
                    "let every warp of the block pass the same number of barriers",
                )
            )

    def _check_grid(self, of_grid: list[Warp], cooperative: bool) -> None:
        others = [warp.index for warp in self._runs if warp not in of_grid]
        if others:
            raise self.place(
                BarrierFault(
                    "warps of a block that wait at different barriers",
                    f"for the grid: warps {[warp.index for warp in of_grid]}; for the block: warps {others}",
                    "let every warp of the block pass the same barriers in the same order",
                )
            )
        if not cooperative:
            raise self.place(
                NotCooperative(
                    "grid sync in a launch that is not cooperative",
                    "blocks of an ordinary launch may run one after another",
                    "launch it with cooperative=True",
                )
            )


_ENDED = object()


def run_together(blocks: Sequence[Block]) -> None:
    """Run all blocks of a cooperative launch, from barrier to barrier of the grid.

    Raises
    ------
    BarrierFault
        If some blocks wait for the grid and others have ended: on hardware they wait forever.
    """
    while True:
        waiting = [block for block in blocks if block.waits_for_the_grid(cooperative=True)]
        if not waiting:
            return
        if len(waiting) < len(blocks):
            ended = [tuple(block.warps[0].block) for block in blocks if block not in waiting]
            first = [tuple(block.warps[0].block) for block in waiting]
            raise waiting[0].place(
                BarrierFault(
                    "barrier of the grid that some blocks never reach",
                    f"waiting: {_some(first)}; ended: {_some(ended)}",
                    "let every block pass the same number of barriers of the grid",
                )
            )


def _some(blocks: Sequence[tuple[int, ...]]) -> str:
    """The first blocks of a list, and how many there are."""
    named = ", ".join(map(str, blocks[:3]))
    return f"blocks {named}" if len(blocks) <= 3 else f"{len(blocks)} blocks, {named} …"


def word_of(active: npt.NDArray[np.bool_]) -> int:
    """The lanes of a mask as one word."""
    return int(lanes.ballot(active).value[0])
