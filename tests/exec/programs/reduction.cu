// Vector addition and a reduction; properties of the device; errors that pass.
#include "check.h"
#include <cstring>
#include <vector>

__global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

template <typename T> __global__ void reduce(const T *x, T *sum, int n)
{
    extern __shared__ T part[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : T(0);
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(sum, part[0]);
}

int main(int count, char **arguments)
{
    CHECK(count == 3 && !strcmp(arguments[1], "--size"));
    int n = atoi(arguments[2]), devices;
    cudaDeviceProp properties;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaGetDeviceProperties(&properties, 0));
    CHECK(devices == 1 && properties.major == 9 && properties.warpSize == 32);
    int threads;
    CUDA(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerBlock, 0));
    CHECK(threads == properties.maxThreadsPerBlock);

    std::vector<float> a(n), b(n), c(n);
    float expected = 0;
    for (int i = 0; i < n; i++)
        a[i] = i % 7, b[i] = i % 5, expected += a[i] + b[i];
    float *x, *y, *z, *sum;
    CUDA(cudaMalloc(&x, n * sizeof *x));
    CUDA(cudaMalloc(&y, n * sizeof *y));
    CUDA(cudaMalloc(&z, n * sizeof *z));
    CUDA(cudaMalloc(&sum, sizeof *sum));
    CUDA(cudaMemcpy(x, a.data(), n * sizeof *x, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(y, b.data(), n * sizeof *y, cudaMemcpyDefault));
    CUDA(cudaMemset(sum, 0, sizeof *sum));
    int blocks = (n + 127) / 128;
    add<<<blocks, 128>>>(x, y, z, n);
    reduce<float><<<blocks, 128, 128 * sizeof(float)>>>(z, sum, n);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    float found;
    CUDA(cudaMemcpy(c.data(), z, n * sizeof *z, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(&found, sum, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        CHECK(c[i] == a[i] + b[i]);
    CHECK(found == expected);

    size_t unused, total;
    CUDA(cudaMemGetInfo(&unused, &total));
    CHECK(unused < total);
    CHECK(cudaMalloc(&x, total + 1) == cudaErrorMemoryAllocation && x == nullptr);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    add<<<1, 4096>>>(x, y, z, n);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice && cudaPeekAtLastError() == cudaErrorInvalidDevice);
    CHECK(!strcmp(cudaGetErrorName(cudaGetLastError()), "cudaErrorInvalidDevice"));
    CUDA(cudaFree(y));
    CUDA(cudaFree(z));
    CUDA(cudaFree(sum));
    CUDA(cudaFree(nullptr));
    puts("reduction: right");
    return 0;
}
