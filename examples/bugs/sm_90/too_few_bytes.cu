// The products of two arrays, element by element; bulk copies bring a tile of each.
//
// An mbarrier completes a phase when as many bytes have arrived as it expects, whichever they are.
// Expected are those of all copies that it counts, not of the first.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 64 };

extern "C" __global__ void too_few_bytes(const unsigned* x, const unsigned* y, unsigned* products)
{
    __shared__ alignas(16) unsigned a[threads], b[threads];
    __shared__ cuda::std::uint64_t full;
    const unsigned first = blockIdx.x * threads;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init(sem_release, scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
#ifndef FIXED
        const unsigned bytes = sizeof a;
#else
        const unsigned bytes = sizeof a + sizeof b;
#endif
        mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &full, bytes);  // BUG: expects
        cp_async_bulk(space_cluster, space_global, a, x + first, sizeof a, &full);  // BUG: the other copy
        cp_async_bulk(space_cluster, space_global, b, y + first, sizeof b, &full);  // BUG
    }
    while (!mbarrier_try_wait_parity(&full, 0)) {}
    products[first + threadIdx.x] = a[threadIdx.x] * b[threadIdx.x];  // BUG: the read
}
