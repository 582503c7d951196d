/* Launches, attributes of kernels, occupancy. */
#include "simwarp.h"

/* ---- kernel<<<grid, block, shared, stream>>> ---- */

struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
static _Thread_local struct configuration pushed[8];
static _Thread_local unsigned depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    if (depth == sizeof pushed / sizeof pushed[0])
        return 1;
    pushed[depth++] = (struct configuration){grid, block, shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    if (depth == 0)
        return cudaErrorMissingConfiguration;
    struct configuration *top = &pushed[--depth];
    *grid = top->grid;
    *block = top->block;
    *shared = top->shared;
    *(cudaStream_t *)stream = top->stream;
    return cudaSuccess;
}

/* The work of a launch, with a copy of its arguments. */
cudaError_t launch_work(const void *stub, struct launch launch, void **arguments, struct work *work)
{
    struct function *function;
    cudaError_t error = function_of(stub, &function);
    if (error != cudaSuccess)
        return error;
    size_t size = sizeof launch;
    for (int i = 0; i < function->parameters; i++)
        size += function->sizes[i];
    launch.function = function->number;
    *work = (struct work){.kind = WORK_LAUNCH, .launch = malloc(size), .launch_size = size};
    if (work->launch == NULL)
        return cudaErrorMemoryAllocation;
    *work->launch = launch;
    char *at = (char *)(work->launch + 1);
    for (int i = 0; i < function->parameters; at += function->sizes[i], i++)
        memcpy(at, arguments[i], function->sizes[i]);
    return cudaSuccess;
}

static cudaError_t launch_kernel(const void *stub, struct launch launch, void **arguments,
                                 cudaStream_t stream)
{
    struct work work;
    launch.stream = (uint64_t)stream;
    cudaError_t error = launch_work(stub, launch, arguments, &work);
    return error == cudaSuccess ? submit(stream, work) : error;
}

static struct launch launch_of(dim3 grid, dim3 block, size_t shared, unsigned flags)
{
    return (struct launch){.shared = shared,
                           .grid = {grid.x, grid.y, grid.z},
                           .block = {block.x, block.y, block.z},
                           .flags = flags};
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream)
{
    FINISH(launch_kernel(stub, launch_of(grid, block, shared, 0), arguments, stream));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                                        size_t shared, cudaStream_t stream)
{
    FINISH(launch_kernel(stub, launch_of(grid, block, shared, LAUNCH_COOPERATIVE), arguments, stream));
}

static void add_attribute(struct launch *launch, const cudaLaunchAttribute *one)
{
    switch (one->id) {
    case cudaLaunchAttributeClusterDimension:
        launch->cluster[0] = one->val.clusterDim.x;
        launch->cluster[1] = one->val.clusterDim.y;
        launch->cluster[2] = one->val.clusterDim.z;
        break;
    case cudaLaunchAttributeCooperative:
        launch->flags |= one->val.cooperative ? LAUNCH_COOPERATIVE : 0;
        break;
    case cudaLaunchAttributeProgrammaticStreamSerialization:
        launch->flags |= one->val.programmaticStreamSerializationAllowed ? LAUNCH_DEPENDENT : 0;
        break;
    default: /* priorities and the like change no result */ break;
    }
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *stub, void **arguments)
{
    struct launch launch = launch_of(config->gridDim, config->blockDim, config->dynamicSmemBytes, 0);
    for (unsigned i = 0; i < config->numAttrs; i++)
        add_attribute(&launch, &config->attrs[i]);
    FINISH(launch_kernel(stub, launch, arguments, config->stream));
}

/* ---- kernels ---- */

/* The stub of a kernel calls this once; an error comes with the launch, which looks for the kernel again. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub)
{
    *kernel = (cudaKernel_t)stub;
    return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *stub)
{
    struct function *function;
    cudaError_t error = function_of(stub, &function);
    *kernel = (cudaKernel_t)stub;
    FINISH(error);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *found, const void *stub)
{
    struct function *function;
    cudaError_t error = function_of(stub, &function);
    *found = (cudaFunction_t)stub;
    FINISH(error);
}

cudaError_t cudaFuncGetName(const char **name, const void *stub)
{
    struct function *function;
    cudaError_t error = function_of(stub, &function);
    if (error == cudaSuccess)
        *name = function->name;
    FINISH(error);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *stub)
{
    struct function *function;
    cudaError_t error = function_of(stub, &function);
    if (error != cudaSuccess)
        FINISH(error);
    struct call call = {.request = ASK_ATTRIBUTES, .arguments = {function->number}};
    error = ask(&call);
    int version = facts()->major * 10 + facts()->minor;
    *found = (struct cudaFuncAttributes){.numRegs = (int)call.values[0],
                                         .sharedSizeBytes = call.values[1],
                                         .localSizeBytes = call.values[2],
                                         .maxThreadsPerBlock = (int)call.values[3],
                                         .constSizeBytes = call.values[4],
                                         .maxDynamicSharedSizeBytes = (48 << 10) - (int)call.values[1],
                                         .ptxVersion = version,
                                         .binaryVersion = version};
    FINISH(error);
}

cudaError_t cudaFuncSetAttribute(const void *stub, enum cudaFuncAttribute attribute, int value)
{
    struct function *function;
    cudaError_t error = function_of(stub, &function);
    if (error == cudaSuccess && attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        struct call call = {.request = ASK_DYNAMIC_SHARED, .arguments = {function->number, (uint64_t)value}};
        error = value < 0 ? cudaErrorInvalidValue : ask(&call);
    }
    FINISH(error);
}

cudaError_t cudaFuncSetCacheConfig(const void *stub, enum cudaFuncCache config)
{
    struct function *function;
    (void)config;
    FINISH(function_of(stub, &function));
}

cudaError_t cudaFuncSetSharedMemConfig(const void *stub, enum cudaSharedMemConfig config)
{
    struct function *function;
    (void)config;
    FINISH(function_of(stub, &function));
}

/* ---- occupancy ---- */

static cudaError_t blocks_of(const void *stub, uint64_t threads, uint64_t shared, uint64_t cluster,
                             int *blocks)
{
    struct function *function;
    cudaError_t error = function_of(stub, &function);
    if (error != cudaSuccess)
        return error;
    struct call call = {.request = ASK_OCCUPANCY, .arguments = {function->number, threads, shared, cluster}};
    error = ask(&call);
    *blocks = (int)call.values[0];
    return error;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *stub, int threads,
                                                          size_t shared)
{
    FINISH(blocks_of(stub, (uint64_t)threads, shared, 1, blocks));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *stub, int threads,
                                                                   size_t shared, unsigned flags)
{
    (void)flags;
    FINISH(blocks_of(stub, (uint64_t)threads, shared, 1, blocks));
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *stub, int blocks,
                                                      int threads)
{
    struct function *function;
    cudaError_t error = function_of(stub, &function);
    (void)threads;
    if (error == cudaSuccess && blocks < 1)
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        FINISH(error);
    struct call call = {.request = ASK_ATTRIBUTES, .arguments = {function->number}};
    error = ask(&call);
    int each = facts()->shared_per_multiprocessor / blocks - facts()->shared_reserved;
    int most = each < facts()->shared_per_block ? each : facts()->shared_per_block;
    *bytes = most > (int)call.values[1] ? (size_t)most - call.values[1] : 0;
    FINISH(error);
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *stub, const cudaLaunchConfig_t *config)
{
    struct launch launch = {.cluster = {1, 1, 1}};
    for (unsigned i = 0; i < config->numAttrs; i++)
        add_attribute(&launch, &config->attrs[i]);
    uint64_t size = (uint64_t)launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
    uint64_t threads = (uint64_t)config->blockDim.x * config->blockDim.y * config->blockDim.z;
    int blocks = 0;
    cudaError_t error = blocks_of(stub, threads, config->dynamicSmemBytes, size, &blocks);
    *clusters = (int)((uint64_t)(blocks * facts()->multiprocessors) / size);
    FINISH(error);
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *stub,
                                                 const cudaLaunchConfig_t *config)
{
    struct function *function;
    (void)config;
    *size = facts()->blocks_per_cluster < 8 ? facts()->blocks_per_cluster : 8;
    FINISH(function_of(stub, &function));
}
