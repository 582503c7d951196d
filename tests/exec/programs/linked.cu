// Device code of two files, linked with -rdc=true: functions, variables, templates that both instantiate.
#include "check.h"
#include "linked.h"

__global__ void first(float *x)
{
    x[threadIdx.x] = twice(x[threadIdx.x]) + factors[1] + half_of(4.0f);
    atomicAdd(&total, 1);
}

int main()
{
    float host[32] = {1, 2, 3}, *x;
    int found;
    CUDA(cudaMalloc(&x, sizeof host));
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyDefault));
    first<<<1, 32>>>(x);
    launch_second(x);
    CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDefault));
    CUDA(cudaMemcpyFromSymbol(&found, total, sizeof found));
    CHECK(found == 132 && host[0] == 15 && host[1] == 17 && host[31] == 13);
    puts("linked: right");
    return 0;
}
