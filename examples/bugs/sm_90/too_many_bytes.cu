// Each 64 numbers, back to front; a bulk copy brings them. The last block has fewer.
//
// An mbarrier completes a phase when all bytes that it expects have arrived. For the last tile it expects
// a whole one, and the copy brings a part: the block waits for ever.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 64 };

// `n` is a multiple of four.
extern "C" __global__ void too_many_bytes(const unsigned* x, unsigned* y, unsigned n)
{
    __shared__ alignas(16) unsigned tile[threads];
    __shared__ cuda::std::uint64_t full;
    const unsigned first = blockIdx.x * threads, count = min(n - first, threads);
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init(sem_release, scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned bytes = count * sizeof(unsigned);
#ifndef FIXED
        const unsigned expected = sizeof tile;
#else
        const unsigned expected = bytes;
#endif
        mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &full, expected);  // BUG: expects
        cp_async_bulk(space_cluster, space_global, tile, x + first, bytes, &full);
    }
    while (!mbarrier_try_wait_parity(&full, 0)) {}  // BUG
    if (threadIdx.x < count) y[first + threadIdx.x] = tile[count - 1 - threadIdx.x];
}
