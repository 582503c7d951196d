/* Memory pools by the driver's functions: those of the runtime, whose attributes have the same numbers. */
#include "driver.h"

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    ANYWHERE(cudaDeviceGetDefaultMemPool(pool, device));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    ANYWHERE(cudaDeviceGetMemPool(pool, device));
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    ANYWHERE(cudaDeviceSetMemPool(device, pool));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    (void)properties;
    ANYWHERE(cudaMemPoolCreate(pool, NULL));
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ANYWHERE(cudaMemPoolDestroy(pool));
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    ANYWHERE(cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)attribute, value));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    ANYWHERE(cudaMemPoolSetAttribute(pool, (enum cudaMemPoolAttr)attribute, value));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t size)
{
    ANYWHERE(cudaMemPoolTrimTo(pool, size));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
    IN_CONTEXT(cudaMallocFromPoolAsync((void **)address, size, pool, stream));
}
