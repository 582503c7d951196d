// The product of 64 rows and 8 columns of 8-bit integers, 32 at a time, on a warpgroup's tensor cores.
//
// wgmma.wait_group 1 lets the latest group be in flight. In a loop that loads the next tiles meanwhile that
// is right; behind it, the accumulators are not there yet.

#include "include/wgmma.cuh"

enum : unsigned { threads = 128, steps = 3 };

extern "C" __global__ void unfinished_product(const unsigned* rows, const unsigned* columns, int* sums)
{
    __shared__ alignas(128) uint4 left[steps][128], right[steps][16];
    for (unsigned i = threadIdx.x; i < steps * 128; i += threads) {
        const unsigned step = i / 128, at = place(i % 128 / 2, i % 2);
        left[step][at] = piece_of(rows, i);
        if (i % 128 < 16) right[step][at] = piece_of(columns, step * 16 + i % 128);
    }
    fence_proxy_async();
    __syncthreads();
    int d[4] = {};
    wgmma_fence(d);
    for (unsigned step = 0; step < steps; step++) {
        const unsigned long long a = describe(left[step], leading_bytes, stride_bytes);
        wgmma_m64n8k32(d, a, describe(right[step], leading_bytes, stride_bytes));  // BUG: the product
        wgmma_commit_group();
    }
#ifndef FIXED
    wgmma_wait_group<1>();
#else
    wgmma_wait_group<0>();
#endif
    for (unsigned i = 0; i < 4; i++) sums[element(i)] = d[i];  // BUG
}
