// Each number plus one; the block's bulk copy stores them, and the kernel ends.
//
// The shared memory of a block that has exited belongs to the next one. The thread that issued a copy must
// not exit before the copy has read.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 128 };

extern "C" __global__ void unread_exit(const unsigned* x, unsigned* y)
{
    __shared__ alignas(16) unsigned tile[threads];
    const unsigned first = blockIdx.x * threads;
    tile[threadIdx.x] = x[first + threadIdx.x] + 1;
    fence_proxy_async(space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        cp_async_bulk(space_global, space_shared, y + first, tile, sizeof tile);  // BUG
        cp_async_bulk_commit_group();
#ifdef FIXED
        cp_async_bulk_wait_group_read(n32_t<0>());
#endif
    }
}  // BUG: the exit
