"""Faults planted in one place of `gpu.blas3`, each found by its type; without it the same seeds find nothing.

The matrices have a few tiles and the memory holds the operands of one step for each stream, so that a wrong
reader, eviction or event has a victim. A fault of the protocol has a typed error. One that only changes the
order or the number of computations has a result outside the bound of `reference.blas3.error_of`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gpu.blas3 import plan as plans
from gpu.blas3 import products
from gpu.blas3 import run as runs
from gpu.blas3.cache import TileCache
from gpu.blas3.directory import Directory
from gpu.blas3.execute import execute
from gpu.blas3.options import Options
from gpu.blas3.plan import plan_of
from gpu.blas3.policy_error import PolicyError
from gpu.blas3.pools import HeapPool, NativePool
from gpu.blas3.stations import Stations
from gpu.blas3.tasks import Output, Task
from gpu.blas3.worker import DeviceWorker
from reference.errors import LaunchError
from simwarp.machine import (
    EVEREST,
    FreedMemoryError,
    H200x2,
    H200x4,
    Machine,
    MachineError,
    MemoryInUseError,
    TileRaceError,
    Topology,
    UnpinnedError,
    UnwrittenTileError,
    WorkerDeadlockError,
)
from support.blas3_calls import Drawn, judged, product

Patch = pytest.MonkeyPatch
TILE = 8


class WrongResultError(Exception):
    """A result outside the bound."""


def square() -> Drawn:
    return product(4 * TILE)


def triangular(routine: str) -> Drawn:
    rng = np.random.default_rng(3)
    a = np.asfortranarray(rng.standard_normal((40, 40)) + 40 * np.eye(40))
    b = np.asfortranarray(rng.standard_normal((40, 2 * TILE)))
    return Drawn(routine, 1.5, 0.0, {"uplo": "U", "trans_a": "N"}, {"a": a, "b": b})


def solution() -> Drawn:
    return triangular("dtrsm")


def in_place_product() -> Drawn:
    return triangular("dtrmm")


DEEP = {"ahead": 4, "station": 8}
"""More is queued and stolen than by default."""


@dataclass(frozen=True)
class World:
    """A call, its devices and options, and the least memory or a multiple of it."""

    make: Callable[[], Drawn] = square
    topology: Topology = H200x2
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    times: int = 1
    seeds: int = 5

    @property
    def name(self) -> str:
        """For the names of tests."""
        gpus = self.topology.gpus
        return "-".join(map(str, (self.make.__name__, f"{len(gpus)}x{gpus[0].name}", *self.options.values())))

    def run(self, seed: int) -> None:
        drawn, options = self.make(), Options(**DEEP | self.options)
        before = {name: x.copy() for name, x in drawn.matrices.items()}
        call, machine = drawn.call(), Machine(self.topology, seed=seed, jitter=20.0)
        needed = plan_of(call.problem, TILE, [1 << 30] * machine.devices, options).needed
        execute(call, machine, TILE, needed * self.times, options, None)
        error = judged(drawn, before, drawn.matrices[drawn.result])
        if not error <= 1:
            raise WrongResultError(f"{error} of the bound")

    def found(self) -> list[Exception]:
        """The error of each seed that has one."""
        errors: list[Exception] = []
        for seed in range(self.seeds):
            try:
                self.run(seed)
            except (MachineError, PolicyError, LaunchError, WrongResultError) as error:
                errors.append(error)
        return errors


# ------------------------------------------------------------------------------------------ the faults


def peer_copy_without_reader(patch: Patch) -> None:
    """The source of a peer copy is released when the copy is queued."""
    copy_from = DeviceWorker._copy_from

    def wrong(self: Any, peer: Any, *rest: Any) -> None:
        copy_from(self, peer, *rest)
        peer.cache.release(peer.loans.pop()[0])

    patch.setattr(DeviceWorker, "_copy_from", wrong)


def release_before_the_event(patch: Patch) -> None:
    """A device without room releases and evicts the tiles of queued steps before the steps end."""
    make_room = DeviceWorker._make_room

    def wrong(self: Any) -> Any:
        is_used = any(pending.held or pending.buffers for pending in self._pending)
        for pending in self._pending:
            self._retire(pending)
            pending.held, pending.buffers, pending.written = [], [], []
        if not is_used:
            yield from make_room(self)

    patch.setattr(DeviceWorker, "_make_room", wrong)


def eviction_despite_readers(patch: Patch) -> None:
    """The least recently used tile is evicted although it has readers."""

    def wrong(self: Any) -> Any:
        for key, entry in self._entries.items():
            entry.readers = 0
            self.drop(key)
            return key
        return None

    patch.setattr(TileCache, "evict", wrong)


def copies_kept_by_a_write(patch: Patch) -> None:
    """A write clears the holders, and no device drops its copy."""
    write = Directory.write

    def wrong(self: Any, key: Any, device: int) -> frozenset[int]:
        write(self, key, device)
        return frozenset()

    patch.setattr(Directory, "write", wrong)


def write_back_beside_the_step(patch: Patch) -> None:
    """The write-back is queued in another stream, which does not wait for the last step."""
    write_back = DeviceWorker._write_back

    def wrong(self: Any, lane: Any, output: Any, pending: Any) -> None:
        own, lane.stream = lane.stream, next(each.stream for each in self._lanes if each is not lane)
        write_back(self, lane, output, pending)
        lane.stream = own

    patch.setattr(DeviceWorker, "_write_back", wrong)


def end_before_the_write_back(patch: Patch) -> None:
    """The end of the last step counts as the end of its write-back."""
    write_back = DeviceWorker._write_back

    def wrong(self: Any, lane: Any, output: Any, pending: Any) -> None:
        end = pending.end
        write_back(self, lane, output, pending)
        pending.end = end

    patch.setattr(DeviceWorker, "_write_back", wrong)


def outputs_in_reverse(patch: Patch) -> None:
    """The tiles of a task are computed from the other end."""
    taskize = plans.taskize
    patch.setattr(
        plans,
        "taskize",
        lambda *given, **late: [Task(task.number, task.outputs[::-1]) for task in taskize(*given, **late)],
    )


def double_free(patch: Patch) -> None:
    """A segment of the heap is freed twice."""
    free = HeapPool.free

    def wrong(self: Any, tile: Any) -> None:
        free(self, tile)
        free(self, tile)

    patch.setattr(HeapPool, "free", wrong)


def double_free_of_memory(patch: Patch) -> None:
    """An allocation of the machine is freed twice."""
    free = NativePool.free

    def wrong(self: Any, tile: Any) -> None:
        free(self, tile)
        self._machine.free(tile.memory)

    patch.setattr(NativePool, "free", wrong)


def double_release(patch: Patch) -> None:
    """The tiles of a step are released twice."""
    retire = DeviceWorker._retire

    def wrong(self: Any, pending: Any) -> None:
        retire(self, pending)
        retire(self, dataclasses.replace(pending, buffers=[], written=[]))

    patch.setattr(DeviceWorker, "_retire", wrong)


def beta_twice(patch: Patch) -> None:
    """The second step applies beta again."""
    with_beta = products._with_beta

    def wrong(problem: Any, *given: Any) -> Iterator[products.Step]:
        first, second, *rest = with_beta(problem, *given)
        again = dataclasses.replace(second.kernel, beta=problem.beta)
        return iter((first, products.Step(again, second.reads), *rest))

    patch.setattr(products, "_with_beta", wrong)


def stolen_task_lost(patch: Patch) -> None:
    """A stolen task leaves its station and reaches no other."""
    fill = Stations.fill

    def wrong(self: Any, device: int) -> int:
        if stolen := fill(self, device):
            self._stations[device].clear()
        return stolen

    patch.setattr(Stations, "fill", wrong)


def stolen_task_kept(patch: Patch) -> None:
    """A stolen task stays in its station as well."""
    fill = Stations.fill

    def wrong(self: Any, device: int) -> int:
        before = [[*station] for station in self._stations]
        if stolen := fill(self, device):
            victim = next(i for i, old in enumerate(before) if len(self._stations[i]) < len(old))
            self._stations[victim][:] = before[victim]
        return stolen

    patch.setattr(Stations, "fill", wrong)


def hit_without_wait(patch: Patch) -> None:
    """A stream reads a tile that another stream of its device fills, and does not wait for it."""
    wait = Machine.wait

    def wrong(self: Any, stream: Any, event: Any) -> None:
        if event.stream.device != stream.device:
            wait(self, stream, event)

    patch.setattr(Machine, "wait", wrong)


def loan_kept(patch: Patch) -> None:
    """A tile that a peer copied keeps the reader of the copy."""
    copy_from = DeviceWorker._copy_from

    def wrong(self: Any, peer: Any, *rest: Any) -> None:
        copy_from(self, peer, *rest)
        peer.loans[-1][0].readers += 1

    patch.setattr(DeviceWorker, "_copy_from", wrong)


def loan_not_returned(patch: Patch) -> None:
    """A device waits for the copies of its peers, and does not release their tiles when they have ended."""
    settle = DeviceWorker._settle

    def wrong(self: Any) -> bool:
        loans, self.loans = self.loans, []
        try:
            return settle(self)
        finally:
            self.loans = loans

    patch.setattr(DeviceWorker, "_settle", wrong)


def result_not_loaded(patch: Patch) -> None:
    """The old C is not copied to the device, and the first step reads it."""
    patch.setattr(Output, "is_loaded", False)


def operands_not_pinned(patch: Patch) -> None:
    """Only the result is pinned."""
    patch.setattr(runs, "_distinct", lambda call: [call.matrices[call.problem.result]])


# -------------------------------------------------------------------------------------------- the tests

PAIR = World()
PAPER = World(topology=EVEREST)
NATIVE = World(options={"allocation": "native", "streams": 2})
EARLY = World(options={"addend": "first"})
ONE_STREAM = World(topology=H200x4, options={"streams": 1, "station": 2})
SOLUTION = World(make=solution)
IN_PLACE = World(make=in_place_product, times=2)

CASES = [
    (peer_copy_without_reader, PAIR, TileRaceError, "copy peer"),
    (peer_copy_without_reader, PAPER, TileRaceError, "copy peer"),
    (peer_copy_without_reader, ONE_STREAM, TileRaceError, "copy peer"),
    (peer_copy_without_reader, NATIVE, MemoryInUseError, "copy peer"),
    (release_before_the_event, PAIR, TileRaceError, "writes tile"),
    (release_before_the_event, PAPER, TileRaceError, "writes tile"),
    (release_before_the_event, NATIVE, MemoryInUseError, "has not waited"),
    (eviction_despite_readers, PAIR, PolicyError, "it has no reader"),
    (eviction_despite_readers, SOLUTION, (PolicyError, TileRaceError), ""),
    (eviction_despite_readers, NATIVE, MemoryInUseError, "has not waited"),
    (copies_kept_by_a_write, IN_PLACE, PolicyError, "it has no copy"),
    (write_back_beside_the_step, PAIR, TileRaceError, "copy out"),
    (write_back_beside_the_step, PAPER, TileRaceError, "copy out"),
    (end_before_the_write_back, PAIR, TileRaceError, "copy out"),
    (end_before_the_write_back, PAPER, TileRaceError, "copy out"),
    (end_before_the_write_back, NATIVE, MemoryInUseError, "copy out"),
    (outputs_in_reverse, SOLUTION, WrongResultError, ""),
    (outputs_in_reverse, IN_PLACE, WrongResultError, ""),
    (double_free, PAIR, PolicyError, "device heap is freed"),
    (double_free, SOLUTION, PolicyError, "device heap is freed"),
    (double_free_of_memory, NATIVE, FreedMemoryError, "it is freed already"),
    (double_release, PAIR, PolicyError, "it has no reader"),
    (beta_twice, PAIR, WrongResultError, ""),
    (beta_twice, PAPER, WrongResultError, ""),
    (stolen_task_lost, PAIR, WrongResultError, ""),
    (stolen_task_lost, PAPER, WrongResultError, ""),
    (stolen_task_lost, SOLUTION, WrongResultError, ""),
    (stolen_task_kept, PAPER, (TileRaceError, PolicyError), ""),
    (stolen_task_kept, SOLUTION, (TileRaceError, PolicyError, WrongResultError), ""),
    (hit_without_wait, PAIR, TileRaceError, "copy"),
    (loan_kept, PAIR, LaunchError, "no room"),
    (loan_not_returned, PAIR, WorkerDeadlockError, "polls"),
    (result_not_loaded, EARLY, UnwrittenTileError, "dgemm"),
    (operands_not_pinned, PAIR, UnpinnedError, "the source"),
]
"""The fault, where it is planted, the errors that find it, and what their messages contain."""
NAMES = [f"{plant.__name__}-{world.name}" for plant, world, *_ in CASES]
BY_TIMING = (loan_kept, loan_not_returned)
"""A device has room enough with some seeds."""


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    "world", [PAIR, PAPER, NATIVE, EARLY, ONE_STREAM, SOLUTION, IN_PLACE], ids=lambda w: w.name
)
def test_the_same_seeds_without_a_fault_find_nothing(world: World) -> None:
    assert world.found() == []


@pytest.mark.at_most(14)
@pytest.mark.parametrize(("plant", "world", "kinds", "text"), CASES, ids=NAMES)
def test_a_planted_fault_is_found(
    plant: Any, world: World, kinds: Any, text: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    found = world.found()
    assert len(found) >= (1 if plant in BY_TIMING else world.seeds), "some seeds find nothing"
    for error in found:
        assert isinstance(error, kinds), error
        assert text in str(error)
