// A kernel that counts for a long time: for Ctrl-C.
#include "check.h"
#include <unistd.h>

__global__ void count(unsigned *x, unsigned n)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < n && sum != 77; i++)
        sum = sum * 3 + i;
    *x = sum;
}

int main()
{
    unsigned *x;
    CUDA(cudaMalloc(&x, sizeof *x));
    printf("%d\n", (int)getpid());
    fflush(stdout);
    count<<<1, 1>>>(x, 4000000000u);
    return cudaDeviceSynchronize();
}
