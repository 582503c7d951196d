"""Traces of launches: the steps, written values and accesses of every warp, to print, store and compare.

===============  ==================================================================================
`Trace`          the observer that records all events, or a selection
`Recording`      the recorded events by warp; `save` writes them to a file, `load` reads them
`compare`        the first difference of two recordings; `differences` gives the first of each warp
===============  ==================================================================================
"""

from simwarp.observe.trace.compare import Difference, compare, differences
from simwarp.observe.trace.io import load, save
from simwarp.observe.trace.model import Access, Record, Recording, TraceError, Written
from simwarp.observe.trace.recorder import Trace

__all__ = [
    "Access",
    "Difference",
    "Record",
    "Recording",
    "Trace",
    "TraceError",
    "Written",
    "compare",
    "differences",
    "load",
    "save",
]


def __dir__() -> list[str]:
    return sorted(__all__)
