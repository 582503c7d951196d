"""The roofline bound: the minimum time of a run's memory traffic and arithmetic, and the larger of the two.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures" (CACM 2009). Operations of different pipes are assumed to overlap.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from simwarp.chips.chips import Chip, chip
from simwarp.observe.traffic import Traffic

_PIPES = {"i16": ("integer", 0.5), "i32": ("integer", 1.0), "i64": ("integer", 2.0)}
"""The pipe of each integer type, and its cost in 32-bit operations: two 16-bit ones may share one."""


@dataclass(frozen=True)
class Roofline:
    """The minimum time of a run on a chip."""

    chip: str
    bytes_compulsory: int  # distinct bytes of global memory
    bytes_requested: int  # bytes that lanes requested
    pipe: str  # the busiest pipe, such as "f32" or "integer"; "" if nothing was computed
    # operations of that pipe: a multiply-add is 2, a 16-bit integer operation 0.5, a 64-bit one 2
    operations: float
    peak: float  # operations per second of that pipe
    bandwidth: float  # bytes per second of global memory, by the data sheet
    operation_seconds: dict[str, float]  # the minimum time of each pipe
    memory_seconds: float  # time of the compulsory bytes at ``bandwidth``
    copy_seconds: float | None  # time of the compulsory bytes at the measured bandwidth of a copy
    seconds: float  # the larger of the times of pipe and memory: no run on this chip is faster
    binds: str  # the bottleneck: "memory", or the pipe's name

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: operations per byte of compulsory traffic; infinite without bytes."""
        return _per(self.operations, self.bytes_compulsory)

    @property
    def intensity_requested(self) -> float:
        """Operations per requested byte, which is the intensity without caches."""
        return _per(self.operations, self.bytes_requested)

    @property
    def ridge(self) -> float:
        """The intensity at which memory and arithmetic take equal time."""
        return _per(self.peak, self.bandwidth)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data; an infinite intensity is None."""
        derived = {name: getattr(self, name) for name in ("intensity", "intensity_requested", "ridge")}
        finite = {name: None if value == float("inf") else value for name, value in derived.items()}
        return {**asdict(self), **finite}


def roofline(traffic: Traffic, name: str | Chip) -> Roofline:
    """The minimum time of the observed traffic and arithmetic on a chip, a `Chip` or the name of one.

    An H200 moves 4.8 TB/s and computes 66.9 TFLOP/s in f32:

    >>> traffic = Traffic()
    >>> traffic.operations["f32"] = 1_000_000
    >>> bound = roofline(traffic, "H200")
    >>> bound.binds, f"{bound.seconds:.3g}", f"{bound.ridge:.1f}", bound.intensity
    ('f32', '1.49e-08', '13.9', inf)
    """
    one = chip(name)
    work: dict[str, float] = {}
    for kind, count in traffic.operations.items():
        pipe, weight = _PIPES.get(kind, (kind, 1.0))
        work[pipe] = work.get(pipe, 0.0) + weight * count
    seconds = {pipe: count / one.peak(pipe) for pipe, count in work.items()}
    pipe = max(seconds, key=lambda pipe: seconds[pipe], default="")
    moved = traffic.compulsory
    computing, moving = seconds.get(pipe, 0.0), moved / one.bandwidth
    return Roofline(
        chip=one.name,
        bytes_compulsory=moved,
        bytes_requested=traffic.requested,
        pipe=pipe,
        operations=work.get(pipe, 0.0),
        peak=one.peak(pipe) if pipe else 0.0,
        bandwidth=one.bandwidth,
        operation_seconds=seconds,
        memory_seconds=moving,
        copy_seconds=None if one.copy_bandwidth is None else moved / one.copy_bandwidth,
        seconds=max(computing, moving),
        binds="memory" if moving >= computing else pipe,
    )


def _per(value: float, unit: float) -> float:
    return value / unit if unit else float("inf") if value else 0.0
