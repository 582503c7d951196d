// A planted race in shared memory: the results may be right on a chip.
#include "check.h"

__global__ void reverse(int *x)
{
    __shared__ int tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[63 - threadIdx.x];
}

int main()
{
    int host[64], *x;
    for (int i = 0; i < 64; i++)
        host[i] = i;
    CUDA(cudaMalloc(&x, sizeof host));
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    reverse<<<1, 64>>>(x);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    puts("race: ended");
    return 0;
}
