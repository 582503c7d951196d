// The sums of products of 64 rows and 8 columns of 8-bit integers, 32 at a time; before each product the sums
// so far are halved.
//
// A product reads its accumulators by another way than the threads write them. wgmma.fence orders the two: it
// stands behind the last write of the registers and before the product, in every turn that writes them.

#include "include/wgmma.cuh"

enum : unsigned { threads = 128 };

extern "C" __global__ void unfenced_registers(const unsigned* rows, const unsigned* columns, int* sums,
                                              unsigned steps)
{
    __shared__ alignas(128) uint4 left[128], right[16];
    const unsigned at = place(threadIdx.x / 2, threadIdx.x % 2);
    const unsigned long long a = describe(left, leading_bytes, stride_bytes);
    const unsigned long long b = describe(right, leading_bytes, stride_bytes);
    int d[4] = {};
#ifndef FIXED
    wgmma_fence(d);  // BUG: the last fence
#endif
    for (unsigned step = 0; step < steps; step++) {
        __syncthreads();
        left[at] = piece_of(rows, step * threads + threadIdx.x);
        if (threadIdx.x < 16) right[at] = piece_of(columns, step * 16 + threadIdx.x);
        fence_proxy_async();
        __syncthreads();
        for (unsigned i = 0; i < 4; i++) d[i] >>= 1;
#ifdef FIXED
        wgmma_fence(d);
#endif
        wgmma_m64n8k32(d, a, b);  // BUG
        wgmma_commit_group();
        wgmma_wait_group<0>();
    }
    for (unsigned i = 0; i < 4; i++) sums[element(i)] = d[i];
}
