// A thread that waits for what nobody does.
#include "check.h"

__global__ void wait(volatile int *flag)
{
    while (*flag == 0)
        ;
}

int main()
{
    int *flag;
    CUDA(cudaMalloc(&flag, sizeof *flag));
    CUDA(cudaMemset(flag, 0, sizeof *flag));
    wait<<<1, 1>>>(flag);
    cudaError_t error = cudaDeviceSynchronize();
    printf("deadlock: %s\n", cudaGetErrorName(error));
    return 1;
}
