// Nonzeros in an order that the result's mode has no part in: neighbours with the same row are added up in
// registers, and each such run is emitted.
//
//   -DCHUNK=...    nonzeros of a group
//
// A kernel gives an object whose at(z) is called once for each of a chunk's nonzeros, in ascending order.

#pragma once

#include "mttkrp/in_flight.cuh"

struct Nonzero {
    unsigned row;               // of the result
    unsigned index[ORDER - 1];  // in the other modes
    Scalar value;
};

// A group at work on its chunk.
template <class Nonzeros>
struct Runs {
    Nonzeros& nonzeros;
    const Factors& factors;
    const Sink& sink;
    const Group& group;
    Offset slot;  // of the run
    bool open;    // whether there is one
    unsigned row;
    Row sum;

    // n nonzeros from number z on
    template <unsigned n>
    __device__ __forceinline__ void step(Offset z)
    {
        Nonzero nonzero[n];
        Row of_factors[n][ORDER - 1];
#pragma unroll
        for (unsigned j = 0; j < n; ++j) nonzero[j] = nonzeros.at(z + j);
#pragma unroll
        for (unsigned j = 0; j < n; ++j)
#pragma unroll
            for (unsigned l = 0; l < ORDER - 1; ++l)
                of_factors[j][l] = load_row(factors.of[l], nonzero[j].index[l], group);
#pragma unroll
        for (unsigned j = 0; j < n; ++j) {
            if (open && nonzero[j].row != row) {
                emit(sink, group, row, slot++, sum);
                sum = zero_row();
            }
            open = true;
            row = nonzero[j].row;
            add_product(sum, nonzero[j].value, of_factors[j]);
        }
    }
};

// The chunk of this group: all lanes of the warp must come here. `first_slots` has the slot of each chunk's first
// run; the others have the following.
template <class Nonzeros>
__device__ void add_runs(Nonzeros& nonzeros, unsigned count, const Factors& factors, const Sink& sink,
                         const Group& group, const unsigned* first_slots)
{
    const Offset begin = group.number * CHUNK, end = min(begin + CHUNK, (Offset)count);
    Offset slot = 0;
#if defined(DETERMINISTIC)
    if (begin < end) slot = first_slots[group.number];
#endif
    Runs<Nonzeros> runs{nonzeros, factors, sink, group, slot, false, 0, zero_row()};
    Offset z = begin;
    for (; z + in_flight <= end; z += in_flight) runs.template step<in_flight>(z);
#pragma unroll 1
    for (; z < end; ++z) runs.template step<1>(z);  // the tensor's last ones
    emit_together(sink, group, runs.open, runs.row, runs.slot, runs.sum);
}
