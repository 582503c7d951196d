// Sets the result to 0, or those of its rows that are not stored later.

#include "mttkrp/sink.cuh"

extern "C" __global__ void __launch_bounds__(threads_of_block) clear(const Sink sink, Offset count)
{
    const Offset i = blockIdx.x * (Offset)threads_of_block + threadIdx.x;
    if (i < count) reinterpret_cast<Row*>(sink.out)[i] = zero_row();
}

extern "C" __global__ void __launch_bounds__(threads_of_block)
clear_rows(const Sink sink, const unsigned* __restrict__ rows, unsigned count)
{
    const Group group = this_group(sink.rank);
    if (group.number < count) store(sink, group, rows[group.number], zero_row());
}
