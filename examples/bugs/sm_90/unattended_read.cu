// The sums of pairs of blocks, which read each other's sum in shared memory.
//
// A barrier of the cluster lets a block read what another one wrote. The other block must stay until it has
// been read: its shared memory is gone when it exits. So there is a second barrier, behind the reads.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

// Launched with a warp in each block, and in clusters of two blocks.
extern "C" __global__ void __cluster_dims__(2) unattended_read(const unsigned* x, unsigned* sums)
{
    __shared__ unsigned mine;
    const unsigned sum = __reduce_add_sync(all_lanes, x[blockIdx.x * warp_size + threadIdx.x]);
    if (threadIdx.x == 0) mine = sum;
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    if (threadIdx.x == 0) {
        const unsigned other = blockIdx.x % 2 ^ 1;
        const unsigned* theirs = static_cast<const unsigned*>(__cluster_map_shared_rank(&mine, other));
        sums[blockIdx.x] = sum + *theirs;  // BUG
    }
#ifdef FIXED
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
#endif
}  // BUG: the exit
