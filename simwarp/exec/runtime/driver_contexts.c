/* Devices and contexts. There is one device; a context is a name for it; each thread has a stack of them. */
#include "driver.h"

struct CUctx_st {
    unsigned flags;
    unsigned retained; /* of the primary context: how often */
};

static struct CUctx_st primary;
enum { DEEPEST = 64 };
static _Thread_local CUcontext stack[DEEPEST];
static _Thread_local int depth;

CUcontext current_context(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

static cudaError_t push(CUcontext context)
{
    if (depth == DEEPEST)
        return cudaErrorMemoryAllocation;
    stack[depth++] = context;
    return cudaSuccess;
}

/* The runtime's calls make the primary context that of a thread that has none; it is popped as others are. */
void have_context(void)
{
    if (current_context() == NULL) {
        depth -= depth > 0;
        push(&primary);
    }
}

static cudaError_t check(CUdevice device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

/* ---- the device ---- */

CUresult cuDeviceGetCount(int *count)
{
    ANYWHERE(cudaGetDeviceCount(count));
}

CUresult cuDeviceGet(CUdevice *device, int number)
{
    *device = number;
    ANYWHERE(check(number));
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "%s", facts()->name);
    ANYWHERE(check(device));
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    memcpy(uuid->bytes, "simwarp device 0", sizeof uuid->bytes);
    ANYWHERE(check(device));
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    *bytes = facts()->memory;
    ANYWHERE(check(device));
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    *major = facts()->major;
    *minor = facts()->minor;
    ANYWHERE(check(device));
}

/* The numbers of the attributes are those of the runtime. */
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute wanted, CUdevice device)
{
    ANYWHERE(cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)wanted, device));
}

CUresult cuDeviceGetPCIBusId(char *name, int size, CUdevice device)
{
    ANYWHERE(cudaDeviceGetPCIBusId(name, size, device));
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *name)
{
    ANYWHERE(cudaDeviceGetByPCIBusId(device, name));
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    ANYWHERE(cudaDeviceCanAccessPeer(can, device, peer));
}

/* ---- the primary context ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    primary.retained++;
    *context = &primary;
    ANYWHERE(check(device));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    if (primary.retained > 0)
        primary.retained--;
    ANYWHERE(check(device));
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
    primary.flags = flags;
    ANYWHERE(check(device));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    *flags = primary.flags;
    *active = primary.retained > 0 || runtime_is_used();
    ANYWHERE(check(device));
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    forget_errors();
    ANYWHERE(check(device));
}

/* ---- contexts ---- */

static cudaError_t create(CUcontext *context, unsigned flags, CUdevice device)
{
    if (check(device) != cudaSuccess)
        return check(device);
    *context = calloc(1, sizeof **context);
    if (*context == NULL)
        return cudaErrorMemoryAllocation;
    (*context)->flags = flags;
    return push(*context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    ANYWHERE(create(context, flags, device));
}

CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *parameters, unsigned flags, CUdevice device)
{
    ANYWHERE(parameters != NULL && parameters->numExecAffinityParams > 0 ? cudaErrorNotSupported
                                                                         : create(context, flags, device));
}

static cudaError_t destroy(CUcontext context)
{
    if (context == NULL || context == &primary)
        return (cudaError_t)CUDA_ERROR_INVALID_CONTEXT;
    if (depth > 0 && stack[depth - 1] == context)
        depth--;
    free(context);
    return cudaSuccess;
}

CUresult cuCtxDestroy(CUcontext context)
{
    ANYWHERE(destroy(context));
}

/* The old way to share a context, which PyCUDA ends with. */
CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    (void)flags;
    *context = current_context();
    IN_CONTEXT(cudaSuccess);
}

CUresult cuCtxDetach(CUcontext context)
{
    ANYWHERE(destroy(context));
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    ANYWHERE(push(context));
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    CUcontext top = current_context();
    if (context != NULL)
        *context = top;
    if (depth > 0)
        depth--;
    ANYWHERE(top != NULL ? cudaSuccess : (cudaError_t)CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    if (depth > 0)
        depth--;
    ANYWHERE(context == NULL ? cudaSuccess : push(context));
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current_context();
    ANYWHERE(cudaSuccess);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    IN_CONTEXT(cudaSuccess);
}

/* There is one device. Numba 0.61 calls this without a context, as the one above. */
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    (void)context;
    return cuCtxGetDevice(device);
}

CUresult cuCtxGetFlags(unsigned *flags)
{
    CUcontext context = current_context();
    *flags = context != NULL ? context->flags : 0;
    IN_CONTEXT(cudaSuccess);
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    *id = (unsigned long long)(uintptr_t)(context != NULL ? context : current_context());
    IN_CONTEXT(cudaSuccess);
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
    (void)context;
    *version = 3020; /* as the driver has it since CUDA 3.2 */
    ANYWHERE(cudaSuccess);
}

CUresult cuCtxSynchronize(void)
{
    IN_CONTEXT(cudaDeviceSynchronize());
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    (void)context;
    return cuCtxSynchronize();
}

/* The numbers of the limits are those of the runtime. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    IN_CONTEXT(cudaDeviceSetLimit((enum cudaLimit)limit, value));
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    IN_CONTEXT(cudaDeviceGetLimit(value, (enum cudaLimit)limit));
}

CUresult cuCtxSetCacheConfig(CUfunc_cache wanted)
{
    IN_CONTEXT(cudaDeviceSetCacheConfig((enum cudaFuncCache)wanted));
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *found)
{
    *found = CU_FUNC_CACHE_PREFER_NONE;
    IN_CONTEXT(cudaSuccess);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    IN_CONTEXT(cudaDeviceGetStreamPriorityRange(least, greatest));
}

CUresult cuProfilerStart(void)
{
    ANYWHERE(cudaSuccess);
}

CUresult cuProfilerStop(void)
{
    ANYWHERE(cudaSuccess);
}

/* Declared in no header of CUDA 13's that we have; PyCUDA links it. */
CUresult cuProfilerInitialize(const char *file, const char *output, int mode);
CUresult cuProfilerInitialize(const char *file, const char *output, int mode)
{
    (void)file, (void)output, (void)mode;
    IN_CONTEXT(cudaErrorProfilerDisabled);
}
