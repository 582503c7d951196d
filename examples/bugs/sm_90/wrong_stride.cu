// The product of 64 rows and 8 columns of 8-bit integers.
//
// A descriptor says how far it is from one core matrix to the next: along the rows (leading) and across them
// (stride). With the stride of a tile whose rows are twice as long, the last rows lie behind the tile.

#include "include/wgmma.cuh"

extern "C" __global__ void wrong_stride(const unsigned* rows, const unsigned* columns, int* sums)
{
    __shared__ alignas(128) uint4 left[128], right[16];
    const unsigned at = place(threadIdx.x / 2, threadIdx.x % 2);
    left[at] = piece_of(rows, threadIdx.x);
    if (threadIdx.x < 16) right[at] = piece_of(columns, threadIdx.x);
    fence_proxy_async();
    __syncthreads();
#ifndef FIXED
    const unsigned stride = 2 * stride_bytes;  // BUG: of another tile
#else
    const unsigned stride = stride_bytes;
#endif
    int d[4] = {};
    const unsigned long long a = describe(left, leading_bytes, stride);
    wgmma_fence(d);
    wgmma_m64n8k32(d, a, describe(right, leading_bytes, stride_bytes));  // BUG
    wgmma_commit_group();
    wgmma_wait_group<0>();
    for (unsigned i = 0; i < 4; i++) sums[element(i)] = d[i];
}
