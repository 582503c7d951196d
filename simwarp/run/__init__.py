"""Run a kernel of your own: read CUDA C++ or PTX, launch it under all checks, and get its outputs."""

from gpu.callable_package import make_callable
from simwarp.run.arguments import Out
from simwarp.run.binding import Given
from simwarp.run.kernel import NoSuchOutputError, Outputs, Result, run
from simwarp.run.outcome import Unwritten
from simwarp.run.source import HostCodeError, Source, load

__all__ = [
    "Given",
    "HostCodeError",
    "NoSuchOutputError",
    "Out",
    "Outputs",
    "Result",
    "Source",
    "Unwritten",
    "load",
    "run",
]

make_callable(__name__, run)
