"""Definitions of all operations in plain NumPy, without lanes, tiles or devices.

The vocabulary of all tiers lies beside them: `types`, `devices`, `errors`, `files`, `lazy` and `values`.
"""

from typing import TYPE_CHECKING

from reference.lazy import make_lazy
from reference.version import __version__

if TYPE_CHECKING:
    from reference.bconv import bconv2d
    from reference.bits import binarize, pack, unpack
    from reference.bmm import bmm
    from reference.conv_geometry import ConvGeometry, conv_geometry, excluded_taps
    from reference.cpd import cpd_als
    from reference.errors import (
        CaptureError,
        CompileError,
        DtypeError,
        ExportError,
        FormatError,
        InputFileError,
        LaunchError,
        MissingExtraError,
        NoGpuError,
        NotANumberError,
        RangeError,
        SchemeError,
        ShapeError,
        SimwarpError,
    )
    from reference.mttkrp import mttkrp, mttkrp_bound
    from reference.tensors import pack_tensor, to_layout, unpack_tensor
    from reference.threshold import (
        IntegerThresholds,
        integer_thresholds,
        pool_bits,
        threshold,
        threshold_tensor,
    )
    from reference.types import Cpd, PackedBits, PackedTensor

__all__ = [
    "CaptureError",
    "CompileError",
    "ConvGeometry",
    "Cpd",
    "DtypeError",
    "ExportError",
    "FormatError",
    "InputFileError",
    "IntegerThresholds",
    "LaunchError",
    "MissingExtraError",
    "NoGpuError",
    "NotANumberError",
    "PackedBits",
    "PackedTensor",
    "RangeError",
    "SchemeError",
    "ShapeError",
    "SimwarpError",
    "__version__",
    "bconv2d",
    "binarize",
    "bmm",
    "conv_geometry",
    "cpd_als",
    "excluded_taps",
    "integer_thresholds",
    "mttkrp",
    "mttkrp_bound",
    "pack",
    "pack_tensor",
    "pool_bits",
    "threshold",
    "threshold_tensor",
    "to_layout",
    "unpack",
    "unpack_tensor",
]

make_lazy(
    __name__,
    {
        "bconv": ("bconv2d",),
        "bits": ("binarize", "pack", "unpack"),
        "bmm": ("bmm",),
        "conv_geometry": ("ConvGeometry", "conv_geometry", "excluded_taps"),
        "cpd": ("cpd_als",),
        "errors": (
            "CaptureError",
            "CompileError",
            "DtypeError",
            "ExportError",
            "FormatError",
            "InputFileError",
            "LaunchError",
            "MissingExtraError",
            "NoGpuError",
            "NotANumberError",
            "RangeError",
            "SchemeError",
            "ShapeError",
            "SimwarpError",
        ),
        "mttkrp": ("mttkrp", "mttkrp_bound"),
        "tensors": ("pack_tensor", "to_layout", "unpack_tensor"),
        "threshold": (
            "IntegerThresholds",
            "integer_thresholds",
            "pool_bits",
            "threshold",
            "threshold_tensor",
        ),
        "types": ("Cpd", "PackedBits", "PackedTensor"),
    },
)
