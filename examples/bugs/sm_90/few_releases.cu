// The sums of the columns of a matrix of 64 columns: one warp fetches rows into a ring of two, two warps
// add them.
//
// The warp that fetches waits until the place is empty: all that add have released it. Each warp releases
// by one of its lanes, so there are two arrivals, not 64.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { warp_size = 32, columns = 64, stages = 2 };

// Launched with 96 threads: the last warp fetches.
extern "C" __global__ void few_releases(const unsigned* x, unsigned* sums, unsigned rows)
{
    __shared__ alignas(16) unsigned ring[stages][columns];
    __shared__ cuda::std::uint64_t full[stages], empty[stages];
#ifndef FIXED
    const unsigned releases = columns;
#else
    const unsigned releases = columns / warp_size;
#endif
    if (threadIdx.x < stages) {
        mbarrier_init(&full[threadIdx.x], 1);
        mbarrier_init(&empty[threadIdx.x], releases);  // BUG: expects
        fence_mbarrier_init(sem_release, scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x >= columns) {
        if (threadIdx.x > columns) return;
        for (unsigned row = 0; row < rows; row++) {
            const unsigned stage = row % stages, bytes = sizeof ring[stage];
            while (!mbarrier_try_wait_parity(&empty[stage], 1 ^ row / stages % 2)) {}  // BUG: waits for ever
            mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &full[stage], bytes);
            const unsigned* from = x + (blockIdx.x * rows + row) * columns;
            cp_async_bulk(space_cluster, space_global, ring[stage], from, bytes, &full[stage]);
        }
        return;
    }
    unsigned sum = 0;
    for (unsigned row = 0; row < rows; row++) {
        const unsigned stage = row % stages;
        while (!mbarrier_try_wait_parity(&full[stage], row / stages % 2)) {}  // BUG
        sum += ring[stage][threadIdx.x];
        __syncwarp();
        if (threadIdx.x % warp_size == 0) mbarrier_arrive(&empty[stage]);
    }
    sums[blockIdx.x * columns + threadIdx.x] = sum;
}
