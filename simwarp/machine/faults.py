"""The errors of a simulated machine: one exception for each kind, with its values as fields.

Those that a machine of real devices raises as well are of `reference.errors`.
"""

from __future__ import annotations

from reference.errors import (
    CopyError,
    DeviceLostError,
    DeviceMemoryError,
    FreedMemoryError,
    MachineError,
    MemoryInUseError,
    TileBoundsError,
    UnpinnedError,
    WorkerDeadlockError,
)

__all__ = [
    "AccessError",
    "CopyError",
    "DeviceLostError",
    "DeviceMemoryError",
    "FreedMemoryError",
    "MachineError",
    "MemoryInUseError",
    "TileBoundsError",
    "TileRaceError",
    "UnpinnedError",
    "UnwrittenTileError",
    "WorkerDeadlockError",
]


class AccessError(MachineError):
    """An operation that must not start, because of the bytes that it reads or writes.

    Attributes
    ----------
    device, stream : int
        The device and the number of the stream of the operation.
    operation : str
        Its name.
    tile : str
        The tile or the host matrix.
    start : float
        The time of its start, in seconds of the machine's clock.
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
    """Two unordered operations on the same bytes, one of which writes.

    Neither the order of a stream nor an event orders them, so that they overlap under some timing, in this
    run or in another.

    Attributes
    ----------
    other : str
        The operation that was queued first.
    other_device, other_stream : int
        Its device and its stream.
    other_start, other_end : float or None
        The times of its start and end; None if it had not when the later one started.
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
