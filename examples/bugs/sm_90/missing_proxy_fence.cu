// The squares of numbers; a bulk copy stores those of a block.
//
// Bulk copies read shared memory by another proxy than the threads write it by. A barrier orders the
// threads, and a fence of the two proxies, in the threads that wrote, makes what they wrote visible to the
// copy.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 128 };

extern "C" __global__ void missing_proxy_fence(const unsigned* x, unsigned* squares)
{
    __shared__ alignas(16) unsigned tile[threads];
    const unsigned first = blockIdx.x * threads, number = x[first + threadIdx.x];
    tile[threadIdx.x] = number * number;  // BUG: the write
#ifdef FIXED
    fence_proxy_async(space_shared);
#endif
    __syncthreads();
    if (threadIdx.x == 0) {
        cp_async_bulk(space_global, space_shared, squares + first, tile, sizeof tile);  // BUG
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read(n32_t<0>());
    }
}
