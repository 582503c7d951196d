// Every lane of a warp takes one lock: lanes that wait need the lane that holds it.
#include "check.h"

__global__ void add(int *lock, int *sum)
{
    while (atomicCAS(lock, 0, 1) != 0)
        ;
    __threadfence();
    *sum += 1;
    __threadfence();
    atomicExch(lock, 0);
}

int main()
{
    int *words, host[2] = {0, 0};
    CUDA(cudaMalloc(&words, sizeof host));
    CUDA(cudaMemcpy(words, host, sizeof host, cudaMemcpyHostToDevice));
    add<<<1, 32>>>(words, words + 1);
    cudaError_t error = cudaGetLastError();
    cudaMemcpy(host, words, sizeof host, cudaMemcpyDeviceToHost);
    printf("lock: %s %d\n", cudaGetErrorName(error), host[1]);
    return 0;
}
