// The sums of the columns of a matrix of 64 columns, from right to left. A ring of three rows hides the
// way from memory: while a block adds one row, cp.async brings the next two.
//
// The row that is fetched takes the place of the one before. A thread may fetch only when all have read
// that one: behind the barrier, not before.

#include <cuda_pipeline.h>

enum : unsigned { threads = 64, stages = 3 };

extern "C" __global__ void early_refill(const unsigned* x, unsigned* sums, unsigned rows)
{
    __shared__ unsigned ring[stages][threads];
    const unsigned* column = x + blockIdx.x * rows * threads + threadIdx.x;
    const auto fetch = [&](unsigned row) {
        if (row < rows)
            __pipeline_memcpy_async(&ring[row % stages][threadIdx.x], column + row * threads, 4);  // BUG
        __pipeline_commit();
    };
    unsigned sum = 0;
    fetch(0);
    fetch(1);
    for (unsigned row = 0; row < rows; row++) {
#ifndef FIXED
        fetch(row + 2);
        __pipeline_wait_prior(2);
        __syncthreads();
#else
        __pipeline_wait_prior(1);
        __syncthreads();
        fetch(row + 2);
#endif
        sum += ring[row % stages][threads - 1 - threadIdx.x];  // BUG: the read
    }
    sums[blockIdx.x * threads + threadIdx.x] = sum;
}
