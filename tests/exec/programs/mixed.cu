// The runtime and the driver in one program: one context, handles and addresses of each in the other.
#include "check.h"
#include <cuda.h>

__global__ void add(int *x, int n)
{
    if (threadIdx.x < n)
        x[threadIdx.x] += 1;
}

int main()
{
    int *x, n = 64, found[64];
    CUDA(cudaMalloc(&x, sizeof found));
    CUcontext context;
    CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr); // the primary one
    CHECK(cuMemsetD32((CUdeviceptr)x, 4, 64) == CUDA_SUCCESS);

    cudaFunction_t function;
    cudaStream_t stream;
    CUDA(cudaGetFuncBySymbol(&function, (const void *)add));
    CUDA(cudaStreamCreate(&stream));
    void *arguments[] = {&x, &n};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr) == CUDA_SUCCESS);
    CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    add<<<1, 64, 0, stream>>>(x, n);

    decltype(&cuMemcpyDtoH) copy;
    cudaDriverEntryPointQueryResult result;
    CUDA(cudaGetDriverEntryPointByVersion("cuMemcpyDtoH", (void **)&copy, CUDART_VERSION, 0, &result));
    CHECK(result == cudaDriverEntryPointSuccess && copy == cuMemcpyDtoH);
    CHECK(copy(found, (CUdeviceptr)x, sizeof found) == CUDA_SUCCESS);
    CHECK(found[0] == 6 && found[63] == 6);

    CHECK(cuMemFree((CUdeviceptr)x) == CUDA_SUCCESS);
    CUDA(cudaGetLastError());
    puts("mixed: right");
    return 0;
}
