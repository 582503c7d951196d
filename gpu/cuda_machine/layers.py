"""Convolutions by cuDNN on the queues of a machine: handles, and the engine of each convolution."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any

from gpu.cuda_machine.convolutions import Addresses, Convolution, Engine, Engines
from gpu.cuda_machine.cublas import RoutineError
from gpu.cuda_machine.cudnn import Cudnn
from gpu.cuda_machine.driver import DriverStream
from gpu.cuda_machine.memory import Place

_TRIED, _TRIED_PLAIN = 8, 24
"""Engines timed for a convolution; more for float32 without TF32, whose lists put slow ones first."""
_MUCH_SLOWER, _LONG = 3, 0.5e-3
"""If the fastest engine takes more than _LONG seconds, so that launches do not matter, engines that take
_MUCH_SLOWER times as long are slow with any number of images and rows."""
_HOPELESS, _LOADING = 2, 0.02
"""An engine whose first run takes more than this multiple of the least time, plus seconds, runs once."""
_STEADY = 2e-3
"""Seconds from which times of runs differ little."""


class Layers:
    """The engines of cuDNN and its handles of a machine; ``synchronize`` waits for a queue's work.

    An engine is chosen once for each device, convolution and size of the workspace, and stays until the
    machine is closed, so that a machine repeats its results bit by bit.
    """

    def __init__(self, library: Any, synchronize: Callable[[DriverStream], None]) -> None:
        self.cudnn, self._synchronize = Cudnn(library), synchronize
        self._handles: dict[int, int] = {}
        self._engines: dict[tuple[int, Convolution, int], Engine] = {}
        self._graphs: list[tuple[int, Engines]] = []
        self._slow: dict[tuple[int, Hashable], set[int]] = {}
        """The numbers of engines that were much slower than the fastest on some images or rows."""

    def choose(self, queue: DriverStream, of: Convolution, addresses: Addresses, workspace: Place) -> None:
        """Time the engines for a convolution on memory that they may overwrite, and keep the fastest.

        Engines that were much slower with another number of images or rows are not timed again.
        """
        least, times = math.inf, dict[int, float]()

        def seconds(engine: Engine) -> float:
            nonlocal least
            try:
                taken = self._seconds(queue, engine, addresses, workspace.address, least)
            except RoutineError:  # one that refuses to run is the last choice
                return math.inf
            least = min(least, taken)
            times[engine.number] = min(taken, times.get(engine.number, taken))
            return taken

        self._engine(queue, of, workspace.pitch, seconds)
        if least > _LONG:
            slow = self._slow.setdefault((queue.device, of.alike), set())
            slow.update(number for number, time in times.items() if time > _MUCH_SLOWER * least)

    def convolve(self, queue: DriverStream, of: Convolution, addresses: Addresses, workspace: Place) -> None:
        """Queue a convolution with the engine of `choose`, else the first of cuDNN's heuristic.

        ``workspace`` is an address and a size in bytes. RoutineError if cuDNN has no engine.
        """
        engine = self._engine(queue, of, workspace.pitch, None)
        engine.queue(self._handle(queue), queue.device, addresses, workspace.address)

    def close(self, release: Callable[..., None]) -> None:
        """Destroy everything; ``release`` makes a call of a device and keeps its error."""
        self._engines.clear()
        while self._graphs:
            device, graph = self._graphs.pop()
            release(device, graph.close)
        while self._handles:
            device, handle = self._handles.popitem()
            release(device, self.cudnn.destroy, handle, device)

    def _handle(self, queue: DriverStream) -> int:
        """The handle of a queue's device, whose context is current, for the queue's stream."""
        device = queue.device
        if device not in self._handles:
            self._handles[device] = self.cudnn.create(device)
        handle = self._handles[device]
        self.cudnn.call("cudnnSetStream", handle, int(queue.stream), device=device)
        return handle

    def _engine(
        self, queue: DriverStream, of: Convolution, workspace: int, seconds: Callable[[Engine], float] | None
    ) -> Engine:
        """The kept engine for a convolution; else keep the fastest by ``seconds``, or the first."""
        key = queue.device, of, workspace
        if key not in self._engines:
            graph = Engines(self.cudnn, self._handle(queue), of, workspace)
            self._graphs.append((queue.device, graph))
            slow = self._slow.get((queue.device, of.alike), ()) if seconds else ()
            most = (_TRIED_PLAIN if of.is_plain else _TRIED) if seconds else 1
            found = list(islice(graph.found(slow), most)) or list(islice(graph.found(), most))
            if not found:
                raise _no_engine(of, queue.device, workspace)
            best = min(found, key=seconds) if seconds and len(found) > 1 else found[0]
            graph.keep(best)
            self._engines[key] = best
        return self._engines[key]

    def _seconds(
        self, queue: DriverStream, engine: Engine, addresses: Addresses, workspace: int, least: float
    ) -> float:
        """Time an engine behind its first run, which loads it: the lesser of two runs if they are short.

        A first run far slower than ``least`` counts itself: the engine is not run again.
        """
        handle = self._handle(queue)

        def run() -> float:
            start = time.perf_counter()
            engine.queue(handle, queue.device, addresses, workspace)
            self._synchronize(queue)
            return time.perf_counter() - start

        first = run()
        if first > _HOPELESS * least + _LOADING:
            return first
        found = run()
        return found if found > _STEADY else min(found, run())


def _no_engine(of: Convolution, device: int, workspace: int) -> RoutineError:
    """The error for a convolution that no engine computes."""
    math = " in TF32" if of.tf32 else ""
    return RoutineError(
        f"{of.routine} of {of.dtype}{math} on device {device}: images {of.x.sizes}, filters {of.w.sizes},"
        f" padding {of.before} before and {of.after} behind, stride {of.stride}, dilation {of.dilation}",
        f"cuDNN has no engine for it that is deterministic and works in {workspace} bytes",
        "give more workspace (Options), other pieces, or the other layout",
        routine=of.routine,
        status="CUDNN_STATUS_NOT_SUPPORTED",
        device=device,
    )
