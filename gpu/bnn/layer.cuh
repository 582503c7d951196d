// A step of the whole networks whose products are on words, or on tiles of 8 x 128 bits (FSB).
//
//   -DFSB    bits between layers are such tiles, else rows of units of 64

#pragma once

#include "bmm/warp.cuh"
#include "bnn/products.cuh"
#include "bnn/step.cuh"

// Behind the kinds of step.cuh. The host's twin is gpu/bnn/forms.py.
enum : unsigned {
    numbers_by_bytes = last_answer + 1,
    products_of_tiles,
    bmm32,
    bmm64,
    bmms32,
    bmms64,
    bconv32,
    bconv64,
};

struct Layer : Step {
    unsigned window_taps;
    unsigned channels;  // of an input in bits
    unsigned words;     // of its channels, as the scheme counts them
    unsigned columns;   // of the filters' table, padding counted
};

enum : unsigned {
    rows_at_once = 8,  // of a warp's sums, which leave by shared memory
    most_columns = 64,
    fsb_lines = 8,
    fsb_words = 4,
    fsb_bits = 128,
};

typedef int Sums[rows_at_once][most_columns];

// Where a window begins in the images, counted in pixels.
struct Look {
    unsigned first, top, left;
    bool real;  // not past the last place
};

__device__ inline Look look_at(const Layer& step, unsigned index)
{
    const Place place = place_at(step, index);
    const unsigned top = place.row * step.stride_h - step.pad_top, left = place.column * step.stride_w - step.pad_left;
    return {(place.image * step.height + top) * step.width + left, top, left, index < number_of_places(step)};
}

__device__ inline bool is_inside(const Layer& step, const Look& look, const Tap& tap)
{
    return look.real && look.top + tap.row < step.height && look.left + tap.column < step.width;
}

// Where a word of an FSB image lies: images in groups of eight, and for each pixel tiles along the channels.
__device__ inline unsigned place_in_tiles(unsigned batch, unsigned image, unsigned pixel, unsigned units, unsigned word)
{
    const unsigned group = pixel * divide_up(batch, fsb_lines) + image / fsb_lines;
    const unsigned tile = group * units + word / fsb_words;
    return (tile * fsb_lines + image % fsb_lines) * fsb_words + word % fsb_words;
}

// Where a word of a row that a step makes goes; a row is a pixel, or a vector.
__device__ inline unsigned place_of_word(const Layer& step, unsigned row, unsigned word)
{
#if defined(FSB)
    const unsigned pixels = step.out_height * step.out_width;
    return place_in_tiles(step.batch, row / pixels, row % pixels, divide_up(step.out_channels, fsb_bits), word);
#else
    return row * 2 * divide_up(step.out_channels, unit_bits) + word;
#endif
}
