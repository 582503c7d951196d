"""Observers of a simulated launch: one stream of events, free when nobody listens."""

from simwarp.observe.events import AccessEvent, Observer, WriteEvent
from simwarp.observe.writes import Write, WriteObserver

__all__ = ["AccessEvent", "Observer", "Write", "WriteEvent", "WriteObserver"]
