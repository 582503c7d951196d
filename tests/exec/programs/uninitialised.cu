// A sum over an array of which half was written; a copy that is too long.
#include "check.h"

__global__ void sum(const int *x, int last, int *y)
{
    *y = x[0] + x[last];
}

__global__ void subtract(const int *x, int last, int *y)
{
    *y = x[0] - x[last];
}

int main()
{
    int host[32] = {}, *x, *y;
    CUDA(cudaMalloc(&x, 64 * sizeof *x));
    CUDA(cudaMalloc(&y, sizeof *y));
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    sum<<<1, 1>>>(x, 63, y);
    CUDA(cudaDeviceSynchronize());
    int *managed;
    CUDA(cudaMallocManaged(&managed, 64 * 4096));
    managed[0] = managed[5000] = 1;
    subtract<<<1, 1>>>(managed, 5000, y);  // the host wrote both
    subtract<<<1, 1>>>(managed, 50000, y); // nobody touched that page
    CUDA(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(y, host, 2 * sizeof *y, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaFree(x + 7) == cudaErrorInvalidValue);
    puts("uninitialised: ended");
    return 0;
}
