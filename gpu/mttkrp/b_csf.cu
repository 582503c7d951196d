// MTTKRP from balanced CSF, algorithm 2: 2^b warps work on a slice of bin b.
//
// Bins are laid out along the grid with the last one first, so that what takes longest starts first. The groups of
// a slice's warps take its fibers by turns. Each warp then adds up its groups' sums in a fixed order, and emits
// once; in bin 0, where nobody else has the row, it stores. Where the slices of bin 0 are very short, the groups of
// a warp take one each.

#include "mttkrp/fibers.cuh"

__device__ constexpr unsigned log2_of(unsigned x) { return x == 1 ? 0 : 1 + log2_of(x / 2); }

enum : unsigned { groups_of_warp = warp_size / LANES, log2_groups = log2_of(groups_of_warp), most_bins = 33 };

struct Slices {
    const unsigned* order;
    const unsigned* slices;
    const unsigned* pointers;
};

// Bin b has the slices order[places[b]] ... order[places[b + 1] - 1], and its first warp is number warps[b].
struct Bins {
    Offset warps[most_bins];
    unsigned places[most_bins + 1];
    unsigned groups;  // of a slice in bin 0: 1, or those of a warp
};

// The sum of all groups of the warp, in all of them.
__device__ inline Row sum_of_warp(Row sum)
{
#pragma unroll
    for (unsigned distance = LANES; distance < warp_size; distance *= 2)
#pragma unroll
        for (unsigned c = 0; c < VEC; ++c) sum.at[c] += __shfl_xor_sync(all_lanes, sum.at[c], distance);
    return sum;
}

extern "C" __global__ void __launch_bounds__(threads_of_block, resident_blocks)
b_csf(const Factors factors, const Sink sink, const Fibers fibers, const Slices slices, const Bins bins)
{
    const Group group = this_group(sink.rank);
    const Offset warp = group.number / groups_of_warp;
    unsigned bin = 0;
    while (warp < bins.warps[bin]) ++bin;
    const bool by_warp = bin > 0 || bins.groups == groups_of_warp;
    const unsigned shift = by_warp ? bin + log2_groups : 0;
    const Offset workers = (Offset)1 << shift;  // groups of a slice
    const Offset worker = group.number - (bins.warps[bin] << log2_groups);
    const Offset place = bins.places[bin] + (worker >> shift);
    const bool some = place < bins.places[bin + 1];
    unsigned row = 0, first = 0, last = 0;
    if (some) {
        const unsigned slice = __ldg(slices.order + place);
        row = __ldg(slices.slices + slice);
        last = __ldg(slices.pointers + slice + 1);
        first = (unsigned)min(__ldg(slices.pointers + slice) + (worker & (workers - 1)), (Offset)last);
    }
    Adder adder{fibers, factors, group};
    walk(fibers, first, last, (unsigned)min(workers, (Offset)0xffffffffu), adder);
    const Row sum = by_warp ? sum_of_warp(adder.total) : adder.total;
    if (!some || (by_warp && group.number % groups_of_warp != 0)) return;
    if (bin == 0)
        store(sink, group, row, sum);
    else
        emit(sink, group, row, warp, sum);
}
