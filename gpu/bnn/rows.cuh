// What follows the sums of a warp, where its lanes have the channels of a row: numbers, and the words of its bits.

#pragma once

#include "bnn/layer.cuh"

// The word of a row's bits: listing 7 of BSTC. Past the last channel they are zero.
__device__ inline unsigned word_of_row(const Layer& step, const Memory& memory, int sum, unsigned index,
                                       unsigned column)
{
    bool one = false;
    if (column < step.out_channels) {
        sum = finished(step, memory, sum, index, column);
        if (step.numbers != nowhere) memory.of_arena<int>(step.numbers)[index * step.out_channels + column] = sum;
        if (step.lines != nowhere) {
            const int2 limit = memory.constant<int2>(step.rule)[column];
            one = (sum >= limit.x) ^ (limit.y != 0);
        }
    }
    return __ballot_sync(all_lanes, one);
}

__device__ inline unsigned pooled(const Layer& step, unsigned all, unsigned one)
{
    return step.pool == join_or ? all | one : all & one;
}

// Give eight rows. A lane reads what it wrote, as Csub of listing 6, so nothing waits.
template <unsigned halves>
__device__ inline void give_rows(const Layer& step, const Memory& memory, const Sums& sums, unsigned first_row,
                                 unsigned first_column)
{
    const unsigned lane = lane_of_this_thread(), count = number_of_places(step), window = step.pool ? 4 : 1;
#pragma unroll 1
    for (unsigned half = 0; half < halves; ++half) {
        const unsigned column = first_column + half * warp_size + lane;
        unsigned word = 0;
#pragma unroll 1
        for (unsigned i = 0; i < rows_at_once && first_row + i < count; ++i) {
            const unsigned index = first_row + i, corner = index % window;
            const unsigned one = word_of_row(step, memory, sums[i][half * warp_size + lane], index, column);
            word = corner ? pooled(step, word, one) : one;
            if (step.lines == nowhere || corner + 1 < window || lane != 0) continue;
            memory.of_arena<unsigned>(step.lines)[place_of_word(step, index / window, column / warp_size)] = word;
        }
    }
}
