// Where sums of rows go: into the result, or into slots.
//
//   -DDETERMINISTIC    every emitted sum is stored in a slot of its own; reduce.cu then adds up each row's slots
//                      in a fixed order. Without, it is added to the result atomically, in any order.
//
// A kernel calls emit for sums of rows that others may add to as well. The slot is a number that the host knows
// the row of (gpu/mttkrp/kernels.py, Work.slot_rows): it counts from 0 in each launch, and no two sums have the
// same one. A row that only this one sum goes to may be stored instead, in both variants. The result is 0 when
// the kernel starts, but for the rows that Work.stored names.

#pragma once

#include "mttkrp/rows.cuh"

struct Sink {
    Scalar* out;
    Scalar* partial;  // slots of `rank` elements, only for the deterministic variant
    unsigned rank;
};

__device__ inline void write_row(Scalar* matrix, Offset row, const Group& group, const Row& sum)
{
    if (group.writes) *reinterpret_cast<Row*>(matrix + offset_of(row, group)) = sum;
}

// To the result, as the row's only sum.
__device__ inline void store(const Sink& sink, const Group& group, unsigned row, const Row& sum)
{
    write_row(sink.out, row, group, sum);
}

__device__ inline void add_to_memory(Scalar* place, const Row& sum)
{
#if VEC == 4 && __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(place)),
                 "f"(sum.at[0]), "f"(sum.at[1]), "f"(sum.at[2]), "f"(sum.at[3])
                 : "memory");
#else
#pragma unroll
    for (unsigned c = 0; c < VEC; ++c) atomicAdd(place + c, sum.at[c]);
#endif
}

// To the result or the slot, as one sum of perhaps several.
__device__ inline void emit(const Sink& sink, const Group& group, unsigned row, Offset slot, const Row& sum)
{
#if defined(DETERMINISTIC)
    write_row(sink.partial, slot, group, sum);
#else
    if (group.writes) add_to_memory(sink.out + offset_of(row, group), sum);
#endif
}

// The same for the sums with which the groups of a warp end: those for one row are added up before, as groups next
// to one another often work on the same one. All lanes of the warp must come here; a group without a sum says
// `some` = false.
__device__ inline void emit_together(const Sink& sink, const Group& group, bool some, unsigned row, Offset slot,
                                     Row sum)
{
#if !defined(DETERMINISTIC)
    const unsigned lane = threadIdx.x % warp_size;
#pragma unroll
    for (unsigned distance = LANES; distance < warp_size; distance *= 2) {
        const bool first = lane / distance % 2 == 0;
        const unsigned its_row = __shfl_xor_sync(all_lanes, row, distance);
        const bool both = __shfl_xor_sync(all_lanes, some, distance) && some && its_row == row;
#pragma unroll
        for (unsigned c = 0; c < VEC; ++c) {
            const Scalar theirs = __shfl_xor_sync(all_lanes, sum.at[c], distance);
            if (both && first) sum.at[c] += theirs;
        }
        some = some && !(both && !first);
    }
#endif
    if (some) emit(sink, group, row, slot, sum);
}
