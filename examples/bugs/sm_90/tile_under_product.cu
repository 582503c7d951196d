// The product of 64 rows and 8 columns of 8-bit integers, 32 at a time: while the tensor cores multiply
// one pair of tiles, the threads write the next one beside it.
//
// A product reads its tiles until it ends. With two pairs, the product before the latest one must have
// ended before its tiles are written again: one group may be in flight, not two.

#include "include/wgmma.cuh"

enum : unsigned { threads = 128 };

extern "C" __global__ void tile_under_product(const unsigned* rows, const unsigned* columns, int* sums,
                                              unsigned steps)
{
    __shared__ alignas(128) uint4 left[2][128], right[2][16];
    const unsigned at = place(threadIdx.x / 2, threadIdx.x % 2);
    int d[4] = {};
    for (unsigned step = 0; step < steps; step++) {
        const unsigned pair = step % 2;
        left[pair][at] = piece_of(rows, step * 128 + threadIdx.x);  // BUG
        if (threadIdx.x < 16) right[pair][at] = piece_of(columns, step * 16 + threadIdx.x);
        fence_proxy_async();
        __syncthreads();
        wgmma_fence(d);
        const unsigned long long a = describe(left[pair], leading_bytes, stride_bytes);
        wgmma_m64n8k32(d, a, describe(right[pair], leading_bytes, stride_bytes));  // BUG: the product
        wgmma_commit_group();
#ifndef FIXED
        wgmma_wait_group<2>();
#else
        wgmma_wait_group<1>();
        __syncthreads();
#endif
    }
    wgmma_wait_group<0>();
    for (unsigned i = 0; i < 4; i++) sums[element(i)] = d[i];
}
