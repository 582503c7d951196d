// The sums of the columns of a matrix of 128 columns, from right to left; a bulk copy brings each row.
//
// The phases of an mbarrier have the parities 0, 1, 0, 1 …, and a wait for a parity passes when the phase
// before had it. In the second round a wait for parity 0 finds the end of the first.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 128 };

extern "C" __global__ void stale_parity(const unsigned* x, unsigned* sums, unsigned rows)
{
    __shared__ alignas(16) unsigned row[threads];
    __shared__ cuda::std::uint64_t full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init(sem_release, scope_cluster);
    }
    __syncthreads();
    unsigned sum = 0;
    for (unsigned i = 0; i < rows; i++) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &full, sizeof row);
            const unsigned* from = x + (blockIdx.x * rows + i) * threads;
            cp_async_bulk(space_cluster, space_global, row, from, sizeof row, &full);  // BUG: the copy
        }
#ifndef FIXED
        const unsigned parity = 0;
#else
        const unsigned parity = i % 2;
#endif
        while (!mbarrier_try_wait_parity(&full, parity)) {}  // BUG: the wait
        sum += row[threads - 1 - threadIdx.x];  // BUG
        __syncthreads();
    }
    sums[blockIdx.x * threads + threadIdx.x] = sum;
}
