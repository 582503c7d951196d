"""Production CUDA kernels and their host code, written to a small `Device` protocol."""

from gpu.bconv import bconv2d, pack_tensor
from gpu.bmm import bmm, pack
from gpu.cuda import CudaDevice
from gpu.device import Device

__all__ = ["CudaDevice", "Device", "bconv2d", "bmm", "pack", "pack_tensor"]
