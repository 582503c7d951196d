// What kernels print stays in order with what the host prints; a failed assert.
#include "check.h"
#include <cassert>

__global__ void say(int number)
{
    printf("kernel %d, thread %d\n", number, (int)threadIdx.x);
    assert(number < 2);
}

int main()
{
    printf("host 0\n");
    say<<<1, 2>>>(1);
    CUDA(cudaDeviceSynchronize());
    printf("host 1\n");
    say<<<1, 1>>>(2);
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    return 0;
}
