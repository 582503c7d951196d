"""Observers of a simulated launch: one stream of events, free when nobody listens."""

from simwarp.observe.events import Observer, WriteEvent
from simwarp.observe.writes import Write, WriteObserver

__all__ = ["Observer", "Write", "WriteEvent", "WriteObserver"]
