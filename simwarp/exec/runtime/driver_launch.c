/* Launches, attributes of kernels and occupancy by the driver's functions; streams and events. */
#include "driver.h"

/* Puts pointers into the buffer of `extra` where a launch has no array of arguments. */
static void **arguments_in(const struct function *function, void **extra)
{
    char *buffer = NULL;
    for (void **at = extra; at != NULL && *at != CU_LAUNCH_PARAM_END; at += 2)
        if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = at[1];
    void **arguments = calloc((size_t)function->parameters + 1, sizeof *arguments);
    for (int i = 0; arguments != NULL && i < function->parameters; i++)
        arguments[i] = buffer + function->sizes[function->parameters + i];
    return arguments;
}

static cudaError_t launch(CUfunction given, cudaLaunchConfig_t config, bool cooperative, void **arguments,
                          void **extra)
{
    struct function *function;
    cudaError_t error = function_of(given, &function);
    if (error != cudaSuccess)
        return cudaErrorInvalidResourceHandle;
    if (arguments == NULL && extra == NULL && function->parameters > 0)
        return cudaErrorInvalidValue;
    void **unpacked = arguments == NULL ? arguments_in(function, extra) : NULL;
    void **used = arguments != NULL ? arguments : unpacked;
    error = cooperative ? cudaLaunchCooperativeKernel(given, config.gridDim, config.blockDim, used,
                                                      config.dynamicSmemBytes, config.stream)
                        : cudaLaunchKernelExC(&config, given, used);
    free(unpacked);
    return error;
}

static cudaLaunchConfig_t config_of(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                    unsigned bz, unsigned shared, CUstream stream)
{
    return (cudaLaunchConfig_t){
        .gridDim = {gx, gy, gz}, .blockDim = {bx, by, bz}, .dynamicSmemBytes = shared, .stream = stream};
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **arguments, void **extra)
{
    IN_CONTEXT(
        launch(function, config_of(gx, gy, gz, bx, by, bz, shared, stream), false, arguments, extra));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                   void **arguments)
{
    IN_CONTEXT(launch(function, config_of(gx, gy, gz, bx, by, bz, shared, stream), true, arguments, NULL));
}

/* The attributes of a launch have the numbers and the layout of the runtime's. */
static cudaLaunchConfig_t runtime_config(const CUlaunchConfig *given)
{
    cudaLaunchConfig_t config =
        config_of(given->gridDimX, given->gridDimY, given->gridDimZ, given->blockDimX, given->blockDimY,
                  given->blockDimZ, given->sharedMemBytes, given->hStream);
    _Static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute), "one layout");
    config.attrs = (cudaLaunchAttribute *)given->attrs;
    config.numAttrs = given->numAttrs;
    return config;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *given, CUfunction function, void **arguments, void **extra)
{
    IN_CONTEXT(launch(function, runtime_config(given), false, arguments, extra));
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    IN_CONTEXT(cudaLaunchHostFunc(stream, function, data));
}

/* ---- attributes ---- */

static cudaError_t attribute_of(int *value, CUfunction_attribute wanted, const void *function)
{
    struct cudaFuncAttributes found;
    cudaError_t error = cudaFuncGetAttributes(&found, function);
    switch (wanted) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = found.maxThreadsPerBlock; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)found.sharedSizeBytes; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = (int)found.constSizeBytes; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = (int)found.localSizeBytes; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = found.numRegs; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = found.ptxVersion; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = found.binaryVersion; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = found.maxDynamicSharedSizeBytes; break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: *value = 0; break;
    default: error = cudaErrorNotSupported;
    }
    return error;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute wanted, CUfunction function)
{
    IN_CONTEXT(attribute_of(value, wanted, function));
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute wanted, int value)
{
    IN_CONTEXT(cudaFuncSetAttribute(function, (enum cudaFuncAttribute)wanted, value));
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute wanted, CUkernel kernel, CUdevice device)
{
    (void)device;
    ANYWHERE(attribute_of(value, wanted, kernel));
}

CUresult cuKernelSetAttribute(CUfunction_attribute wanted, int value, CUkernel kernel, CUdevice device)
{
    (void)device;
    ANYWHERE(cudaFuncSetAttribute(kernel, (enum cudaFuncAttribute)wanted, value));
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    IN_CONTEXT(cudaFuncSetCacheConfig(function, (enum cudaFuncCache)config));
}

CUresult cuFuncLoad(CUfunction function)
{
    (void)function;
    IN_CONTEXT(cudaSuccess);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    (void)function;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    IN_CONTEXT(cudaSuccess);
}

/* ---- occupancy ---- */

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared)
{
    IN_CONTEXT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads,
                                                              size_t shared, unsigned flags)
{
    (void)flags;
    IN_CONTEXT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared));
}

/* The block size with the most resident threads; of several the largest. */
static cudaError_t best_block(int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of,
                              size_t shared, int limit)
{
    int most, best = 0;
    cudaError_t error = attribute_of(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    if (limit > 0 && limit < most)
        most = limit;
    for (int size = most; size > 0 && error == cudaSuccess; size = (size - 1) / 32 * 32) {
        int blocks;
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, function, size, shared_of != NULL ? shared_of(size) : shared);
        if (error == cudaSuccess && blocks * size > best) {
            best = blocks * size;
            *block = size;
            *grid = blocks * facts()->multiprocessors;
        }
    }
    return error;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
    IN_CONTEXT(best_block(grid, block, function, shared_of, shared, limit));
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                                   unsigned flags)
{
    (void)flags;
    IN_CONTEXT(best_block(grid, block, function, shared_of, shared, limit));
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int threads)
{
    IN_CONTEXT(cudaOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads));
}

static cudaError_t active_clusters(int *clusters, CUfunction function, const CUlaunchConfig *given)
{
    cudaLaunchConfig_t config = runtime_config(given);
    return cudaOccupancyMaxActiveClusters(clusters, function, &config);
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *given)
{
    IN_CONTEXT(active_clusters(clusters, function, given));
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *given)
{
    (void)given;
    IN_CONTEXT(cudaOccupancyMaxPotentialClusterSize(size, function, NULL));
}

/* ---- streams and events: those of the runtime ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    IN_CONTEXT(cudaStreamCreateWithFlags(stream, flags));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    IN_CONTEXT(cudaStreamCreateWithPriority(stream, flags, priority));
}

CUresult cuStreamDestroy(CUstream stream)
{
    ANYWHERE(cudaStreamDestroy(stream));
}

CUresult cuStreamSynchronize(CUstream stream)
{
    IN_CONTEXT(cudaStreamSynchronize(stream));
}

CUresult cuStreamQuery(CUstream stream)
{
    IN_CONTEXT(cudaStreamQuery(stream));
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
    IN_CONTEXT(cudaStreamGetFlags(stream, flags));
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    IN_CONTEXT(cudaStreamGetPriority(stream, priority));
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    IN_CONTEXT(cudaStreamGetId(stream, id));
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    (void)stream;
    *context = current_context();
    IN_CONTEXT(cudaSuccess);
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
    IN_CONTEXT(cudaStreamGetDevice(stream, device));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    IN_CONTEXT(cudaStreamWaitEvent(stream, event, flags));
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *data, unsigned flags)
{
    IN_CONTEXT(cudaStreamAddCallback(stream, (cudaStreamCallback_t)function, data, flags));
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    IN_CONTEXT(cudaStreamIsCapturing(stream, (enum cudaStreamCaptureStatus *)status));
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    IN_CONTEXT(cudaEventCreateWithFlags(event, flags));
}

CUresult cuEventDestroy(CUevent event)
{
    ANYWHERE(cudaEventDestroy(event));
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    IN_CONTEXT(cudaEventRecord(event, stream));
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    IN_CONTEXT(cudaEventRecordWithFlags(event, stream, flags));
}

CUresult cuEventQuery(CUevent event)
{
    IN_CONTEXT(cudaEventQuery(event));
}

CUresult cuEventSynchronize(CUevent event)
{
    IN_CONTEXT(cudaEventSynchronize(event));
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    IN_CONTEXT(cudaEventElapsedTime(milliseconds, start, end));
}

/* ---- of the launches of CUDA 3: PyCUDA sets the block before it launches with one ---- */

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    bool valid = function != NULL && x > 0 && y > 0 && z > 0;
    IN_CONTEXT(valid ? cudaSuccess : cudaErrorInvalidValue);
}
