"""Production CUDA kernels and their host code, written to a small `Device` protocol."""

from gpu.bconv import bconv2d, pack_tensor
from gpu.bmm import bmm, pack
from gpu.cpd import cpd_als
from gpu.cuda import CudaDevice
from gpu.device import Device
from gpu.mttkrp import mttkrp

__all__ = ["CudaDevice", "Device", "bconv2d", "bmm", "cpd_als", "mttkrp", "pack", "pack_tensor"]
