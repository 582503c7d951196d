// Each number plus the one before it in its tile of 64, wrapping around. While a block adds up one tile,
// cp.async brings the next one.
//
// __pipeline_wait_prior(1) lets the latest group be in flight: the tile that is fetched ahead. Past the
// last tile nothing is fetched, and the latest group is that of the last tile itself.

#include <cuda_pipeline.h>

enum : unsigned { threads = 64 };

extern "C" __global__ void pipeline_tail(const unsigned* x, unsigned* y, unsigned tiles)
{
    __shared__ unsigned stages[2][threads];
    const unsigned first = blockIdx.x * tiles * threads + threadIdx.x;
    const unsigned* from = x + first;
    const unsigned before = (threadIdx.x + threads - 1) % threads;
    __pipeline_memcpy_async(&stages[0][threadIdx.x], from, 4);
    __pipeline_commit();
    for (unsigned tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            const unsigned next = tile + 1;
            __pipeline_memcpy_async(&stages[next % 2][threadIdx.x], from + next * threads, 4);  // BUG: copy
#ifndef FIXED
            __pipeline_commit();
        }
#else
        }
        __pipeline_commit();  // past the last tile an empty group
#endif
        __pipeline_wait_prior(1);
        __syncthreads();
        y[first + tile * threads] = stages[tile % 2][threadIdx.x] + stages[tile % 2][before];  // BUG
        __syncthreads();
    }
}
