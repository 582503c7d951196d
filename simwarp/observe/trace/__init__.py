"""Traces of launches: every warp's steps, written values and accesses; to read, store and compare.

===============  ==================================================================================
`Trace`          the observer that records, all events or a selection
`Recording`      the recorded events, warp by warp; `save` and `load` keep them in files
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
