"""Runs of a network on tensors of torch and arrays of CuPy, in their stream and in memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu.bnn.pieces import MOST_KEPT
from gpu.device import Array, Device, planned
from gpu.host import in_stream
from gpu.recording import ONCE, Call, call_of, play, recorded_graph
from reference.errors import CaptureError
from reference.types.network import Answer


class Tensors:
    """Runs a network on images of other libraries; the third run of a kind is recorded.

    ``checked`` refuses images that do not fit. ``heed`` says whether kernels report some numbers in images of
    a kind, and lets the next synchronisation look for them in some.
    """

    def __init__(
        self,
        device: Device,
        run: Callable[[Array], Answer],
        checked: Callable[[Any], Array],
        heed: Callable[[Any], bool],
    ) -> None:
        self._device, self._run, self._checked, self._heed = device, run, checked, heed
        self._calls: dict[Any, Any] = {}
        self._strange: set[Any] = set()
        """The kinds of calls in whose images kernels report numbers."""

    def run(self, images: Any) -> Answer:
        """The answer for images on the device, in arrays that no other run writes."""
        call = call_of((), (images,), self._device, None)
        answer = play(call, self._calls)
        if call is None or answer is None:
            return self._first(images, call)
        if self._strange and call.key in self._strange:
            self._heed(self._device.adopt(images))
        return answer

    def _first(self, images: Any, call: Call | None) -> Answer:
        """The answer for images whose run is not recorded yet; its launches are in the default stream."""
        there: Any = in_stream(self._device, None, images)
        array = self._checked(there.adopt(images))
        if self._heed(array) and call is not None:
            self._strange.add(call.key)
        if self._device.capturing:
            return self._run(array)
        if there.capturing:
            raise CaptureError(
                "a network runs in a capture of torch's\nits launches are in the default stream\n"
                "capture with capture() of its device, or replay without it: a run is one graph"
            )
        beside = there.queue != 0
        if beside:
            there.before_default()
        answer = self._captured(array, call) if call is not None else self._run(array)
        if beside:
            there.after_default()
        return answer

    def _captured(self, images: Array, call: Call) -> Answer:
        """Run, the second time of a kind as a graph, which is recorded for the third."""
        if self._calls.get(call.key) is not ONCE:
            planned(self._calls, call.key, lambda: ONCE, MOST_KEPT)
            return self._run(images)
        with self._device.capture() as graph:
            answer = self._run(images)
        recorded = recorded_graph(graph, call, images, answer, Answer)
        if recorded is not None:
            self._calls[call.key] = recorded
        graph.launch()
        return answer
