"""The options of a comparison of two devices, and the errors of launches that cannot be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu.device import check_device
from reference.errors import SchemeError, SimwarpError
from reference.values import not_an_array, shortened
from simwarp.faults import KernelFault


class NotComparedError(SimwarpError):
    """A launch that cannot be held against the other device.

    Attributes
    ----------
    faults : tuple of KernelFault
        The simulator's findings, if they are the reason.
    """

    faults: tuple[KernelFault, ...] = ()

    @classmethod
    def of(cls, faults: Sequence[KernelFault], kernel: str) -> NotComparedError:
        """The error for a kernel with findings."""
        first = faults[0]
        count = f"{len(faults)} findings, the first is" if len(faults) > 1 else "a finding:"
        error = cls(
            f"{kernel} is not compared: the simulator has {count} {first.kind}, {first.what}\n"
            "undefined behaviour may give any result on a chip, so that a difference proves nothing\n"
            "correct the kernel first, or compare it all the same (--compare-anyway, anyway=True)"
        )
        error.faults = tuple(faults)
        return error


class ChipTimeoutError(NotComparedError, TimeoutError):
    """A kernel that did not end on the GPU within its time; its process, and the GPU's context, are gone."""


def _ignore(text: str) -> None:
    """Show nothing."""


@not_an_array("pass it as device=")
@shortened
@dataclass(frozen=True)
class Both:
    """``device=Both()`` of `run`: hold the simulator and a second device against each other.

    Parameters
    ----------
    other : device, optional
        The second device; by default the first GPU, in a process of its own, which ends if the kernel hangs.
        A device of this process has no time limit.
    bits : bool
        Whether to say that outputs must have equal bits, as they must unless one of the next three is given.
    bound : bool
        Whether floats may differ by the arithmetic's own bound: what the roundings of the run explain.
    rtol, atol : float, optional
        Floats may differ by ``atol + rtol * |simulator's|``; integers may not.
    bisect : bool
        Whether to find the first instruction with another result.
    anyway : bool
        Whether to compare a kernel in which the simulator finds undefined behaviour.
    schedules : int
        How many random schedules of the simulator to try where the devices differ and the order of atomic
        operations decides: an answer that one of them gives, too, is legal, and no difference.
    seconds : float
        How long the GPU may run each launch of the kernel.
    show : callable
        Receives each stage of the work, in words.

    Raises
    ------
    SchemeError
        If these exclude each other.

    Examples
    --------
    A simulated device stands in for the GPU here:

    >>> import numpy as np
    >>> import simwarp
    >>> from simwarp.run import Both, Out, run
    >>> code = "__global__ void twice(float* y, float a) { y[threadIdx.x] = 2 * a; }"
    >>> device = Both(simwarp.Device())
    >>> result = run(code, grid=1, block=4, args=[Out("float32", 4), 1.5], device=device)
    >>> print(result.both)
    y: equal bits on both devices
    """

    other: Any = None
    bits: bool = False
    bound: bool = False
    rtol: float | None = None
    atol: float | None = None
    bisect: bool = False
    anyway: bool = False
    schedules: int = 0
    seconds: float = 60.0
    show: Callable[[str], object] = _ignore

    def __post_init__(self) -> None:
        if self.other is not None:
            check_device(self.other)
        tolerance = [name for name in ("rtol", "atol") if getattr(self, name) is not None]
        if self.bits and not self.by_bits:
            allowed = " and ".join([*["bound"] * self.bound, *tolerance])
            raise SchemeError(
                f"bits=True with {allowed}\nequal bits allow no tolerance\nleave out one of them"
            )
        if self.bound and tolerance:
            raise SchemeError(
                f"bound=True with {' and '.join(tolerance)}\nthe arithmetic's bound is a tolerance, too\n"
                "leave out one of them"
            )
        if not self.seconds > 0:
            raise SchemeError(
                f"seconds={self.seconds}\na launch needs some time on the GPU\ngive a positive number"
            )
        if self.schedules < 0:
            raise SchemeError(
                f"schedules={self.schedules}\nit is how many schedules of the simulator are tried\n"
                "give 0 for none, or a positive number"
            )

    @property
    def by_bits(self) -> bool:
        """Whether the outputs must have equal bits."""
        return not self.bound and self.rtol is None and self.atol is None
