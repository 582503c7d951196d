// How a warp's tile of the convolution leaves it: as int32, or as bits against thresholds.
//
//   -DOUTPUT_INT    y[pixel, o] = dot, NHWC
//   -DOUTPUT_BITS   bit (pixel, o) = (dot >= thresholds[o]) != flip[o], packed NHWC in 32-bit words whose
//                   first channel is the lowest bit; with -DPOOL_OR | -DPOOL_AND one bit per window
//
// Every word of the output is written whole, by one lane: what was in the buffer before does not matter.

#pragma once

#include "bconv/geometry.cuh"

#if defined(OUTPUT_BITS)
typedef unsigned Output;
#define THRESHOLDS , const int *__restrict__ thresholds, const unsigned char *__restrict__ flip
#define WITH_THRESHOLDS , thresholds, flip
#else
typedef int Output;
#define THRESHOLDS
#define WITH_THRESHOLDS
#endif

__device__ inline unsigned pooled(unsigned some, unsigned more)
{
#if defined(POOL_AND)
    return some & more;
#else
    return some | more;
#endif
}

// Stores the dot products of `rows` pixels from `first_pixel` on, as pixel_at counts them, and 32 * halves
// channels from `first_channel` on, a multiple of 32. dot(i, half) is the one of pixel first_pixel + i and
// channel first_channel + 32 * half + lane. All lanes call it together; past an edge its value is ignored.
template <unsigned rows, unsigned halves, class Dot>
__device__ void store_tile(const Dot& dot, Output* y, const ConvShape& shape, unsigned first_pixel,
                           unsigned first_channel THRESHOLDS)
{
    static_assert(rows <= warp_size && rows % window == 0, "a lane for each word, windows as a whole");
    const unsigned lane = lane_of_this_thread();
#pragma unroll
    for (unsigned half = 0; half < halves; ++half) {
        const unsigned channel = first_channel + 32 * half + lane;
        if (channel - lane >= shape.filters) break;
#if defined(OUTPUT_BITS)
        const int threshold = thresholds[min(channel, shape.filters - 1)];
        const bool flipped = flip[min(channel, shape.filters - 1)] != 0;
        unsigned mine = 0;
#pragma unroll
        for (unsigned i = 0; i < rows; ++i) {
            const bool one = (dot(i, half) >= threshold) != flipped && channel < shape.filters;
            const unsigned bits = __ballot_sync(all_lanes, one);
            if (lane == i / window) mine = i % window == 0 ? bits : pooled(mine, bits);
        }
        const unsigned place = first_pixel / window + lane;
        if (lane < rows / window && place < number_of_pixels(shape) / window)
            y[place * divide_up(shape.filters, 32) + (channel - lane) / 32] = mine;
#else
#pragma unroll
        for (unsigned i = 0; i < rows; ++i) {
            const int value = dot(i, half);
            if (channel < shape.filters && first_pixel + i < number_of_pixels(shape))
                y[(first_pixel + i) * shape.filters + channel] = value;
        }
#endif
    }
}
