from enum import IntEnum
from typing import Any

class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720

def cuGetErrorName(error: CUresult) -> tuple[CUresult, bytes]: ...
def cuLaunchCooperativeKernel(
    f: Any,
    gridDimX: int,
    gridDimY: int,
    gridDimZ: int,
    blockDimX: int,
    blockDimY: int,
    blockDimZ: int,
    sharedMemBytes: int,
    hStream: Any,
    kernelParams: Any,
) -> tuple[CUresult]: ...
