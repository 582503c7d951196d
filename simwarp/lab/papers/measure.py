"""What a call costs: what the simulator executes for it, or the seconds of its kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simwarp
from simwarp.lab.bench.rounds import medians
from simwarp.lab.bench.table import WrongAnswerError
from simwarp.lab.network_studies import Facts, Timer
from simwarp.lab.papers.entries import Making

OBSERVED = ("sectors", "banks", "divergence")
_COUNTED = "instructions of threads, sectors of 32 bytes in global memory, bank conflicts, divergent branches"
TOGETHER = 10
"""Calls in one graph."""


class Meter:
    """Measures calls on the GPU of a `Making`, or without one on a new simulated device of a chip."""

    def __init__(self, making: Making, chip: tuple[int, int] = (9, 0)) -> None:
        self.simulated = making.device is None
        self.device: Any = simwarp.Device(cc=chip, observe=OBSERVED) if self.simulated else making.device

    def cost(self, work: Callable[[], Any], *, captured: bool = True) -> tuple[Any, Facts]:
        """The answer of a call, and its cost: counts of its launches, or microseconds.

        A call that packs real operands cannot be captured: its time ends when a caller has the answer.
        """
        if not self.simulated:
            if captured:
                return work(), {"us": 1e6 * Timer(self.device).cost(work, TOGETHER)["seconds"]}
            return work(), {"us": 1e6 * medians(work, self.device.synchronize)[0]}
        device = self.device
        device.report.clear()
        executed, launches = device.executed, device.launches
        answer, report = work(), device.report
        return answer, {
            "instructions": device.executed - executed,
            "launches": device.launches - launches,
            "sectors": report.sectors.total,
            "conflicts": report.bank_conflicts.total,
            "divergent": report.divergence.total.divergent_branches,
        }

    def about(self) -> str:
        """The chip and what is counted on it."""
        if not self.simulated:
            return f"on {self.device.name}: microseconds of the kernels, of real operands until the answer"
        return "on sm_{}{}: {}".format(*self.device.compute_capability, _COUNTED)


def check(what: str, right: bool) -> None:
    """Raise WrongAnswerError unless the answer of a call is right."""
    if not right:
        raise WrongAnswerError(
            f"{what}: the answer is wrong\nthe cost of a wrong answer means nothing\nrun simwarp verify"
        )
