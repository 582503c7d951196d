// A write behind an array: the error stays until the device is reset.
#include "check.h"

__global__ void fill(int *x, int n)
{
    if (threadIdx.x <= n)
        x[threadIdx.x] = 1;
}

int main()
{
    int *x, *y;
    CUDA(cudaMalloc(&x, 100 * sizeof *x));
    fill<<<1, 128>>>(x, 100);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(cudaMalloc(&y, 4) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
    fill<<<1, 128>>>(x, 100); // nothing is done any more, so nothing is found
    CUDA(cudaDeviceReset());
    CUDA(cudaMalloc(&y, 4));
    puts("bounds: the error stays");
    return 9;
}
