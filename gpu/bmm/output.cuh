// How a warp's tile of the product leaves it: as int32, or as bits against thresholds.
//
//   -DOUTPUT_INT    c[i, j] = dot
//   -DOUTPUT_BITS   bit (i, j) = (dot >= thresholds[j]) != flip[j], packed column-major (Eq. 5, listing 7)
//
// A tile has `rows` rows; its columns are lane, and lane + 32 where a word has 64 bits.

#pragma once
#include "bmm/sums.cuh"

#if defined(OUTPUT_BITS)
typedef Word Output;
#define THRESHOLDS , const int *__restrict__ thresholds, const unsigned char *__restrict__ flip
#define WITH_THRESHOLDS , thresholds, flip
#else
typedef int Output;
#define THRESHOLDS
#define WITH_THRESHOLDS
#endif

// differing(i, half) is how many bits differ between row i and column 32 * half + lane of the tile.
template <unsigned rows, class Differing>
__device__ void store_tile(Differing differing, Output* c, unsigned m, unsigned n, unsigned k, unsigned first_row,
                           unsigned first_column THRESHOLDS)
{
    const unsigned lane = lane_of_this_thread();
#if defined(OUTPUT_BITS)
    int threshold[word_halves];
    bool flipped[word_halves];
#pragma unroll
    for (unsigned half = 0; half < word_halves; ++half) {
        const unsigned column = min(first_column + 32 * half + lane, n - 1);
        threshold[half] = thresholds[column];
        flipped[half] = flip[column] != 0;
    }
    Word mine[(rows + warp_size - 1) / warp_size] = {};
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) {
        Word word = 0;
#pragma unroll
        for (unsigned half = 0; half < word_halves; ++half) {
            const int dot = SUM(k, differing(i, half));
            const bool one = (dot >= threshold[half]) != flipped[half] && first_column + 32 * half + lane < n;
            const Word bits = first_lane_first(__ballot_sync(all_lanes, one));
            word |= bits << 32 * (half_at(0, half));
        }
        if (lane == i % warp_size) mine[i / warp_size] = word;
    }
#pragma unroll
    for (unsigned i = 0; i < rows; i += warp_size) {
        const unsigned row = first_row + i + lane;
        if (i + lane < rows && row < m) c[(Index)(first_column / word_size) * m + row] = mine[i / warp_size];
    }
#else
#pragma unroll
    for (unsigned half = 0; half < word_halves; ++half) {
        const unsigned column = first_column + 32 * half + lane;
        if (column < n) {
#pragma unroll
            for (unsigned i = 0; i < rows; ++i)
                if (first_row + i < m) c[(Index)(first_row + i) * n + column] = SUM(k, differing(i, half));
        }
    }
#endif
}
