// MTTKRP from coordinates: a group for each CHUNK nonzeros, atomic additions where the row changes.
//
//   -DINDEX=...    the type of the coordinates
//
// Any order of the nonzeros and any number of them at one place is right; an order in which the result's mode
// changes seldom is faster.

#include "mttkrp/runs.cuh"

// The coordinates, the mode of the result first, the others in the order of the factors.
struct Coordinates {
    const INDEX* of[ORDER];
};

struct Coo {
    const Coordinates& coordinates;
    const Scalar* values;
    __device__ Nonzero at(Offset z) const
    {
        Nonzero nonzero;
        nonzero.row = (unsigned)__ldg(coordinates.of[0] + z);
#pragma unroll
        for (unsigned l = 0; l < ORDER - 1; ++l) nonzero.index[l] = (unsigned)__ldg(coordinates.of[1 + l] + z);
        nonzero.value = __ldg(values + z);
        return nonzero;
    }
};

extern "C" __global__ void __launch_bounds__(threads_of_block, resident_blocks)
coo(const Factors factors, const Sink sink, const Coordinates coordinates, const Scalar* values, unsigned count,
    const unsigned* first_slots)
{
    const Group group = this_group(sink.rank);
    Coo nonzeros{coordinates, values};
    add_runs(nonzeros, count, factors, sink, group, first_slots);
}
