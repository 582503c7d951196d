// Adds up the slots of each row, in an order that does not change from run to run.
//
// Row rows[n] of the result is the sum of slots slots[begins[n]] ... slots[begins[n + 1] - 1]. Rows without a slot
// stay as they are.

#include "mttkrp/sink.cuh"

// slots[begin] + slots[begin + step] + ... , one after another
__device__ inline Row sum_of(const Sink& sink, const Group& group, const unsigned* slots, Offset begin, Offset end,
                             unsigned step)
{
    Row sum = zero_row();
#pragma unroll 4
    for (Offset n = begin; n < end; n += step) add(sum, load_row(sink.partial, slots[n], group));
    return sum;
}

// A group for each row.
extern "C" __global__ void __launch_bounds__(threads_of_block)
reduce_short(const Sink sink, const unsigned* __restrict__ rows, const unsigned* __restrict__ begins,
             const unsigned* __restrict__ slots, unsigned count)
{
    const Group group = this_group(sink.rank);
    if (group.number >= count) return;
    const Row sum = sum_of(sink, group, slots, begins[group.number], begins[group.number + 1], 1);
    store(sink, group, rows[group.number], sum);
}

// A block for each row: its groups take slots in turn, and their sums are added up as a tree.
extern "C" __global__ void __launch_bounds__(threads_of_block)
reduce_long(const Sink sink, const unsigned* __restrict__ rows, const unsigned* __restrict__ begins,
            const unsigned* __restrict__ slots)
{
    enum : unsigned { groups = threads_of_block / LANES };
    __shared__ Row sums[threads_of_block];
    const Group group = this_group(sink.rank);
    const unsigned row = blockIdx.x, number = threadIdx.x / LANES;
    Row sum = sum_of(sink, group, slots, begins[row] + (Offset)number, begins[row + 1], groups);
    for (unsigned half = groups / 2; half > 0; half /= 2) {
        if (number >= half && number < 2 * half) sums[threadIdx.x] = sum;
        __syncthreads();
        if (number < half) add(sum, sums[threadIdx.x + half * LANES]);
    }
    if (number == 0) store(sink, group, rows[row], sum);
}
