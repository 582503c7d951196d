// Host code that reads device memory.
#include "check.h"

int main()
{
    int *x;
    CUDA(cudaMalloc(&x, 64));
    puts("before");
    fflush(stdout);
    return x[4];
}
