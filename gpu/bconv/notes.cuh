// What the sums of a tile of filters need: the constants of its columns, for every kind of windows.

#pragma once

#include "bconv/borders.cuh"
#include "bmm/warpgroup_tile.cuh"

enum : unsigned { at_once = 9 };  // loads of tables by a thread that are on their way together
enum : int { beyond_int16 = 1 << 15 };  // no sum of 16 bits reaches it

struct Addends {
    const int* of_kinds;
    unsigned pitch;  // they fill the columns of tiles
    const ConvShape& shape;
    const Borders& borders;
#if defined(OUTPUT_BITS) || defined(ADDED_BITS)
    const int* thresholds;
    const unsigned char* flip;
#endif
};

// Write the constants of the filters from `column` on, of which thread `writer` of so many has some.
__device__ inline void write_columns(Notes& notes, const Addends& x, unsigned column, unsigned writer, unsigned writers)
{
    const unsigned inside = x.borders.top * x.borders.across(x.shape) + x.borders.left;
    const unsigned kinds = x.borders.down(x.shape) * x.borders.across(x.shape);
    const auto more_of = [&](unsigned table, unsigned c) {
        const bool is_other = table < TABLES && TABLES > 1 && table < kinds && table != inside;
        return is_other ? x.of_kinds[(Index)table * x.pitch + column + c] : 0;
    };
    for (unsigned c = writer; c < columns; c += writers) {
        int more[at_once];  // than windows inside the image have, in the first tables
#pragma unroll
        for (unsigned table = 0; table < at_once; ++table) more[table] = more_of(table, c);
        int addend = x.of_kinds[(Index)inside * x.pitch + column + c];
#if defined(OUTPUT_BITS) || defined(ADDED_BITS)
        const ConvShape& shape = x.shape;
        const unsigned at = min(column + c, shape.filters - 1);
        const bool is_filter = column + c < shape.filters;
#if defined(ADDED_BITS)
        notes.thresholds[c] = is_filter ? max(-beyond_int16, min(x.thresholds[at], beyond_int16)) : beyond_int16;
#else
        const unsigned k = shape.filter_height * shape.filter_width * shape.channels;
        addend -= is_filter ? limit_of(x.thresholds[at], k) : (int)k + 1;  // no dot product reaches k + 1
#endif
        const unsigned flips = __ballot_sync(all_lanes, is_filter && x.flip[at] != 0);
        if (c % 32 == 0) notes.flips[c / 32] = flips;
#endif
#pragma unroll
        for (unsigned table = 0; table < min(at_once, TABLES); ++table) notes.of_columns[table][c] = addend + more[table];
        for (unsigned table = at_once; table < TABLES; ++table) notes.of_columns[table][c] = addend + more_of(table, c);
    }
}

#if defined(OUTPUT_BITS)
// The four pixels of a window of the pooling are neighbouring rows, whose words neighbouring quads of lanes have.
__device__ inline unsigned pooled(unsigned word)
{
#if defined(POOL_AND)
    word &= __shfl_xor_sync(all_lanes, word, 4);
    word &= __shfl_xor_sync(all_lanes, word, 8);
#elif defined(POOL_OR)
    word |= __shfl_xor_sync(all_lanes, word, 4);
    word |= __shfl_xor_sync(all_lanes, word, 8);
#endif
    return word;
}
#endif
