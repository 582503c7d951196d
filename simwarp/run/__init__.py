"""Run a kernel of your own: read CUDA C++ or PTX, launch it under all checks, and get its outputs."""

from simwarp.run.binding import Given
from simwarp.run.both.results import ArrayDifference, Compared, Parting
from simwarp.run.both.settings import Both, ChipTimeoutError, NotComparedError
from simwarp.run.kernel import NoSuchOutputError, Outputs, Result, run
from simwarp.run.not_seen import NotSeen
from simwarp.run.outcome import Unwritten
from simwarp.run.source import HostCodeError, Source, load
from simwarp.run.values import Out, Surface, Texture

__all__ = [
    "ArrayDifference",
    "Both",
    "ChipTimeoutError",
    "Compared",
    "Given",
    "HostCodeError",
    "NoSuchOutputError",
    "NotComparedError",
    "NotSeen",
    "Out",
    "Outputs",
    "Parting",
    "Result",
    "Source",
    "Surface",
    "Texture",
    "Unwritten",
    "load",
    "run",
]


def __dir__() -> list[str]:
    return sorted(__all__)
