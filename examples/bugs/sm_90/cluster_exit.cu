// The largest of each number and the one before it. A block's first number needs the last one of the block
// before, which sends it: a store to the other block's shared memory that an mbarrier there counts.
//
// A block past the end of the array has nothing to do and exits. The last block that has numbers sends to
// it all the same, into memory that may belong to another block by then.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 32 };

// Launched in one cluster of four blocks.
extern "C" __global__ void __cluster_dims__(4) cluster_exit(const unsigned* x, unsigned* largest, unsigned n)
{
    __shared__ unsigned edge;
    __shared__ cuda::std::uint64_t full;
    const unsigned i = blockIdx.x * threads + threadIdx.x, mine = i < n ? x[i] : 0;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &full, sizeof edge);
        fence_mbarrier_init(sem_release, scope_cluster);
    }
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
#ifndef FIXED
    if (blockIdx.x * threads >= n) return;  // BUG: the exit
#endif
    const unsigned next = blockIdx.x + 1;
    if (next < gridDim.x && threadIdx.x == threads - 1) {
        unsigned* to = static_cast<unsigned*>(__cluster_map_shared_rank(&edge, next));
        auto* counts = static_cast<cuda::std::uint64_t*>(__cluster_map_shared_rank(&full, next));
        st_async(to, mine, counts);  // BUG
    }
    while (blockIdx.x > 0 && !mbarrier_try_wait_parity(sem_acquire, scope_cluster, &full, 0)) {}
    const unsigned left = __shfl_up_sync(0xffffffffu, mine, 1);
    const unsigned before = threadIdx.x > 0 ? left : blockIdx.x > 0 ? edge : 0;
    if (i < n) largest[i] = max(mine, before);
}
