"""One call on all devices of a machine: what the workers share, and that nothing is left behind."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy.typing as npt

from gpu.blas3.blocks import Block
from gpu.blas3.directory import Directory
from gpu.blas3.layouts import Call
from gpu.blas3.options import Options
from gpu.blas3.plan import Plan
from gpu.blas3.pools import HeapPool, NativePool
from gpu.blas3.stations import Stations
from gpu.blas3.statistics import Statistics
from gpu.blas3.worker import DeviceWorker
from gpu.machine import Machine

_POOLS = {"heap": HeapPool, "native": NativePool}


class Run:
    """What the workers of one call share.

    Parameters
    ----------
    machine : Machine
    call : Call
    plan : Plan
    options : Options
    """

    def __init__(self, machine: Machine, call: Call, plan: Plan, options: Options) -> None:
        self.machine, self.options, self._call = machine, options, call
        self.streams = plan.streams
        self.stations = Stations(plan.tasks, machine.devices, options.station, steal=options.steal)
        self.directory: Directory[Block] = Directory()
        self.workers: list[DeviceWorker] = []
        self._served = [0] * machine.devices

    def host(self, block: Block) -> npt.NDArray[Any]:
        """The block's elements on the host."""
        return block.of(self._call.matrices[block.matrix])

    def is_at_peer(self, block: Block, device: int) -> bool:
        """Whether a device can copy a block from a peer."""
        if self.options.peer == "none":
            return False
        return any(self.machine.reaches(device, peer) for peer in self.directory.holders(block) - {device})

    def peer_with(self, block: Block, device: int) -> DeviceWorker | None:
        """The peer to copy a block from: that which has served the fewest copies; None: the host."""
        if not self.is_at_peer(block, device):
            return None
        found = [
            peer
            for peer in self.directory.holders(block)
            if peer != device and self.machine.reaches(device, peer) and self._can_serve(peer, block)
        ]
        if not found:
            return None
        chosen = min(found, key=lambda peer: (self._served[peer], peer))
        self._served[chosen] += 1
        return self.workers[chosen]

    def _can_serve(self, peer: int, block: Block) -> bool:
        """Whether a peer's copy may be read: it has arrived, or the options allow to wait for it."""
        return self.options.peer == "arriving" or self.workers[peer].has_arrived(block)


def compute(machine: Machine, call: Call, plan: Plan, options: Options) -> Statistics:
    """Compute a call in place; whatever fails, no memory stays allocated and no page pinned."""
    begin = machine.seconds()
    run = Run(machine, call, plan, options)
    make = _POOLS[options.allocation]
    with ExitStack() as stack:
        for matrix in _distinct(call):
            machine.pin(matrix)
            stack.callback(machine.unpin, matrix)
        for device in range(machine.devices):
            pool = make(machine, device, plan.pool(device), plan.segment, call.problem.dtype)
            stack.callback(pool.close)
            run.workers.append(DeviceWorker(run, device, pool))
        machine.run([worker.work() for worker in run.workers])
    return Statistics([worker.statistics for worker in run.workers], machine.seconds() - begin)


def _distinct(call: Call) -> list[npt.NDArray[Any]]:
    """The matrices that the tasks touch, each once, without empty ones."""
    names = (call.problem.result,) if call.problem.is_scaling else tuple(call.matrices)
    found = {
        (x.__array_interface__["data"][0], x.shape, x.strides): x
        for name in names
        if (x := call.matrices[name]).size
    }
    return [*found.values()]
