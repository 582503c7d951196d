"""Observers of simulated launches: counters of a kernel's cost, and records of its writes."""

from simwarp.engine.events import AccessEvent, Observer, WriteEvent
from simwarp.observe.line_counts import LineCounts, ReportError
from simwarp.observe.report import Report
from simwarp.observe.writes import Write, WriteObserver

__all__ = [
    "AccessEvent",
    "LineCounts",
    "Observer",
    "Report",
    "ReportError",
    "Write",
    "WriteEvent",
    "WriteObserver",
]


def __dir__() -> list[str]:
    return sorted(__all__)
