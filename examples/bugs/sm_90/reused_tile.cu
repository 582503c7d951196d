// The squares of numbers, tile by tile; a bulk copy stores each tile while the block goes on.
//
// A bulk copy reads its tile after its instruction has been executed. The next squares may be written
// there when the thread that issued it has waited for its reads, and the others have met that thread.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 64 };

extern "C" __global__ void reused_tile(const unsigned* x, unsigned* squares, unsigned tiles)
{
    __shared__ alignas(16) unsigned tile[threads];
    for (unsigned i = 0; i < tiles; i++) {
        const unsigned first = (blockIdx.x * tiles + i) * threads, number = x[first + threadIdx.x];
#ifdef FIXED
        if (threadIdx.x == 0) cp_async_bulk_wait_group_read(n32_t<0>());
#endif
        __syncthreads();
        tile[threadIdx.x] = number * number;  // BUG
        fence_proxy_async(space_shared);
        __syncthreads();
        if (threadIdx.x == 0) {
            cp_async_bulk(space_global, space_shared, squares + first, tile, sizeof tile);  // BUG: the copy
            cp_async_bulk_commit_group();
        }
    }
    if (threadIdx.x == 0) cp_async_bulk_wait_group_read(n32_t<0>());
}
