"""The errors of a simulated machine: one exception for each kind, with its values as fields.

A message has three lines: what is wrong and where; the values; what to do about it.
"""

from __future__ import annotations

from typing import Any

from reference.errors import SimwarpError


class MachineError(SimwarpError):
    """An error of a machine: of a program that runs on it, or of one of its devices.

    Parameters
    ----------
    what : str
        What is wrong, and where.
    values : str
        The values that show it.
    advice : str
        What to do about it.
    **fields
        Values of the attributes of its class.
    """

    def __init__(self, what: str, values: str = "", advice: str = "", **fields: Any) -> None:
        super().__init__("\n".join(line for line in (what, values, advice) if line))
        for name, value in fields.items():
            setattr(self, name, value)


class AccessError(MachineError):
    """An operation that must not start: of the bytes that it reads or writes.

    Attributes
    ----------
    device, stream : int
        The device and the number of the stream of the operation.
    operation : str
        Its name.
    tile : str
        The tile or the host matrix.
    start : float
        When it starts, in seconds of the machine's clock.
    caller : (str, int)
        The file and the line that queued it.
    """

    device: int = -1
    stream: int = -1
    operation: str = ""
    tile: str = ""
    start: float = 0.0
    caller: tuple[str, int] = ("", 0)


class TileRaceError(AccessError):
    """Two operations that access the same bytes, one of them to write, in no order.

    Neither the order of a stream nor an event orders them, so that they overlap under some timing, in this
    run or in another.

    Attributes
    ----------
    other : str
        The operation that was queued first.
    other_device, other_stream : int
        Its device and its stream.
    other_start, other_end : float or None
        When it started and ended; None if it had not when the later one started.
    other_caller : (str, int)
        The file and the line that queued it.
    access, other_access : str
        "read" or "write".
    """

    other: str = ""
    other_device: int = -1
    other_stream: int = -1
    other_start: float | None = None
    other_end: float | None = None
    other_caller: tuple[str, int] = ("", 0)
    access: str = ""
    other_access: str = ""


class UnwrittenTileError(AccessError):
    """An operation that reads bytes of a device's memory that no operation writes before it."""


class TileBoundsError(MachineError, ValueError):
    """A tile that does not lie in its memory, or whose columns overlap."""


class FreedMemoryError(MachineError, ValueError):
    """A second free of memory, or work on memory that is freed."""


class MemoryInUseError(MachineError, RuntimeError):
    """A free of memory, or the last unpin of an array, before the host has waited for the work on it.

    Attributes
    ----------
    operation : str
        An operation that the host has not waited for.
    """

    operation: str = ""


class UnpinnedError(MachineError, ValueError):
    """A copy from or to a host matrix that no pinned array holds, or an unpin without its pin."""


class DeviceMemoryError(MachineError, MemoryError):
    """An allocation that a device has no room for.

    Attributes
    ----------
    device : int
    asked, budget : int
        Bytes that were asked for, and bytes that are free.
    """

    device: int = -1
    asked: int = 0
    budget: int = 0


class DeviceLostError(MachineError, RuntimeError):
    """A device that has failed: nothing runs on it any more.

    Attributes
    ----------
    device : int
    seconds : float
        When it failed.
    """

    device: int = -1
    seconds: float = 0.0


class CopyError(MachineError, RuntimeError):
    """A copy that failed.

    Attributes
    ----------
    device, stream : int
    kind : str
        "in", "out" or "peer".
    seconds : float
        When it failed.
    """

    device: int = -1
    stream: int = -1
    kind: str = ""
    seconds: float = 0.0


class WorkerDeadlockError(MachineError, RuntimeError):
    """Workers or streams that wait for events that can no longer happen.

    Attributes
    ----------
    waiting : tuple of str
        Who waits for what.
    """

    waiting: tuple[str, ...] = ()
