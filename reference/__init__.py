"""What the result is: every operation in plain NumPy, with no lane, tile or device in sight."""

from reference.bits import binarize, pack, unpack
from reference.bmm import bmm
from reference.errors import (
    CompileError,
    DtypeError,
    FormatError,
    InputFileError,
    MissingExtraError,
    NoGpuError,
    NotANumberError,
    SchemeError,
    ShapeError,
    SimwarpError,
)
from reference.threshold import IntegerThresholds, integer_thresholds, threshold
from reference.types import PackedBits
from reference.version import __version__

__all__ = [
    "CompileError",
    "DtypeError",
    "FormatError",
    "InputFileError",
    "IntegerThresholds",
    "MissingExtraError",
    "NoGpuError",
    "NotANumberError",
    "PackedBits",
    "SchemeError",
    "ShapeError",
    "SimwarpError",
    "__version__",
    "binarize",
    "bmm",
    "integer_thresholds",
    "pack",
    "threshold",
    "unpack",
]
