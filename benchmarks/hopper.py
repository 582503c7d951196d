"""Timing on a GPU: many launches in one CUDA graph, so that the host's speed has no influence.

Protocol: the launches of one sample follow one another in a graph; events before and after it; the
median over samples, after warm-up, with a pause between samples in which the chip's clock recovers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver


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
    _check(
        driver.cuStreamBeginCapture(stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    )
    for _ in range(inner):
        launch(stream)
    graph = _check(driver.cuStreamEndCapture(stream.handle))
    executable = _check(driver.cuGraphInstantiate(graph, 0))
    times: list[float] = []
    for _ in range(warm + samples):
        start, end = device.event(), device.event()
        start.record(stream)
        _check(driver.cuGraphLaunch(executable, stream.handle))
        end.record(stream)
        end.synchronize()
        times.append(end.seconds_since(start) / inner)
        time.sleep(gap)
    return statistics.median(times[warm:])


def _check(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA: {status.name}")
    return values[0] if values else None
