// Clusters by cudaLaunchKernelEx, distributed shared memory, and shared memory above 48 KiB.
#include "check.h"
#include <cooperative_groups.h>

__global__ void exchange(int *x)
{
    extern __shared__ int mine[];
    auto cluster = cooperative_groups::this_cluster();
    mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
    cluster.sync();
    int *other = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1);
    x[blockIdx.x * blockDim.x + threadIdx.x] = other[threadIdx.x];
    cluster.sync();
}

int main()
{
    int host[128], *x, shared = 100 << 10, clusters;
    CUDA(cudaMalloc(&x, sizeof host));
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = 4, config.blockDim = 32, config.attrs = &attribute, config.numAttrs = 1;
    config.dynamicSmemBytes = shared;
    CHECK(cudaLaunchKernelEx(&config, exchange, x) == cudaErrorInvalidValue);
    CUDA(cudaFuncSetAttribute(exchange, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CUDA(cudaOccupancyMaxActiveClusters(&clusters, exchange, &config));
    CHECK(clusters > 0);
    CUDA(cudaLaunchKernelEx(&config, exchange, x));
    CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 128; i++)
        CHECK(host[i] == (i / 32 ^ 1) * 100 + i % 32);
    cudaFuncAttributes attributes;
    CUDA(cudaFuncGetAttributes(&attributes, exchange));
    CHECK(attributes.maxThreadsPerBlock == 1024 && attributes.numRegs > 0);
    puts("cluster: right");
    return 0;
}
