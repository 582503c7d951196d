// Convolutions and dense layers of integers in a whole network, on CUDA cores: dot products of four bytes.
//
// A warp takes eight pixels by 32 filters, which are ±1 as bytes, and 0 between groups. Low bytes and high bytes are
// two products; what wraps around is put right by the sum. Taps outside the image are zeros.

#pragma once

#include "bnn/rows.cuh"

__device__ inline void add_four(int& sum, unsigned unsigned_bytes, unsigned signed_bytes)
{
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(unsigned_bytes), "r"(signed_bytes));
}

__device__ inline void add_four_signed(int& sum, unsigned x, unsigned y)
{
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(y));
}

__device__ inline void add_plane(const Layer& step, const Memory& memory, const Look& look, unsigned plane,
                                 unsigned first_column, unsigned (&totals)[rows_at_once])
{
    const Tap* const taps = memory.constant<Tap>(step.taps);
    const uint2* const x = memory.of_arena<const uint2>(step.x) + plane * step.plane;
    const unsigned* filters = memory.constant<unsigned>(step.weights) + first_column + lane_of_this_thread();
    int low[rows_at_once] = {}, high[rows_at_once] = {};
    for (unsigned t = 0; t < step.window_taps; ++t) {
        const Tap tap = taps[t];
        const bool inside = is_inside(step, look, tap);
        const uint2* const pixel = x + (inside ? look.first + tap.offset : 0) * step.units;
        for (unsigned u = 0; u < step.units; ++u, filters += step.columns) {
            const uint2 four = inside ? pixel[u] : make_uint2(0, 0);
            const unsigned filter = __ldg(filters);
#pragma unroll
            for (unsigned i = 0; i < rows_at_once; ++i) {
                add_four(low[i], __shfl_sync(all_lanes, four.x, i), filter);
                add_four_signed(high[i], __shfl_sync(all_lanes, four.y, i), filter);
            }
        }
    }
#pragma unroll
    for (unsigned i = 0; i < rows_at_once; ++i)
        totals[i] += ((unsigned)low[i] + 256u * (unsigned)high[i]) << 16 * plane;
}

__device__ inline void make_numbers_by_bytes(const Layer& step, const Memory& memory, Sums& sums)
{
    const unsigned lane = lane_of_this_thread(), warp = threadIdx.x / warp_size, warps = blockDim.x / warp_size;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned tile = task * warps + warp;
        if (tile >= step.tiles) break;
        const unsigned first_row = tile / step.tiles_of_columns * rows_at_once;
        const unsigned first_column = tile % step.tiles_of_columns * warp_size;
        const Look look = look_at(step, first_row + lane % rows_at_once);
        unsigned totals[rows_at_once] = {};
        if (first_column < step.out_channels)  // else the rest of a unit
            for (unsigned plane = 0; plane < step.planes; ++plane)
                add_plane(step, memory, look, plane, first_column, totals);
#pragma unroll
        for (unsigned i = 0; i < rows_at_once; ++i) sums[i][lane] = (int)totals[i];
        give_rows<1>(step, memory, sums, first_row, first_column);
    }
}
