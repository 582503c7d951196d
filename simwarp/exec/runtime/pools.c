/* Memory pools. They are all one: memory is allocated when it is asked for, and nothing is kept for later. */
#include "simwarp.h"

static cudaMemPool_t the_pool = (cudaMemPool_t)DEVICE_WINDOW;

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
    (void)properties;
    *pool = the_pool;
    FINISH(cudaSuccess);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    (void)pool;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    (void)device;
    *pool = the_pool;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device)
{
    (void)device;
    *pool = the_pool;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
    (void)device, (void)pool;
    FINISH(cudaSuccess);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    (void)pool, (void)attribute, (void)value;
    FINISH(cudaSuccess);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t size)
{
    (void)pool, (void)size;
    FINISH(cudaSuccess);
}

/* What a pool holds and holds in reserve: nothing. */
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    (void)pool;
    bool is_flag = attribute <= cudaMemPoolReuseAllowInternalDependencies;
    memset(value, 0, is_flag ? sizeof(int) : sizeof(uint64_t));
    FINISH(cudaSuccess);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count)
{
    (void)pool, (void)access, (void)count;
    FINISH(cudaSuccess);
}
