"""The work of the host's cores: one task at a time, in the host's memory (BLASX, section IV.C)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gpu.blas3.on_cpu import CpuRoutine
from gpu.blas3.statistics import DeviceStatistics
from gpu.blas3.tasks import Output
from gpu.machine import HOST, Event

if TYPE_CHECKING:
    from gpu.blas3.run import Run


class CpuWorker:
    """The host-side loop that feeds the host's cores with tasks."""

    def __init__(self, run: Run, statistics: DeviceStatistics) -> None:
        self._run, self._statistics = run, statistics

    def work(self) -> Iterator[Event]:
        """Compute tasks until none is left; yield the end of each tile."""
        while (found := self._run.stations.next()) is not None:
            task, stolen = found
            self._statistics.tasks += 1
            self._statistics.stolen += stolen
            for output in task.outputs:
                yield self._tile(output)
                self._run.directory.written(output.block)
                self._run.finish(output.block)

    def _tile(self, output: Output) -> Event:
        """Queue the steps of a tile; the event of the last one, which writes the tile to the result.

        As on a device the sum is beside the result: some steps read the tile's old values.
        """
        run, block = self._run, output.block
        home = run.host(block)
        buffer = np.empty(block.shape, home.dtype, order="F")
        for holder in run.directory.write(block, HOST):
            run.workers[holder].cache.drop(block)
        steps = tuple(output.steps)
        operations = [
            CpuRoutine(
                step.kernel,
                tuple(map(run.host, step.reads)),
                buffer,
                loaded=home if step is steps[0] and output.is_loaded else None,
                stored=home if step is steps[-1] else None,
            )
            for step in steps
        ]
        return [*map(run.machine.compute, operations)][-1]
