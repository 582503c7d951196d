"""CUDA graphs, and launches that are captured into one instead of being made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from gpu.cuda.driver import bindings, checked, refuse
from gpu.finalizers import when_gone
from reference.errors import CaptureError

GRAPH = "a graph of kernels"


class CudaGraph:
    """Launches that the driver makes together, in their order.

    >>> from gpu import CudaDevice
    >>> device = CudaDevice()                                         # doctest: +SKIP
    >>> with device.capture() as graph:                               # doctest: +SKIP
    ...     kernel(4, 128, x)
    >>> graph.launch()                                                # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._executable: Any = None
        self._launches: list[Callable[[], None]] = []
        self._kept: list[Any] = []
        self.plans: list[tuple[Any, tuple[Any, ...]]] | None = []
        """The plan of each launch, and its arrays; None if a launch is not of a plan."""

    @property
    def executable(self) -> Any:
        """The driver's executable graph."""
        if self._executable is None:
            raise CaptureError(
                "launch of a graph whose capture has not ended\n"
                "its launches are known behind the with block\nlaunch it there"
            )
        return self._executable

    def launch(self, stream: Any = None) -> None:
        """Make all launches again, with the same arguments, and return at once."""
        executable, queue = self.executable, 0
        if CAPTURES.graph is not None:
            queue_of_capture(stream)
            for launch in self._launches:  # the driver captures no launch of a graph
                launch()
            return
        if stream is not None:
            queue = stream.handle
            self.hold()
        (status,) = bindings.cuGraphLaunch(executable, queue)
        if status:
            refuse(GRAPH, status)

    def keep(self, launch: Callable[[], None], values: Iterable[Any], plans: Any = None) -> None:
        """Keep a launch, to make it again in another capture, and the arrays among some values alive.

        ``plans`` has the plans of its kernels, with their arrays.
        """
        self._launches.append(launch)
        self.plans = None if plans is None or self.plans is None else [*self.plans, *plans]
        self._kept += [value for value in values if hasattr(value, "hold")]

    def hold(self) -> None:
        """Keep the memory of the graph's arrays until the next synchronisation."""
        for value in self._kept:
            value.hold()

    def instantiate(self, graph: Any) -> Any:
        """Make the driver's graph launchable; returns the executable. Both are destroyed with this object."""
        self._executable = checked(GRAPH, bindings.cuGraphInstantiate(graph, 0))
        when_gone(self, bindings.cuGraphDestroy, graph)
        when_gone(self, bindings.cuGraphExecDestroy, self._executable)
        return self._executable


class _Captures(threading.local):
    """The capture that each thread has under way."""

    graph: CudaGraph | None = None  # receives the thread's launches
    queue: Any = 0  # the captured CUstream


CAPTURES = _Captures()


@contextmanager
def capture() -> Generator[CudaGraph]:
    """Capture the launches of a ``with`` block, by the driver's capture of a stream."""
    refuse_in_capture("a capture")
    graph = CudaGraph()
    queue = checked(GRAPH, bindings.cuStreamCreate(bindings.CUstream_flags.CU_STREAM_NON_BLOCKING))
    try:
        mode = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED  # the block may load and allocate
        checked(GRAPH, bindings.cuStreamBeginCapture(queue, mode))
        CAPTURES.graph, CAPTURES.queue = graph, queue
        try:
            yield graph
        except BaseException:
            _, captured = bindings.cuStreamEndCapture(queue)
            bindings.cuGraphDestroy(captured)
            raise
        finally:
            CAPTURES.graph = None
        graph.instantiate(checked(GRAPH, bindings.cuStreamEndCapture(queue)))
    finally:
        bindings.cuStreamDestroy(queue)


def queue_of_capture(stream: Any) -> Any:
    """The stream of the thread's capture; refuses a launch that names a stream itself."""
    if stream is not None:
        refuse_in_capture("a launch in a stream")
    return CAPTURES.queue


def refuse_in_capture(what: str) -> None:
    """Raise `CaptureError` if the thread captures launches."""
    if CAPTURES.graph is not None:
        raise CaptureError(
            f"{what} in a capture\nonly launches are captured, in one stream\ndo it outside the with block"
        )
