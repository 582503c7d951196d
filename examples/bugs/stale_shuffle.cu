// Where runs of equal numbers end: 1 for the last number of each run, else 0.
//
// A lane takes the next number from the next lane, and only the last one of a warp loads it. A lane that
// has left the kernel has no number to give.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

extern "C" __global__ void stale_shuffle(const unsigned* x, unsigned* ends, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef FIXED
    if (i >= n) return;
#endif
    const unsigned mine = i < n ? x[i] : 0;
    unsigned next = __shfl_down_sync(all_lanes, mine, 1);  // BUG
    if (i % warp_size == warp_size - 1 && i + 1 < n) next = x[i + 1];
    if (i < n) ends[i] = i + 1 == n || mine != next;
}
