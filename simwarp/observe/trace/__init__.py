"""A full trace of a launch: what every warp executed, wrote and touched, to be stored and compared.

===============  ================================================================================
`Trace`          the observer that records, and what it may leave out
`Recording`      what was recorded, warp by warp; `load` reads one from a file
`compare`        the first step at which two recordings differ; `differences` gives that of each warp
===============  ================================================================================
"""

from simwarp.observe.trace.compare import compare, differences
from simwarp.observe.trace.difference import Difference
from simwarp.observe.trace.files import load, save
from simwarp.observe.trace.record import Access, Record, Written
from simwarp.observe.trace.recorder import Trace
from simwarp.observe.trace.recording import Recording
from simwarp.observe.trace.selection import TraceError

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
