// Memory that host and device share: managed, pinned, registered; a managed variable; facts about pointers.
#include "check.h"

__managed__ int total = 5;

__global__ void count(const int *x, int *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i] + 1;
        atomicAdd(&total, 1);
    }
}

static cudaMemoryType type_of(const void *pointer)
{
    cudaPointerAttributes attributes;
    CUDA(cudaPointerGetAttributes(&attributes, pointer));
    return attributes.type;
}

int main()
{
    const int n = 3000;
    int *managed, *pinned, *own = (int *)malloc(n * sizeof *own), *seen, local;
    CUDA(cudaMallocManaged(&managed, n * sizeof *managed));
    CUDA(cudaHostAlloc(&pinned, n * sizeof *pinned, cudaHostAllocMapped));
    for (int i = 0; i < n; i++)
        managed[i] = i, own[i] = -1;
    CUDA(cudaHostRegister(own, n * sizeof *own, cudaHostRegisterDefault));
    CHECK(own[n - 1] == -1);
    CUDA(cudaHostGetDevicePointer(&seen, pinned, 0));
    CHECK(total == 5);
    count<<<(n + 255) / 256, 256>>>(managed, seen, n);
    CUDA(cudaDeviceSynchronize());
    CHECK(total == 5 + n);
    total = 0;
    count<<<(n + 255) / 256, 256>>>(pinned, own, n);
    CUDA(cudaDeviceSynchronize());
    CHECK(total == n);
    for (int i = 0; i < n; i++)
        CHECK(pinned[i] == i + 1 && own[i] == i + 2);
    CUDA(cudaMemcpy(managed, own, n * sizeof *own, cudaMemcpyDefault));
    CHECK(managed[7] == 9);
    CHECK(type_of(managed) == cudaMemoryTypeManaged && type_of(pinned) == cudaMemoryTypeHost);
    CHECK(type_of(&local) == cudaMemoryTypeUnregistered && type_of(own) == cudaMemoryTypeHost);
    CUDA(cudaHostUnregister(own));
    CHECK(own[n - 1] == n + 1);
    free(own);
    CUDA(cudaFree(managed));
    CUDA(cudaFreeHost(pinned));
    puts("managed: right");
    return 0;
}
