"""Production CUDA kernels and their host code, written to a small `Device` protocol."""

from typing import TYPE_CHECKING

from reference.lazy import make_lazy

make_lazy(
    __name__,
    {
        "bconv": ("bconv2d", "pack_tensor"),
        "bmm": ("bmm", "pack"),
        "cpd": ("cpd_als",),
        "cuda": ("CudaDevice",),
        "cuda_machine": ("CudaMachine",),
        "device": ("Device",),
        "mttkrp": ("FORMATS", "mttkrp"),
        "preparation": ("prepare",),
    },
)

if TYPE_CHECKING:
    from gpu import blas3, outofcore
    from gpu.bconv import bconv2d, pack_tensor
    from gpu.bmm import bmm, pack
    from gpu.cpd import cpd_als
    from gpu.cuda import CudaDevice
    from gpu.cuda_machine import CudaMachine
    from gpu.device import Device
    from gpu.mttkrp import FORMATS, mttkrp
    from gpu.preparation import prepare

__all__ = [
    "FORMATS",
    "CudaDevice",
    "CudaMachine",
    "Device",
    "bconv2d",
    "blas3",
    "bmm",
    "cpd_als",
    "mttkrp",
    "outofcore",
    "pack",
    "pack_tensor",
    "prepare",
]
