"""Observers of a simulated launch: one stream of events, free when nobody listens."""

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
