"""All memory of a plan: a slab on the device, and a page-locked slab on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from gpu.cuda_machine import CudaMachine
from gpu.machine import Event, Machine, Memory
from gpu.outofcore.networks.host_copies import write_array
from gpu.outofcore.networks.memory import HostMemory, host_bytes
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.work import Work


class Slabs:
    """The two slabs, allocated and freed together; ``host`` is None before `open` and after `close`.

    ``holds_parameters``: work has run, which loads resident parameters.
    """

    def __init__(self, machine: Machine, plan: TrainingPlan) -> None:
        self._machine, self._plan = machine, plan
        self._device: Memory | None = None
        self._slab: npt.NDArray[np.uint8] | None = None
        self.host: HostMemory | None = None
        self.holds_parameters = False

    def open(self, current: int, fill: Callable[[HostMemory], object]) -> HostMemory:
        """The host's memory; if there is none, let ``fill`` write the state, and allocate both slabs."""
        if self.host is None:
            slab = np.empty(host_bytes(self._plan), np.uint8)
            write_array(slab, 0)  # touched memory is page-locked faster
            host = HostMemory(self._plan, slab, current)
            fill(host)
            self._take(slab, host)
        assert self.host is not None
        return self.host

    def _take(self, slab: npt.NDArray[np.uint8], host: HostMemory) -> None:
        """Page-lock the host's slab, and allocate the device's."""
        known = {id(memory) for memory in self._machine.allocated(0)}
        try:
            self._slab = slab
            self._machine.pin(slab)
            self._device = self._machine.allocate(0, self._plan.device.nbytes)
            if isinstance(self._machine, CudaMachine):
                self._machine.prepare(0, Work(self._machine, self._plan, self._device, host).prepared())
            self.host = host
        except BaseException:
            for memory in self._machine.allocated(0):
                if id(memory) not in known:  # Ctrl-C may come before the memory is noted
                    self._device = memory
            self.close()
            raise

    def close(self) -> None:
        """Free both slabs, if allocated; a call that was interrupted may be repeated."""
        try:
            for memory in self._machine.allocated(0):
                if memory is self._device:
                    self._machine.free(memory)
        finally:
            while self._slab is not None and self._machine.pins(self._slab):
                self._machine.unpin(self._slab)
        self._device, self._slab, self.host, self.holds_parameters = None, None, None, False

    def run(self, work: Callable[[Work, bool], Iterator[Event]]) -> None:
        """Run work; its second argument is True if it must load resident parameters."""
        assert self._device is not None
        assert self.host is not None
        made = Work(self._machine, self._plan, self._device, self.host)
        self._machine.run([work(made, not self.holds_parameters)])
        self.holds_parameters = True
