"""`CudaDevice`: one NVIDIA GPU, its arrays, kernels, streams and graphs, by PyCUDA or cuda-bindings."""

from typing import TYPE_CHECKING

from reference.lazy import make_lazy

make_lazy(__name__, {"arrays": ("CudaArray",), "device": ("CudaDevice", "default_device")})

if TYPE_CHECKING:
    from gpu.cuda.arrays import CudaArray
    from gpu.cuda.device import CudaDevice, default_device

__all__ = ["CudaArray", "CudaDevice", "default_device"]
