"""Hardware faults to inject into a simulated machine, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from reference.errors import DtypeError
from simwarp.machine.topology import Kind, Route


class Injection:
    """A fault of one device; the machine calls these methods, which by default change nothing.

    Attributes
    ----------
    device : int
    """

    device: int

    @property
    def lost_at(self) -> float:
        """The time at which the device is lost, in seconds of the machine's clock."""
        return math.inf

    def fails_allocation(self, number: int) -> bool:
        """True if the device's allocation with this number, from 0, finds no memory."""
        return False

    def fails_copy(self, route: Route, number: int) -> bool:
        """True if the device's copy with this number, counted per kind of route, fails at its end."""
        return False

    def slows(self, route: Route | None) -> float:
        """The factor by which a copy on a route, or a routine (None), is slower than on a healthy device."""
        return 1.0


def injections_of(given: object) -> tuple[Injection, ...]:
    """A sequence of faults as a tuple; DtypeError for anything else."""
    faults = tuple(cast("Iterable[object]", given)) if isinstance(given, Iterable) else (None,)
    if wrong := [one for one in faults if not isinstance(one, Injection)]:
        raise DtypeError(
            f"injections={given!r}\n"
            f"it is a sequence of faults, and has {given if wrong == [None] else wrong[0]!r}\n"
            "pass for example [DeviceLost(0, 1.5)], of simwarp.machine"
        )
    return cast("tuple[Injection, ...]", faults)


@dataclass(frozen=True)
class CopyFails(Injection):
    """One copy of a route fails, at the time when it would have ended; its target is poison.

    Attributes
    ----------
    kind : str
        "in", "out" or "peer".
    device : int
        The device that copies; of a copy between devices, the one that it copies to.
    after : int
        The copies of that kind and device that succeed first.
    """

    kind: Kind
    device: int
    after: int = 0

    def fails_copy(self, route: Route, number: int) -> bool:
        """True for the copy of its kind and number."""
        return (route.kind, number) == (self.kind, self.after)


@dataclass(frozen=True)
class DeviceLost(Injection):
    """A device fails at a time: its running operations do not end.

    Attributes
    ----------
    device : int
    seconds : float
        The time of the failure, on the machine's clock.
    """

    device: int
    seconds: float

    @property
    def lost_at(self) -> float:
        """The time of the failure."""
        return self.seconds


@dataclass(frozen=True)
class AllocationFails(Injection):
    """One allocation finds no memory, as if another process held it.

    Attributes
    ----------
    device : int
    after : int
        The allocations of the device that succeed first.
    """

    device: int
    after: int = 0

    def fails_allocation(self, number: int) -> bool:
        """True for the allocation number that the fault names."""
        return number == self.after


@dataclass(frozen=True)
class Slow(Injection):
    """A device whose routines take longer, as when its clock is throttled.

    Attributes
    ----------
    device : int
    factor : float
        The time of a routine over that of a healthy device.
    """

    device: int
    factor: float

    def slows(self, route: Route | None) -> float:
        """The factor, for a routine."""
        return self.factor if route is None else 1.0


@dataclass(frozen=True)
class SlowLink(Injection):
    """A link whose copies take longer, as when it has lost some of its lanes.

    Attributes
    ----------
    kind : str
        "in", "out" or "peer".
    device : int
        The device that copies; of a copy between devices, the one that it copies to.
    factor : float
        The time of a copy over that on a healthy link.
    """

    kind: Kind
    device: int
    factor: float

    def slows(self, route: Route | None) -> float:
        """The factor, for a copy of its kind."""
        return self.factor if route is not None and route.kind == self.kind else 1.0
