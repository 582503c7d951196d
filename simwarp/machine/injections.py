"""Faults of the hardware that a machine is given, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CopyFails:
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

    kind: Literal["in", "out", "peer"]
    device: int
    after: int = 0


@dataclass(frozen=True)
class DeviceLost:
    """A device fails at a time: its running operations do not end.

    Attributes
    ----------
    device : int
    seconds : float
        The time of the failure, on the machine's clock.
    """

    device: int
    seconds: float


@dataclass(frozen=True)
class AllocationFails:
    """One allocation finds no memory, as if another process held it.

    Attributes
    ----------
    device : int
    after : int
        The allocations of the device that succeed first.
    """

    device: int
    after: int = 0


@dataclass(frozen=True)
class Slow:
    """A device whose routines take longer, as when its clock is throttled.

    Attributes
    ----------
    device : int
    factor : float
        The time of a routine over that of a healthy device.
    """

    device: int
    factor: float


Injection = CopyFails | DeviceLost | AllocationFails | Slow
