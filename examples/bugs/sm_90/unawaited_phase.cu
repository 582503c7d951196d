// Each block's numbers, back to front; a bulk copy brings them to shared memory.
//
// The thread that starts the copy also waits for it. What a wait orders, it orders for the thread that
// waits: the others must wait for the phase themselves, or meet that thread at a barrier.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 128 };

extern "C" __global__ void unawaited_phase(const unsigned* x, unsigned* y)
{
    __shared__ alignas(16) unsigned tile[threads];
    __shared__ cuda::std::uint64_t full;
    const unsigned first = blockIdx.x * threads;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init(sem_release, scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &full, sizeof tile);
        cp_async_bulk(space_cluster, space_global, tile, x + first, sizeof tile, &full);  // BUG: the copy
#ifndef FIXED
        while (!mbarrier_try_wait_parity(&full, 0)) {}
#endif
    }
#ifdef FIXED
    while (!mbarrier_try_wait_parity(&full, 0)) {}
#endif
    y[first + threadIdx.x] = tile[threads - 1 - threadIdx.x];  // BUG
}
