/* The device: its number, properties, limits and settings. There is one. */
#include "simwarp.h"

static _Thread_local unsigned flags;

static bool is_device(int device)
{
    return device == 0;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    FINISH(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    FINISH(cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
    FINISH(is_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned more)
{
    (void)device_flags, (void)more;
    FINISH(is_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaSetValidDevices(int *devices, int count)
{
    (void)devices, (void)count;
    FINISH(cudaSuccess);
}

cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *wanted)
{
    (void)wanted;
    *device = 0;
    FINISH(cudaSuccess);
}

cudaError_t cudaSetDeviceFlags(unsigned wanted)
{
    flags = wanted;
    FINISH(cudaSuccess);
}

cudaError_t cudaGetDeviceFlags(unsigned *found)
{
    *found = flags;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    FINISH(cudaSuccess); /* work is done as soon as it is issued */
}

cudaError_t cudaDeviceReset(void)
{
    forget_errors(); /* memory is left as it is: a program that uses it afterwards is wrong on a GPU, too */
    return cudaSuccess;
}

/* The versions need no device, and no context. */
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    struct call call = {.request = ASK_MEMORY};
    cudaError_t error = ask(&call);
    *unused = call.values[0];
    *total = call.values[1];
    FINISH(error);
}

/* One value of the chip; -1 for what this runtime does not know. */
static int attribute(enum cudaDeviceAttr wanted)
{
    const struct facts *chip = facts();
    switch (wanted) {
    case cudaDevAttrMaxThreadsPerBlock: return chip->threads_per_block;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return chip->shared_per_block;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return chip->shared_per_multiprocessor;
    case cudaDevAttrReservedSharedMemoryPerBlock: return chip->shared_reserved;
    case cudaDevAttrTotalConstantMemory: return chip->constants;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxPitch: return 0x7fffffff;
    case cudaDevAttrMaxRegistersPerBlock: return chip->registers_per_block;
    case cudaDevAttrMaxRegistersPerMultiprocessor: return chip->registers_per_multiprocessor;
    case cudaDevAttrClockRate: return chip->clock_khz;
    case cudaDevAttrMemoryClockRate: return chip->clock_khz;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrMultiProcessorCount: return chip->multiprocessors;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return chip->warps * 32;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return chip->blocks;
    case cudaDevAttrComputeCapabilityMajor: return chip->major;
    case cudaDevAttrComputeCapabilityMinor: return chip->minor;
    case cudaDevAttrTextureAlignment:
    case cudaDevAttrSurfaceAlignment: return 512;
    case cudaDevAttrTexturePitchAlignment: return 32;
    case cudaDevAttrAsyncEngineCount: return 1;
    case cudaDevAttrMaxTexture1DWidth:
    case cudaDevAttrMaxTexture2DWidth:
    case cudaDevAttrMaxTexture2DLinearWidth:
    case cudaDevAttrMaxSurface2DWidth: return 131072;
    case cudaDevAttrMaxTexture1DLinearWidth: return 1 << 28;
    case cudaDevAttrMaxTexture2DHeight:
    case cudaDevAttrMaxSurface2DHeight: return 65536;
    case cudaDevAttrMaxTexture2DLinearHeight: return 65000;
    case cudaDevAttrMaxTexture2DLinearPitch: return 2097120;
    case cudaDevAttrMaxTexture3DWidth:
    case cudaDevAttrMaxTexture3DHeight:
    case cudaDevAttrMaxTexture3DDepth:
    case cudaDevAttrMaxSurface3DWidth:
    case cudaDevAttrMaxSurface3DHeight:
    case cudaDevAttrMaxSurface3DDepth: return 16384;
    case cudaDevAttrMaxTexture1DLayeredWidth:
    case cudaDevAttrMaxTexture2DLayeredWidth:
    case cudaDevAttrMaxTexture2DLayeredHeight:
    case cudaDevAttrMaxTextureCubemapWidth:
    case cudaDevAttrMaxTextureCubemapLayeredWidth:
    case cudaDevAttrMaxTexture2DGatherWidth:
    case cudaDevAttrMaxTexture2DGatherHeight:
    case cudaDevAttrMaxSurface1DWidth:
    case cudaDevAttrMaxSurface1DLayeredWidth:
    case cudaDevAttrMaxSurface2DLayeredWidth:
    case cudaDevAttrMaxSurface2DLayeredHeight:
    case cudaDevAttrMaxSurfaceCubemapWidth:
    case cudaDevAttrMaxSurfaceCubemapLayeredWidth: return 32768;
    case cudaDevAttrMaxTexture1DLayeredLayers:
    case cudaDevAttrMaxTexture2DLayeredLayers:
    case cudaDevAttrMaxSurface1DLayeredLayers:
    case cudaDevAttrMaxSurface2DLayeredLayers: return 2048;
    case cudaDevAttrMaxTextureCubemapLayeredLayers:
    case cudaDevAttrMaxSurfaceCubemapLayeredLayers: return 2046;
    case cudaDevAttrClusterLaunch: return chip->blocks_per_cluster > 0;
    case cudaDevAttrMaxPersistingL2CacheSize:
        return 32 << 20; /* hints about it are taken, and change nothing */
    case cudaDevAttrMaxAccessPolicyWindowSize: return 128 << 20;
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrGlobalL1CacheSupported:
    case cudaDevAttrLocalL1CacheSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrHostNativeAtomicSupported: return 1;
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrTccDriver:
    case cudaDevAttrPciBusId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrIsMultiGpuBoard:
    case cudaDevAttrMultiGpuBoardGroupID:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrDirectManagedMemAccessFromHost:
    case cudaDevAttrGPUDirectRDMASupported:
    case cudaDevAttrIpcEventSupport:
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
    case cudaDevAttrSparseCudaArraySupported:
    case cudaDevAttrDeferredMappingCudaArraySupported:
    case cudaDevAttrHostRegisterReadOnlySupported:
    case cudaDevAttrTimelineSemaphoreInteropSupported:
    case cudaDevAttrGPUDirectRDMAFlushWritesOptions:
    case cudaDevAttrGPUDirectRDMAWritesOrdering:
    case cudaDevAttrMemoryPoolSupportedHandleTypes:
    case cudaDevAttrCanFlushRemoteWrites:
    case cudaDevAttrNumaConfig:
    case cudaDevAttrMpsEnabled: return 0;
    case cudaDevAttrMemSyncDomainCount: return 4;
    default: return -1;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr wanted, int device)
{
    if (!is_device(device))
        FINISH(cudaErrorInvalidDevice);
    int found = attribute(wanted);
    if (found < 0)
        FINISH(cudaErrorInvalidValue);
    *value = found;
    FINISH(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device)
{
    const struct facts *chip = facts();
    if (!is_device(device))
        FINISH(cudaErrorInvalidDevice);
    *found = (struct cudaDeviceProp){
        .totalGlobalMem = chip->memory,
        .sharedMemPerBlock = 48 << 10,
        .sharedMemPerBlockOptin = (size_t)chip->shared_per_block,
        .sharedMemPerMultiprocessor = (size_t)chip->shared_per_multiprocessor,
        .reservedSharedMemPerBlock = (size_t)chip->shared_reserved,
        .regsPerBlock = chip->registers_per_block,
        .regsPerMultiprocessor = chip->registers_per_multiprocessor,
        .warpSize = 32,
        .memPitch = 0x7fffffff,
        .maxThreadsPerBlock = chip->threads_per_block,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {0x7fffffff, 65535, 65535},
        .totalConstMem = (size_t)chip->constants,
        .major = chip->major,
        .minor = chip->minor,
        .textureAlignment = 512,
        .texturePitchAlignment = 32,
        .surfaceAlignment = 512,
        .maxTexture1D = attribute(cudaDevAttrMaxTexture1DWidth),
        .maxTexture2D = {131072, 65536},
        .maxTexture2DLinear = {131072, 65000, 2097120},
        .maxTexture3D = {16384, 16384, 16384},
        .maxTextureCubemap = 32768,
        .maxTexture1DLayered = {32768, 2048},
        .maxTexture2DLayered = {32768, 32768, 2048},
        .maxTextureCubemapLayered = {32768, 2046},
        .maxSurface1D = 32768,
        .maxSurface2D = {131072, 65536},
        .maxSurface3D = {16384, 16384, 16384},
        .multiProcessorCount = chip->multiprocessors,
        .canMapHostMemory = 1,
        .concurrentKernels = 1,
        .asyncEngineCount = 1,
        .unifiedAddressing = 1,
        .memoryBusWidth = attribute(cudaDevAttrGlobalMemoryBusWidth),
        .l2CacheSize = attribute(cudaDevAttrL2CacheSize),
        .persistingL2CacheMaxSize = attribute(cudaDevAttrMaxPersistingL2CacheSize),
        .accessPolicyMaxWindowSize = attribute(cudaDevAttrMaxAccessPolicyWindowSize),
        .maxThreadsPerMultiProcessor = chip->warps * 32,
        .maxBlocksPerMultiProcessor = chip->blocks,
        .streamPrioritiesSupported = 1,
        .globalL1CacheSupported = 1,
        .localL1CacheSupported = 1,
        .managedMemory = 1,
        .concurrentManagedAccess = 1,
        .hostNativeAtomicSupported = 1,
        .computePreemptionSupported = 1,
        .canUseHostPointerForRegisteredMem = 1,
        .cooperativeLaunch = 1,
        .hostRegisterSupported = 1,
        .memoryPoolsSupported = 1,
        .clusterLaunch = chip->blocks_per_cluster > 0,
    };
    snprintf(found->name, sizeof found->name, "%s", chip->name);
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *name, int size, int device)
{
    if (!is_device(device))
        FINISH(cudaErrorInvalidDevice);
    snprintf(name, (size_t)size, "0000:00:00.0");
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *name)
{
    (void)name;
    *device = 0;
    FINISH(cudaSuccess);
}

/* The limits of the heap and the stack are those of `simwarp.Device`; a program may set what it wants. */
static size_t limits[cudaLimitPersistingL2CacheSize + 1] = {
    [cudaLimitStackSize] = 16 << 10,
    [cudaLimitPrintfFifoSize] = 1 << 20,
    [cudaLimitMallocHeapSize] = 8 << 20,
};

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    if ((size_t)limit >= sizeof limits / sizeof limits[0])
        FINISH(cudaErrorUnsupportedLimit);
    limits[limit] = value;
    struct call call = {.request = ASK_LIMIT, .arguments = {(uint64_t)limit, value}};
    FINISH(ask(&call));
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    if ((size_t)limit >= sizeof limits / sizeof limits[0])
        FINISH(cudaErrorUnsupportedLimit);
    *value = limits[limit];
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache wanted)
{
    (void)wanted;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *found)
{
    *found = cudaFuncCachePreferNone;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *found)
{
    *found = cudaSharedMemBankSizeFourByte;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig wanted)
{
    (void)wanted;
    FINISH(cudaSuccess);
}

cudaError_t cudaCtxResetPersistingL2Cache(void)
{
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    if (!is_device(device) || !is_device(peer))
        FINISH(cudaErrorInvalidDevice);
    *can = 0;
    FINISH(cudaSuccess);
}

/* There is no second device to be the peer. */
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned peer_flags)
{
    (void)peer, (void)peer_flags;
    FINISH(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    FINISH(is_device(peer) ? cudaErrorPeerAccessNotEnabled : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr wanted, int device, int peer)
{
    (void)value, (void)wanted, (void)device, (void)peer;
    FINISH(cudaErrorInvalidDevice);
}

cudaError_t cudaProfilerStart(void)
{
    FINISH(cudaSuccess);
}

cudaError_t cudaProfilerStop(void)
{
    FINISH(cudaSuccess);
}
