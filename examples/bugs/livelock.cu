// The largest number, and where it stands: each block finds its own largest one and then compares it with
// the best so far, which a lock guards.
//
// A block whose number is no better leaves, and must open the lock before it does: the next one waits for
// ever.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

// A block is one warp; `lock` begins as 0, `best` as {0, 0}: the number, and its index.
extern "C" __global__ void livelock(const unsigned* x, unsigned* lock, unsigned* best, unsigned n)
{
    const unsigned i = blockIdx.x * warp_size + threadIdx.x;
    const unsigned mine = i < n ? x[i] : 0;
    const unsigned largest = __reduce_max_sync(all_lanes, mine);
    const unsigned owner = __ffs(__ballot_sync(all_lanes, mine == largest)) - 1;
    if (threadIdx.x != owner) return;
    while (atomicCAS(lock, 0, 1) != 0) {}  // BUG
    __threadfence();
#ifndef FIXED
    if (mine <= best[0]) return;
    best[0] = mine;
    best[1] = i;
#else
    if (mine > best[0]) {
        best[0] = mine;
        best[1] = i;
    }
#endif
    __threadfence();
    atomicExch(lock, 0);
}
