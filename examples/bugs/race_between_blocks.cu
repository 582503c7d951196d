// The sum of all numbers in one launch: each block adds up its own, one block adds up the blocks.
//
// Blocks come in any order, and what one writes need not be seen by another before the launch ends. A block
// that reads what others wrote must know that they are done: the last one to take a ticket does.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

// A block is one warp, and there are at most 32; `sums` and `tickets` begin as zeros.
extern "C" __global__ void race_between_blocks(const unsigned* x, unsigned* sums, unsigned* tickets,
                                               unsigned* total, unsigned n)
{
    const unsigned lane = threadIdx.x;
    unsigned sum = 0;
    for (unsigned i = blockIdx.x * warp_size + lane; i < n; i += gridDim.x * warp_size) sum += x[i];
    sum = __reduce_add_sync(all_lanes, sum);
    if (lane == 0) sums[blockIdx.x] = sum;  // BUG: the other access
#ifndef FIXED
    const bool adds_up = blockIdx.x == gridDim.x - 1;
#else
    unsigned ticket = 0;
    if (lane == 0) {
        __threadfence();  // the sum is there before the ticket is taken …
        ticket = atomicAdd(tickets, 1);
        __threadfence();  // … and is read after it
    }
    const bool adds_up = __shfl_sync(all_lanes, ticket, 0) == gridDim.x - 1;
    __syncwarp();
#endif
    if (!adds_up) return;
    sum = lane < gridDim.x ? sums[lane] : 0;  // BUG
    sum = __reduce_add_sync(all_lanes, sum);
    if (lane == 0) *total = sum;
}
