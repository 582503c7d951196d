"""The last store to what a thread loads, found on the simulator."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from simwarp.engine.events import Observer
from simwarp.faults import KernelFault
from simwarp.lanes import WARP_SIZE
from simwarp.run.both.devices import answer
from simwarp.run.both.instrument import Point
from simwarp.run.work import Work

if TYPE_CHECKING:
    from simwarp.engine.events import AccessEvent


class Where(Protocol):
    """A thread: the number of its block, its warp there, and its lane."""

    @property
    def block(self) -> int:
        """The block's number in the grid."""
        ...

    @property
    def warp(self) -> int:
        """The warp in the block."""
        ...

    @property
    def lane(self) -> int:
        """The lane in the warp."""
        ...


class Stored(NamedTuple):
    """A store: its thread, its instruction, and how often the thread had executed that before."""

    block: int
    warp: int
    lane: int
    line: int
    opcode: str
    ordinal: int


class _Load(Observer):
    """Finds the address of the n-th execution of a load by a thread."""

    def __init__(self, thread: Where, point: Point, nth: int) -> None:
        self.thread, self.nth = thread, nth
        self.line, self.opcode = point.instruction.line, point.instruction.opcode
        self.found: tuple[str, int, int] | None = None  # space, address, bytes

    def on_access(self, event: AccessEvent) -> None:
        """Count the executions, up to the one."""
        address = self.executed(event)
        if address is not None and self.found is None:
            if self.nth == 0:
                self.found = event.space, address, event.width
            self.nth -= 1

    def executed(self, event: AccessEvent) -> int | None:
        """The address that the thread accesses by the instruction in an event; None if it does not."""
        it, thread = event.step.instruction, self.thread
        if (it.line, it.opcode) != (self.line, self.opcode) or event.unit != "lanes":
            return None
        rows, chunk = event.lanes // WARP_SIZE, event.chunk
        mine = (chunk.block[rows, 0] == thread.block) & (chunk.warp_in_block[rows, 0] == thread.warp)
        at = np.flatnonzero(mine & (event.lanes % WARP_SIZE == thread.lane))
        return int(event.addresses[at[0]]) if at.size else None


class _Stores(_Load):
    """Keeps the last store to an address ahead of the n-th execution of a load."""

    def __init__(self, load: _Load, found: tuple[str, int, int], nth: int, point: Point) -> None:
        super().__init__(load.thread, point, nth)
        self.space, self.address, self.width = found
        self.last: Stored | None = None
        self._over = False
        self._times: Counter[tuple[Any, ...]] = Counter()

    def on_access(self, event: AccessEvent) -> None:
        """Note a store to the address, until the load."""
        if self._over:
            return
        if event.kind != "load" and event.unit == "lanes":
            self._note(event)
        if self.executed(event) is not None:
            self._over = self.nth == 0
            self.nth -= 1

    def _note(self, event: AccessEvent) -> None:
        if event.space != self.space:
            return
        chunk, rows, it = event.chunk, event.lanes // WARP_SIZE, event.step.instruction
        blocks, warps = chunk.block[rows, 0], chunk.warp_in_block[rows, 0]
        mine = (blocks == self.thread.block) | (self.space != "shared")
        at = event.addresses.astype(np.int64)
        hit = mine & (at < self.address + self.width) & (at + event.width > self.address)
        lanes = event.lanes % WARP_SIZE
        for i in np.flatnonzero(hit).tolist():
            key = (int(blocks[i]), int(warps[i]), int(lanes[i]), it.line, it.opcode)
            self.last = Stored(*key, self._times[key])
        for key in zip(blocks.tolist(), warps.tolist(), lanes.tolist(), strict=True):
            self._times[*key, it.line, it.opcode] += 1


def last_store(work: Work, make: Callable[..., Any], thread: Where, point: Point, nth: int) -> Stored | None:
    """The last store to what the n-th execution of a load reads, of any thread; None if nothing stored it."""
    load = _Load(thread, point, nth)
    _run(work, make, load)
    if load.found is None or load.found[0] not in ("shared", "global"):
        return None
    stores = _Stores(load, load.found, nth, point)
    _run(work, make, stores)
    return stores.last


def _run(work: Work, make: Callable[..., Any], observer: Observer) -> None:
    """Run the launch on the simulator; its faults are known."""
    with suppress(KernelFault):
        answer(make(checks="report", observers=[observer], stdout=io.StringIO()), work)
