"""The execution of one call on all devices of a machine: the workers' shared state, and the cleanup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy.typing as npt

from gpu.blas3.blocks import Block
from gpu.blas3.cpu_worker import CpuWorker
from gpu.blas3.directory import Directory
from gpu.blas3.homes import check_homes, home_of
from gpu.blas3.layouts import Call
from gpu.blas3.options import Options
from gpu.blas3.plan import Plan
from gpu.blas3.pools import HeapPool, NativePool
from gpu.blas3.stations import Stations
from gpu.blas3.statistics import DeviceStatistics, Statistics
from gpu.blas3.worker import DeviceWorker
from gpu.cleanup import leaving_nothing
from gpu.machine import HOST, Machine, Tile, Worker
from reference.errors import DeviceLostError

Counts: TypeAlias = dict[int, DeviceStatistics]
"""By device; -1 is the host."""
_POOLS = {"heap": HeapPool, "native": NativePool}


class Run:
    """The state that the workers of one call share."""

    def __init__(self, machine: Machine, call: Call, plan: Plan, options: Options) -> None:
        self.machine, self.options = machine, options
        self._on_host, self._on_devices = call.on_host, call.on_devices
        self.streams = plan.streams
        self.stations = Stations(plan.tasks, machine.devices, options.station, steal=options.steal)
        self.directory: Directory[Block] = Directory()
        self.workers: dict[int, DeviceWorker] = {}  # device number → worker
        self.finished: set[Block] = set()  # blocks of the result whose write-back has ended
        self._served = [0] * machine.devices
        self._tiles = sum(len(task.outputs) for task in plan.tasks)
        everyone = range(machine.devices)
        self._reached = [{peer for peer in everyone if machine.reaches(one, peer)} for one in everyone]

    def finish(self, block: Block) -> None:
        """Note that the host has a block of the result."""
        self.finished.add(block)
        if self.options.progress is not None:
            self.options.progress(len(self.finished), self._tiles)

    def host(self, block: Block) -> npt.NDArray[Any]:
        """A view of the block's elements in host memory."""
        return block.of(self._on_host[block.matrix])

    def home(self, block: Block) -> Tile | None:
        """The tile of a block in a matrix on a device; None if the matrix is on the host."""
        return home_of(self._on_devices, block)

    def go_home(self, blocks: Iterable[Block]) -> None:
        """Make blocks available at their homes, if those are on devices."""
        for block in blocks:
            home = self.home(block)
            if home is not None:
                self.workers[home.memory.device].hold(block, home)

    def is_at_peer(self, block: Block, device: int) -> bool:
        """True if a device can copy a block from another device."""
        reached = self._reached[device]
        return (
            bool(reached)
            and self.options.peer != "none"
            and not reached.isdisjoint(self.directory.holders(block))
        )

    def peer_with(self, block: Block, device: int) -> DeviceWorker | None:
        """The peer from which to copy a block: the one with the fewest copies so far; None for the host."""
        if not self.is_at_peer(block, device):
            return None
        found = [
            peer
            for peer in self.directory.holders(block) & self._reached[device]
            if self._can_serve(peer, block)
        ]
        if not found:
            return None
        chosen = min(found, key=lambda peer: (self._served[peer], peer))
        self._served[chosen] += 1
        return self.workers[chosen]

    def _can_serve(self, peer: int, block: Block) -> bool:
        """True if another device's copy has arrived, or may be waited for, as if the host has none."""
        may_wait = self.options.peer == "arriving" or block.matrix in self._on_devices
        return may_wait or self.workers[peer].has_arrived(block)


def compute(machine: Machine, call: Call, plan: Plan, options: Options) -> Statistics:
    """Compute a call in place; whatever fails, no memory stays allocated and no page pinned."""
    check_homes(machine, call, options)
    begin = machine.seconds()
    devices = [*range(machine.devices)]
    if options.cpu and machine.has_cpu and not call.on_devices:
        devices.append(HOST)
    counts = {device: DeviceStatistics() for device in (*range(machine.devices), HOST)}
    if options.on_device_loss == "continue":
        _despite_losses(machine, call, plan, options, devices, counts)
    else:
        _run(Run(machine, call, plan, options), call, plan, devices, counts)
    cpu = counts.pop(HOST)
    return Statistics([*counts.values()], machine.seconds() - begin, cpu)


def _despite_losses(
    machine: Machine,
    call: Call,
    plan: Plan,
    options: Options,
    devices: list[int],
    counts: Counts,
) -> None:
    """Compute a call; after the loss of a device, the others restart its unfinished tasks."""
    result = call.on_host[call.problem.result]
    before = result.copy(order="K")
    every = [output.block for task in plan.tasks for output in task.outputs]
    while plan.tasks:
        run = Run(machine, call, plan, options)
        try:
            return _run(run, call, plan, devices, counts)
        except DeviceLostError as error:
            # losing a device that all others need, such as the first GPU for page-locking, leaves none
            devices = [device for device in devices if device != error.device and error.device in devices]
            left = [task for task in plan.tasks if any(o.block not in run.finished for o in task.outputs)]
            blocks = [output.block for task in left for output in task.outputs] if devices else every
            for block in blocks:
                block.of(result)[...] = block.of(before)
            if not devices:
                raise
            plan = replace(plan, tasks=left)


def _run(run: Run, call: Call, plan: Plan, devices: Sequence[int], counts: Counts) -> None:
    """Run the workers of the given devices, of the host's cores among them, until all tasks are done."""
    machine, make = run.machine, _POOLS[run.options.allocation]
    with leaving_nothing(machine, _distinct(call)):
        workers = list[Worker]()
        for device in devices:
            if device == HOST:
                workers.append(CpuWorker(run, counts[HOST]).work())
                continue
            pool = make(machine, device, plan.pool(device), plan.segment, call.problem.dtype)
            run.workers[device] = DeviceWorker(run, device, pool, counts[device])
            workers.append(run.workers[device].work())
        run.go_home({block for task in plan.tasks for block in task.reads()} if call.on_devices else ())
        machine.run(workers)


def _distinct(call: Call) -> list[npt.NDArray[Any]]:
    """The host's matrices that the tasks touch, each once, without empty ones."""
    found = {
        (x.__array_interface__["data"][0], x.shape, x.strides): x
        for name, x in call.on_host.items()
        if x.size and (name == call.problem.result or not call.problem.is_scaling)
    }
    return [*found.values()]
