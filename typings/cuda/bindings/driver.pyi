from enum import IntEnum
from typing import Any

class CUuuid:
    bytes: bytes

class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720

def cuDeviceGet(ordinal: int) -> tuple[CUresult, Any]: ...
def cuDeviceGetUuid(dev: Any) -> tuple[CUresult, CUuuid]: ...
def cuModuleLoadData(image: bytes) -> tuple[CUresult, Any]: ...
def cuModuleGetFunction(hmod: Any, name: bytes) -> tuple[CUresult, Any]: ...
def cuFuncGetParamInfo(func: Any, paramIndex: int) -> tuple[CUresult, int, int]: ...
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
def cuLaunchKernel(
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
    extra: Any,
) -> tuple[CUresult]: ...

class CUDA_KERNEL_NODE_PARAMS:
    func: Any
    gridDimX: int
    gridDimY: int
    gridDimZ: int
    blockDimX: int
    blockDimY: int
    blockDimZ: int
    sharedMemBytes: int
    kernelParams: Any
    extra: Any

def cuGraphCreate(flags: int) -> tuple[CUresult, Any]: ...
def cuGraphAddKernelNode(
    hGraph: Any, dependencies: Any, numDependencies: int, nodeParams: CUDA_KERNEL_NODE_PARAMS
) -> tuple[CUresult, Any]: ...
def cuGraphInstantiate(hGraph: Any, flags: int) -> tuple[CUresult, Any]: ...
def cuGraphExecKernelNodeSetParams(
    hGraphExec: Any, hNode: Any, nodeParams: CUDA_KERNEL_NODE_PARAMS
) -> tuple[CUresult]: ...
def cuGraphLaunch(hGraphExec: Any, hStream: Any) -> tuple[CUresult]: ...
def cuGraphExecDestroy(hGraphExec: Any) -> tuple[CUresult]: ...
def cuGraphDestroy(hGraph: Any) -> tuple[CUresult]: ...
