"""The roofline bound: the minimum time of a run's memory traffic and arithmetic, and which one binds.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures" (CACM 2009). Operations of different types overlap here, as they do in different pipes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from simwarp.chips.chips import Chip, chip
from simwarp.observe.traffic import Traffic

_PIPES = {"i16": ("integer", 0.5), "i32": ("integer", 1.0), "i64": ("integer", 2.0)}
"""Two 16-bit operations may share an instruction; one of 64 bits takes two at least."""


@dataclass(frozen=True)
class Roofline:
    """The bounds of a run on a chip.

    Attributes
    ----------
    chip : str
    bytes_compulsory, bytes_requested : int
        Of global memory: distinct bytes, and bytes that lanes asked for.
    pipe : str
        The one that is busy longest: "f32", "integer" …; "" if nothing was computed.
    operations : float
        Of that pipe, a multiply-add as two; 16- and 64-bit integers as parts or multiples of 32-bit ones.
    peak, bandwidth : float
        What the chip does of these per second, and the bytes it moves per second.
    operation_seconds : dict of str to float
        For each pipe.
    memory_seconds : float
        For the compulsory bytes, at the bandwidth of the data sheet.
    copy_seconds : float or None
        For the same, as fast as a copy was measured to be.
    seconds : float
        The larger of the two: no run on this chip is faster.
    binds : str
        "memory", or the pipe.
    """

    chip: str
    bytes_compulsory: int
    bytes_requested: int
    pipe: str
    operations: float
    peak: float
    bandwidth: float
    operation_seconds: dict[str, float]
    memory_seconds: float
    copy_seconds: float | None
    seconds: float
    binds: str

    @property
    def intensity(self) -> float:
        """Operations per compulsory byte; infinite if none is moved."""
        return _per(self.operations, self.bytes_compulsory)

    @property
    def intensity_requested(self) -> float:
        """Operations per requested byte: the intensity without caches."""
        return _per(self.operations, self.bytes_requested)

    @property
    def ridge(self) -> float:
        """The intensity at which memory and compute take the same time."""
        return _per(self.peak, self.bandwidth)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data; an infinite intensity is None."""
        derived = {
            "intensity": self.intensity,
            "intensity_requested": self.intensity_requested,
            "ridge": self.ridge,
        }
        finite = {name: None if value == float("inf") else value for name, value in derived.items()}
        return {**asdict(self), **finite}


def roofline(traffic: Traffic, name: str | Chip) -> Roofline:
    """The bounds of the observed traffic on a chip.

    Parameters
    ----------
    traffic : Traffic
    name : str or Chip
        See `simwarp.chips.chips.chip`.

    Raises
    ------
    SchemeError
        For an unknown chip.

    Examples
    --------
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
