"""A machine without a clock: a seed picks which stream runs its next operation, or which worker goes on."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu.machine import HOST, CpuRoutine, Routine, Tile, Worker


class InjectedError(Exception):
    pass


@dataclass(eq=False)
class Bytes:
    device: int
    nbytes: int
    data: Any


@dataclass(eq=False)
class Happening:
    done: bool = False


@dataclass(eq=False)
class Queue:
    device: int
    work: deque[tuple[Happening | None, Callable[[], None]]] = field(default_factory=deque)

    @property
    def is_ready(self) -> bool:
        return bool(self.work) and (self.work[0][0] is None or self.work[0][0].done)


class ShuffledMachine:
    """Fresh memory holds 0xFF bytes, NaN in every dtype; operation number ``fail_at`` raises."""

    def __init__(
        self, devices: int = 1, seed: int = 0, budget: int = 1 << 30, peers: bool = True, fail_at: int = -1
    ) -> None:
        self.devices, self.peers, self.fail_at = devices, peers, fail_at
        self.draw = random.Random(seed)
        self.budgets = [budget] * devices
        self.queues: list[Queue] = []
        self.cpu: Queue | None = None
        self.live: dict[int, Bytes] = {}
        self.pinned: dict[int, int] = {}
        self.count = 0

    def budget(self, device: int) -> int:
        return self.budgets[device]

    def reaches(self, device: int, peer: int) -> bool:
        return self.peers and device != peer

    def allocate(self, device: int, nbytes: int) -> Bytes:
        assert nbytes <= self.budgets[device]
        self.budgets[device] -= nbytes
        memory = Bytes(device, nbytes, np.full(nbytes, 0xFF, np.uint8))
        self.live[id(memory)] = memory
        return memory

    def free(self, memory: Any) -> None:
        del self.live[id(memory)]
        self.budgets[memory.device] += memory.nbytes
        memory.data[:] = 0xFF

    def allocated(self, device: int) -> list[Bytes]:
        return [memory for memory in self.live.values() if memory.device == device]

    def pins(self, array: Any) -> int:
        return self.pinned.get(id(array), 0)

    def pin(self, array: Any) -> None:
        self.pinned[id(array)] = self.pinned.get(id(array), 0) + 1

    def unpin(self, array: Any) -> None:
        self.pinned[id(array)] -= 1
        if not self.pinned[id(array)]:
            del self.pinned[id(array)]

    def stream(self, device: int) -> Queue:
        self.queues.append(Queue(device))
        return self.queues[-1]

    def copy_in(self, stream: Any, source: Any, target: Tile) -> None:
        assert target.memory.device == stream.device
        self.add(stream, lambda: np.copyto(view(target), source))

    def copy_out(self, stream: Any, source: Tile, target: Any) -> None:
        assert source.memory.device == stream.device
        self.add(stream, lambda: np.copyto(target, view(source)))

    def copy_peer(self, stream: Any, source: Tile, target: Tile) -> None:
        assert self.reaches(stream.device, source.memory.device)
        assert target.memory.device == stream.device
        self.add(stream, lambda: np.copyto(view(target), view(source)))

    def launch(self, stream: Any, routine: Routine) -> None:
        assert {tile.memory.device for tile in (*routine.reads, *routine.writes)} == {stream.device}
        self.add(
            stream,
            lambda: routine.compute([view(x) for x in routine.reads], [view(x) for x in routine.writes]),
        )

    has_cpu = True

    def compute(self, routine: CpuRoutine) -> Happening:
        if self.cpu is None:
            self.cpu = self.stream(HOST)
        self.add(self.cpu, routine.compute)
        return self.record(self.cpu)

    def record(self, stream: Any) -> Happening:
        event = Happening()
        stream.work.append((None, lambda: setattr(event, "done", True)))
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.work.append((event, lambda: None))

    def add(self, stream: Queue, work: Callable[[], None]) -> None:
        self.count += 1
        if self.count == self.fail_at:
            stream.work.append((None, fail))
        stream.work.append((None, work))

    def run(self, workers: Sequence[Worker]) -> None:
        waiting: list[tuple[Worker, Any]] = [(worker, Happening(True)) for worker in workers]
        try:
            while True:
                ready: list[Any] = [queue for queue in self.queues if queue.is_ready]
                ready += [each for each in waiting if each[1].done]
                if not ready:
                    break
                chosen = self.draw.choice(ready)
                if isinstance(chosen, Queue):
                    chosen.work.popleft()[1]()
                    continue
                waiting.remove(chosen)
                event = next(chosen[0], None)
                if event is not None:
                    waiting.append((chosen[0], event))
            assert not waiting, "deadlock"
            assert not any(queue.work for queue in self.queues), "deadlock"
        finally:
            self.queues.clear()
            self.cpu = None

    def seconds(self) -> float:
        return 0.0


def fail() -> None:
    raise InjectedError("planted")


def view(tile: Tile) -> Any:
    """The array of a tile."""
    data: Any = tile.memory
    return np.ndarray(
        tile.shape,
        tile.dtype,
        data.data,
        tile.offset,
        (tile.dtype.itemsize, tile.stride * tile.dtype.itemsize),
    )
