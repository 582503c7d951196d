"""Production CUDA kernels and their host code, written to a small `Device` protocol."""

from typing import TYPE_CHECKING

from gpu import blas3, outofcore
from gpu._moved import MOVED
from gpu.bconv import bconv2d, pack_tensor
from gpu.bmm import pack
from gpu.cpd import cpd_als
from gpu.cuda import CudaDevice
from gpu.cuda_machine import CudaMachine
from gpu.device import Device
from gpu.mttkrp import FORMATS
from gpu.preparation import prepare
from reference.moved import install

install(MOVED)

if TYPE_CHECKING:  # these are packages that are called: gpu.callable_package
    from gpu.bmm import bmm
    from gpu.mttkrp import mttkrp

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
