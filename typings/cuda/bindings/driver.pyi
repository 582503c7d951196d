from enum import IntEnum
from typing import Any

class CUuuid:
    bytes: bytes

class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720
    CUDA_ERROR_INVALID_CLUSTER_SIZE = 912

class CUjit_option(IntEnum):
    CU_JIT_ERROR_LOG_BUFFER = 5
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6

class CUmemAllocationType(IntEnum):
    CU_MEM_ALLOCATION_TYPE_PINNED = 1

class CUmemLocationType(IntEnum):
    CU_MEM_LOCATION_TYPE_DEVICE = 1

class CUmemAccess_flags(IntEnum):
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3

class CUmemAllocationGranularity_flags(IntEnum):
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0

class CUmemLocation:
    type: CUmemLocationType
    id: int

class CUmemAllocationProp:
    type: CUmemAllocationType
    location: CUmemLocation

class CUmemAccessDesc:
    flags: CUmemAccess_flags
    location: CUmemLocation

class CUdevice_attribute(IntEnum):
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120

class CUfunction_attribute(IntEnum):
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH = 11
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT = 12
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH = 13
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14

class CUstream:
    def __init__(self, init_value: int = 0) -> None: ...
    def __int__(self) -> int: ...

class CUpointer_attribute(IntEnum):
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2

class CUmemorytype(IntEnum):
    CU_MEMORYTYPE_HOST = 1
    CU_MEMORYTYPE_ARRAY = 3

class CUstream_flags(IntEnum):
    CU_STREAM_NON_BLOCKING = 1

class CUstreamCaptureMode(IntEnum):
    CU_STREAM_CAPTURE_MODE_RELAXED = 2

class CUlaunchAttributeID(IntEnum):
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6

class CUgraphDependencyType(IntEnum):
    CU_GRAPH_DEPENDENCY_TYPE_DEFAULT = 0
    CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1

CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC: int

class CUgraphEdgeData:
    from_port: int
    to_port: int
    type: CUgraphDependencyType

CUkernelNodeAttrID = CUlaunchAttributeID

class CUlaunchAttributeValue:
    clusterDim: Any
    cooperative: int
    programmaticStreamSerializationAllowed: int

class CUkernelNodeAttrValue(CUlaunchAttributeValue): ...

class CUlaunchAttribute:
    id: CUlaunchAttributeID
    value: CUlaunchAttributeValue

class CUlaunchConfig:
    gridDimX: int
    gridDimY: int
    gridDimZ: int
    blockDimX: int
    blockDimY: int
    blockDimZ: int
    sharedMemBytes: int
    hStream: Any
    attrs: list[CUlaunchAttribute]
    numAttrs: int

def cuGetErrorString(error: CUresult) -> tuple[CUresult, bytes | None]: ...
def cuCtxGetDevice() -> tuple[CUresult, Any]: ...
def cuDeviceGetAttribute(attrib: CUdevice_attribute, dev: Any) -> tuple[CUresult, int]: ...
def cuFuncGetAttribute(attrib: CUfunction_attribute, hfunc: Any) -> tuple[CUresult, int]: ...
def cuFuncSetAttribute(hfunc: Any, attrib: CUfunction_attribute, value: int) -> tuple[CUresult]: ...
def cuLaunchKernelEx(config: CUlaunchConfig, f: Any, kernelParams: Any, extra: Any) -> tuple[CUresult]: ...
def cuStreamCreate(Flags: int) -> tuple[CUresult, Any]: ...
def cuStreamDestroy(hStream: Any) -> tuple[CUresult]: ...
def cuStreamGetDevice(hStream: Any) -> tuple[CUresult, Any]: ...
def cuStreamGetId(hStream: Any) -> tuple[CUresult, int]: ...
def cuStreamIsCapturing(hStream: Any) -> tuple[CUresult, Any]: ...
def cuStreamSynchronize(hStream: Any) -> tuple[CUresult]: ...
def cuThreadExchangeStreamCaptureMode(mode: CUstreamCaptureMode) -> tuple[CUresult, CUstreamCaptureMode]: ...
def cuMemcpyHtoDAsync(dstDevice: int, srcHost: Any, ByteCount: int, hStream: Any) -> tuple[CUresult]: ...
def cuStreamWaitEvent(hStream: Any, hEvent: Any, Flags: int) -> tuple[CUresult]: ...
def cuEventCreate(Flags: int) -> tuple[CUresult, Any]: ...
def cuEventDestroy(hEvent: Any) -> tuple[CUresult]: ...
def cuEventRecord(hEvent: Any, hStream: Any) -> tuple[CUresult]: ...
def cuEventSynchronize(hEvent: Any) -> tuple[CUresult]: ...
def cuEventElapsedTime(hStart: Any, hEnd: Any) -> tuple[CUresult, float]: ...
def cuMemHostAlloc(bytesize: int, Flags: int) -> tuple[CUresult, int]: ...
def cuMemFreeHost(p: int) -> tuple[CUresult]: ...
def cuPointerGetAttribute(attribute: CUpointer_attribute, ptr: int) -> tuple[CUresult, Any]: ...
def cuStreamBeginCapture(hStream: Any, mode: CUstreamCaptureMode) -> tuple[CUresult]: ...
def cuStreamEndCapture(hStream: Any) -> tuple[CUresult, Any]: ...
def cuGraphAddDependencies(
    hGraph: Any, from_: list[Any], to: list[Any], edgeData: list[CUgraphEdgeData], numDependencies: int
) -> tuple[CUresult]: ...
def cuGraphKernelNodeSetAttribute(
    hNode: Any, attr: CUlaunchAttributeID, value: CUkernelNodeAttrValue
) -> tuple[CUresult]: ...
def cuDeviceGet(ordinal: int) -> tuple[CUresult, Any]: ...
def cuDeviceGetUuid(dev: Any) -> tuple[CUresult, CUuuid]: ...
def cuModuleLoadData(image: bytes) -> tuple[CUresult, Any]: ...
def cuModuleLoadDataEx(
    image: bytes, numOptions: int, options: list[CUjit_option], optionValues: list[Any]
) -> tuple[CUresult, Any]: ...
def cuMemGetAllocationGranularity(
    prop: CUmemAllocationProp, option: CUmemAllocationGranularity_flags
) -> tuple[CUresult, int]: ...
def cuMemAddressReserve(size: int, alignment: int, addr: int, flags: int) -> tuple[CUresult, Any]: ...
def cuMemAddressFree(ptr: Any, size: int) -> tuple[CUresult]: ...
def cuMemCreate(size: int, prop: CUmemAllocationProp, flags: int) -> tuple[CUresult, Any]: ...
def cuMemMap(ptr: int, size: int, offset: int, handle: Any, flags: int) -> tuple[CUresult]: ...
def cuMemUnmap(ptr: int, size: int) -> tuple[CUresult]: ...
def cuMemRelease(handle: Any) -> tuple[CUresult]: ...
def cuMemSetAccess(ptr: int, size: int, desc: list[CUmemAccessDesc], count: int) -> tuple[CUresult]: ...
def cuModuleGetGlobal(hmod: Any, name: bytes) -> tuple[CUresult, Any, int]: ...
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

class CUarray_format(IntEnum):
    CU_AD_FORMAT_UNSIGNED_INT8 = 1

class CUaddress_mode(IntEnum):
    CU_TR_ADDRESS_MODE_WRAP = 0
    CU_TR_ADDRESS_MODE_CLAMP = 1
    CU_TR_ADDRESS_MODE_MIRROR = 2
    CU_TR_ADDRESS_MODE_BORDER = 3

class CUfilter_mode(IntEnum):
    CU_TR_FILTER_MODE_POINT = 0
    CU_TR_FILTER_MODE_LINEAR = 1

class CUresourcetype(IntEnum):
    CU_RESOURCE_TYPE_ARRAY = 0
    CU_RESOURCE_TYPE_LINEAR = 2
    CU_RESOURCE_TYPE_PITCH2D = 3

class CUDA_ARRAY3D_DESCRIPTOR:
    Width: int
    Height: int
    Depth: int
    Format: CUarray_format
    NumChannels: int
    Flags: int

class CUDA_MEMCPY3D:
    WidthInBytes: int
    Height: int
    Depth: int

class CUDA_RESOURCE_DESC:
    resType: CUresourcetype
    res: Any

class CUDA_TEXTURE_DESC:
    addressMode: list[CUaddress_mode]
    filterMode: CUfilter_mode
    flags: int
    borderColor: list[float]

def CUdeviceptr(init_value: int = 0) -> Any: ...
def cuArray3DCreate(pAllocateArray: CUDA_ARRAY3D_DESCRIPTOR) -> tuple[CUresult, Any]: ...
def cuArrayDestroy(hArray: Any) -> tuple[CUresult]: ...
def cuMemcpy3D(pCopy: CUDA_MEMCPY3D) -> tuple[CUresult]: ...
def cuTexObjectCreate(
    pResDesc: CUDA_RESOURCE_DESC, pTexDesc: CUDA_TEXTURE_DESC, pResViewDesc: Any
) -> tuple[CUresult, Any]: ...
def cuTexObjectDestroy(texObject: Any) -> tuple[CUresult]: ...
def cuSurfObjectCreate(pResDesc: CUDA_RESOURCE_DESC) -> tuple[CUresult, Any]: ...
def cuSurfObjectDestroy(surfObject: Any) -> tuple[CUresult]: ...
