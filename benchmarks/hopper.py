"""Timing on a GPU: many launches in one CUDA graph, so that the host's speed has no influence.

Protocol: the launches of one sample follow one another in a graph; events before and after it; the
median over samples, after warm-up, with a pause between samples in which the chip's clock recovers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from gpu.cuda.driver import bindings, checked

_WHAT = "a graph that is timed"


def seconds(
    device: Any,
    launch: Callable[[Any], None],
    *,
    inner: int = 20,
    samples: int = 15,
    gap: float = 0.01,
    warm: int = 1,
) -> float:
    """The median time of one launch, which is called with the stream to launch on.

    ``inner`` launches make a sample; the chip is idle for ``gap`` seconds before each sample; the first
    ``warm`` samples do not count.
    """
    stream = device.stream()
    for _ in range(3):
        launch(stream)
    stream.synchronize()
    mode = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    checked(_WHAT, bindings.cuStreamBeginCapture(stream.handle, mode))
    for _ in range(inner):
        launch(stream)
    graph = checked(_WHAT, bindings.cuStreamEndCapture(stream.handle))
    executable = checked(_WHAT, bindings.cuGraphInstantiate(graph, 0))
    times: list[float] = []
    for _ in range(warm + samples):
        start, end = device.event(), device.event()
        start.record(stream)
        checked(_WHAT, bindings.cuGraphLaunch(executable, stream.handle))
        end.record(stream)
        end.synchronize()
        times.append(end.seconds_since(start) / inner)
        time.sleep(gap)
    return statistics.median(times[warm:])
