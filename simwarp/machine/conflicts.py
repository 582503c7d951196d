"""Errors of operations that conflict with others: detected when they are queued, raised when they start."""

from __future__ import annotations

from pathlib import Path

from simwarp.machine.faults import AccessError, TileRaceError, UnwrittenTileError
from simwarp.machine.operations import Conflict, Operation


def error_of(operation: Operation, conflict: Conflict) -> AccessError:
    """The AccessError to raise when an operation with a conflict starts."""
    stream = operation.stream
    where = {
        "device": stream.device,
        "stream": stream.number,
        "operation": operation.name,
        "tile": conflict.tile,
        "start": operation.start,
        "caller": operation.caller,
    }
    if (other := conflict.other) is None:
        return UnwrittenTileError(
            f"{operation} reads {conflict.tile}",
            f"it starts at {operation.start} s, queued {_line(operation)}; "
            "no operation before it writes all of these bytes",
            "copy the tile in first, or give only what is written as read",
            **where,
        )
    return TileRaceError(
        f"{operation} {conflict.access}s {conflict.tile}, which {other} {conflict.other_access}s",
        f"it starts at {operation.start} s, queued {_line(operation)}; "
        f"the other {_times(other)}, queued {_line(other)}",
        "no event orders them: record one behind the other operation, and let this stream wait for it",
        other=other.name,
        other_device=other.stream.device,
        other_stream=other.stream.number,
        other_start=other.start,
        other_end=other.end,
        other_caller=other.caller,
        access=conflict.access,
        other_access=conflict.other_access,
        **where,
    )


def _line(operation: Operation) -> str:
    file, line = operation.caller
    return f"by {Path(file).name}:{line}"


def _times(other: Operation) -> str:
    if other.start is None:
        return "has not started"
    if other.end is None:
        return f"has run since {other.start} s"
    return f"ran from {other.start} s to {other.end} s in this run"
