// MTTKRP from flagged coordinates (F-COO): a group for each partition, and sums of segments in registers.
//
//   -DPARTITION=...   nonzeros of a group, a multiple of 32
//
// A segment that lies in one partition has its row for itself and is stored. The others, at most two in each
// partition, are emitted: slot 2p is that of the segment which began before partition p, 2p + 1 that of the one
// which begins in it and goes on.
//
// Source: MM-CSF (SC'19), sections 3 and 6.8; F-COO (CLUSTER'17).

#include "mttkrp/in_flight.cuh"

// Indices in the modes of the factors, and values. Each list begins at a multiple of 16 bytes.
struct Nonzeros {
    const unsigned* products[ORDER - 1];
    const Scalar* values;
};

template <class T, unsigned n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Several {
    T at[n];
};

// From number z on, a multiple of n.
template <unsigned n, class T>
__device__ inline Several<T, n> load(const T* list, Offset z)
{
    return *reinterpret_cast<const Several<T, n>*>(list + z);
}

// A group at work on its partition.
struct Walk {
    const Factors& factors;
    const Sink& sink;
    const Group& group;
    const Nonzeros& nonzeros;
    const unsigned* flags;
    const unsigned* rows;
    Offset begin;
    unsigned segment;
    unsigned row;      // of the segment, loaded one segment ahead of its use
    bool begins_here;  // whether the segment begins in this partition
    Row sum;

    // n nonzeros from number z on
    template <unsigned n>
    __device__ __forceinline__ void step(Offset z)
    {
        const unsigned begins = __ldg(flags + z / 32) >> z % 32;
        Several<unsigned, n> index[ORDER - 1];
#pragma unroll
        for (unsigned l = 0; l < ORDER - 1; ++l) index[l] = load<n>(nonzeros.products[l], z);
        const Several<Scalar, n> value = load<n>(nonzeros.values, z);
        Row of_factors[n][ORDER - 1];
#pragma unroll
        for (unsigned j = 0; j < n; ++j)
#pragma unroll
            for (unsigned l = 0; l < ORDER - 1; ++l)
                of_factors[j][l] = load_row(factors.of[l], index[l].at[j], group);
#pragma unroll
        for (unsigned j = 0; j < n; ++j) {
            if (begins >> j & 1 && z + j > begin) next_segment();
            add_product(sum, value.at[j], of_factors[j]);
        }
    }

    __device__ __forceinline__ void next_segment()
    {
        if (begins_here)
            store(sink, group, row, sum);
        else
            emit(sink, group, row, 2 * group.number, sum);
        row = __ldg(rows + ++segment);
        begins_here = true;
        sum = zero_row();
    }
};

extern "C" __global__ void __launch_bounds__(threads_of_block, resident_blocks)
f_coo(const Factors factors, const Sink sink, const Nonzeros nonzeros, const unsigned* __restrict__ flags,
      const unsigned* __restrict__ rows, const unsigned* __restrict__ first, unsigned count)
{
    const Group group = this_group(sink.rank);
    const Offset begin = group.number * PARTITION, end = min(begin + PARTITION, (Offset)count);
    const bool some = begin < end;
    const unsigned segment = some ? __ldg(first + group.number) : 0;
    const unsigned row = some ? __ldg(rows + segment) : 0;
    const bool begins_here = some && __ldg(flags + begin / 32) & 1;
    Walk walk{factors, sink, group, nonzeros, flags, rows, begin, segment, row, begins_here, zero_row()};
    Offset z = begin;
    for (; z + in_flight <= end; z += in_flight) walk.step<in_flight>(z);
#pragma unroll 1
    for (; z < end; ++z) walk.step<1>(z);  // the tensor's last ones
    const bool ends_here = some && (end == count || __ldg(flags + end / 32) & 1);
    const bool whole = walk.begins_here && ends_here;
    if (whole) store(sink, group, walk.row, walk.sum);
    emit_together(sink, group, some && !whole, walk.row, 2 * group.number + walk.begins_here, walk.sum);
}
