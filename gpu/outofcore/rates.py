"""The speeds of a device: the constants of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.machine import Machine
from gpu.outofcore.problem import FLOAT
from reference.errors import LaunchError


@dataclass(frozen=True)
class Rates:
    """The constants of copies and routines: alpha + bytes / bandwidth, and alpha + operations / rate.

    Attributes
    ----------
    in_seconds, in_bytes_per_second : float
        Of a copy to the device.
    out_seconds, out_bytes_per_second : float
        Of a copy to the host.
    launch_seconds, operations_per_second : float
        Of a routine on the dtype of the call.
    both_bytes_per_second : float
        Of copies in both directions at once, in sum; each has half of it, or its own bandwidth if that is
        less. Default: they do not slow each other.
    column_seconds : float
        Of a copy, for each of its columns of contiguous elements, beside their bytes. Default: none.
    filters_step : int
        `conv2d` takes as long as with the next multiple of it as filters (of a group).

    Examples
    --------
    >>> Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13).into(nbytes=50_000, copies=2)
    3e-06
    """

    in_seconds: float
    in_bytes_per_second: float
    out_seconds: float
    out_bytes_per_second: float
    launch_seconds: float
    operations_per_second: float
    both_bytes_per_second: float = math.inf
    column_seconds: float = 0.0
    filters_step: int = 1

    def into(self, nbytes: float, copies: float = 1, columns: float = 0) -> float:
        """The seconds of copies to the device, of ``columns`` columns altogether.

        Examples
        --------
        >>> Rates(1.0, 10.0, 1.0, 10.0, 1.0, 10.0).into(20)
        3.0
        """
        return copies * self.in_seconds + columns * self.column_seconds + nbytes / self.in_bytes_per_second

    def out(self, nbytes: float, copies: float = 1, columns: float = 0) -> float:
        """The seconds of copies to the host, of ``columns`` columns altogether.

        Examples
        --------
        >>> Rates(1.0, 10.0, 1.0, 10.0, 1.0, 10.0).out(20)
        3.0
        """
        return copies * self.out_seconds + columns * self.column_seconds + nbytes / self.out_bytes_per_second

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Factors by which copies to the device, and to the host, slow down while both directions are busy.

        Examples
        --------
        >>> Rates(0.0, 10.0, 0.0, 8.0, 0.0, 1.0, both_bytes_per_second=16.0).slowdowns
        (1.25, 1.0)
        """
        half = self.both_bytes_per_second / 2
        return max(1.0, self.in_bytes_per_second / half), max(1.0, self.out_bytes_per_second / half)

    def together(self, into: float, out: float) -> float:
        """The seconds of simultaneous copies to the device and to the host, which take these seconds alone.

        Examples
        --------
        >>> Rates(0.0, 10.0, 0.0, 10.0, 0.0, 1.0, both_bytes_per_second=16.0).together(4.0, 2.0)
        4.5
        """
        slower_in, slower_out = self.slowdowns
        (_, shorter, slower), (_, longer, also) = sorted(
            ((into * slower_in, into, slower_in), (out * slower_out, out, slower_out))
        )
        return longer + shorter * slower * (1 - 1 / also)

    def of(self, kind: str) -> tuple[float, float]:
        """The fixed seconds of a routine, and its operations per second; here the same for every kind.

        Examples
        --------
        >>> Rates(1.0, 10.0, 1.0, 10.0, 1.0, 10.0).of("")
        (1.0, 10.0)
        """
        del kind
        return self.launch_seconds, self.operations_per_second

    def routine(self, operations: float, filters: int = 0, kind: str = "") -> float:
        """The seconds of a routine; ``filters`` is the number per group of a `conv2d`.

        Examples
        --------
        >>> stepped = Rates(1.0, 10.0, 1.0, 10.0, 1.0, 10.0, filters_step=32)
        >>> stepped.routine(20), stepped.routine(20, filters=16)
        (3.0, 5.0)
        """
        if filters:
            operations *= -(-filters // self.filters_step) * self.filters_step / filters
        seconds, rate = self.of(kind)
        return seconds + operations / rate


def step_of(curve: Sequence[tuple[int, float]]) -> int:
    """The step in which a device computes filters, from the seconds of some numbers of them.

    Of the powers of two, the one whose multiples explain the seconds best, by least squares; the smallest of
    equal ones.

    >>> step_of([(n, 1 + -(-n // 32)) for n in range(8, 129, 8)])
    32
    >>> step_of([(n, 1.0 + n) for n in range(8, 129, 8)])
    1
    """
    counts, seconds = np.array(curve, np.float64).reshape(-1, 2).T
    found, least = 1, math.inf
    for step in (1 << level for level in range(int(counts.max()).bit_length())):
        terms = np.stack((np.ones_like(counts), np.ceil(counts / step) * step), 1)
        error = float(np.abs(terms @ np.linalg.lstsq(terms, seconds)[0] - seconds).sum())
        if error < least - 1e-9 * seconds.sum():
            found, least = step, error
    return found


def rates_of(machine: Machine, dtype: np.dtype[Any] = FLOAT) -> Rates:
    """The rates of a machine's first device, from its topology; GPUs do not have a topology."""
    topology: Any = getattr(machine, "topology", None)
    if topology is None:
        raise LaunchError(
            f"a {type(machine).__name__} has no topology, from which the planner takes its rates\n"
            "without rates nothing can be planned\npass Options(rates=Rates(...))"
        )
    gpu, into, out = topology.gpus[0], topology.inward[0], topology.outward[0]
    in_alone, out_alone, both = topology.host_bandwidths(0)
    return Rates(
        into.latency_seconds,
        in_alone,
        out.latency_seconds,
        out_alone,
        gpu.routine_seconds(0.0, dtype.name),  # raises for a device without a rate for this dtype
        gpu.rates[dtype.name],
        both,
        filters_step=gpu.filters_step,
    )
