// MTTKRP from hierarchical coordinates (HiCOO): a group for each CHUNK nonzeros, atomic additions where the row
// changes. Blocks differ too much in size to be shares of work: 13 nonzeros in one tensor, 12,000 in another.
//
// Source: MM-CSF (SC'19), section 3; HiCOO (SC'18).

#include "mttkrp/runs.cuh"

// Numbers of blocks, and indices within them: the mode of the result first, the others in the order of the factors.
struct Coordinates {
    const unsigned* blocks[ORDER];
    const unsigned char* offsets[ORDER];
};

struct HiCoo {
    const Coordinates& coordinates;
    const Offset* pointers;
    const Scalar* values;
    unsigned side;   // of a block
    unsigned block;  // of the last nonzero that was asked for
    __device__ unsigned index(unsigned l, Offset z) const
    {
        return side * __ldg(coordinates.blocks[l] + block) + __ldg(coordinates.offsets[l] + z);
    }
    __device__ Nonzero at(Offset z)
    {
        while (z >= __ldg(pointers + block + 1)) ++block;
        Nonzero nonzero;
        nonzero.row = index(0, z);
#pragma unroll
        for (unsigned l = 0; l < ORDER - 1; ++l) nonzero.index[l] = index(1 + l, z);
        nonzero.value = __ldg(values + z);
        return nonzero;
    }
};

// `first_blocks` has the block of each chunk's first nonzero.
extern "C" __global__ void __launch_bounds__(threads_of_block, resident_blocks)
hi_coo(const Factors factors, const Sink sink, const Coordinates coordinates, const Offset* pointers,
       const unsigned* first_blocks, const Scalar* values, unsigned side, unsigned count, const unsigned* first_slots)
{
    const Group group = this_group(sink.rank);
    const bool some = group.number * CHUNK < count;
    HiCoo nonzeros{coordinates, pointers, values, side, some ? __ldg(first_blocks + group.number) : 0};
    add_runs(nonzeros, count, factors, sink, group, first_slots);
}
