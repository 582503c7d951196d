// Each 128 numbers, back to front, by way of shared memory.
//
// __pipeline_wait_prior() waits for the copies of the thread that executes it. What others have copied is
// there after a barrier behind their waits.

#include <cuda_pipeline.h>

enum : unsigned { threads = 128 };

extern "C" __global__ void unshared_wait(const unsigned* x, unsigned* y, unsigned n)
{
    __shared__ unsigned tile[threads];
    const unsigned i = blockIdx.x * threads + threadIdx.x;
    const size_t missing = i < n ? 0 : 4;  // numbers past the end become zeros
    __pipeline_memcpy_async(&tile[threadIdx.x], i < n ? &x[i] : x, 4, missing);  // BUG: the copy
    __pipeline_commit();
    __pipeline_wait_prior(0);
#ifdef FIXED
    __syncthreads();
#endif
    y[i] = tile[threads - 1 - threadIdx.x];  // BUG
}
