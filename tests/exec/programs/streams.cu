// Streams and events, callbacks, copies that are asynchronous, occupancy.
#include "check.h"
#include <cstdint>
#include <vector>

__global__ void scale(int *x, int factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= factor;
}

static void CUDART_CB called(void *data)
{
    *(int *)data += 1;
}

int main()
{
    const int n = 1000;
    cudaStream_t first, second;
    cudaEvent_t start, half, end;
    CUDA(cudaStreamCreate(&first));
    CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreateWithFlags(&half, cudaEventDisableTiming));
    CUDA(cudaEventCreate(&end));
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
    cudaGetLastError();

    int *host, *device, calls = 0;
    CUDA(cudaMallocHost(&host, n * sizeof *host));
    CUDA(cudaMallocAsync(&device, n * sizeof *device, first));
    for (int i = 0; i < n; i++)
        host[i] = i;
    int blocks, threads;
    CUDA(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, scale, 0, 0));
    CHECK(threads >= 128 && threads <= 1024 && blocks >= 132);
    CUDA(cudaEventRecord(start, first));
    CUDA(cudaMemcpyAsync(device, host, n * sizeof *host, cudaMemcpyHostToDevice, first));
    scale<<<(n + 255) / 256, 256, 0, first>>>(device, 3, n);
    CUDA(cudaEventRecord(half, first));
    CUDA(cudaStreamWaitEvent(second, half, 0));
    scale<<<(n + 255) / 256, 256, 0, second>>>(device, 5, n);
    CUDA(cudaLaunchHostFunc(second, called, &calls));
    CUDA(cudaMemcpyAsync(host, device, n * sizeof *host, cudaMemcpyDeviceToHost, second));
    CUDA(cudaEventRecord(end, second));
    CUDA(cudaStreamSynchronize(first));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&milliseconds, start, end));
    CHECK(milliseconds > 0 && calls == 1 && cudaStreamQuery(second) == cudaSuccess);
    for (int i = 0; i < n; i++)
        CHECK(host[i] == 15 * i);
    CUDA(cudaFreeAsync(device, first));
    cudaMemPool_t pool;
    uint64_t bytes = 1 << 20;
    CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes));
    CUDA(cudaMallocFromPoolAsync((void **)&device, n, pool, second));
    CUDA(cudaMemsetAsync(device, 0, n, second));
    CUDA(cudaFreeAsync(device, second));
    CUDA(cudaMemPoolTrimTo(pool, 0));
    CUDA(cudaFreeHost(host));
    CUDA(cudaEventDestroy(start));
    CUDA(cudaStreamDestroy(first));
    CUDA(cudaStreamDestroy(second));
    puts("streams: right");
    return 0;
}
