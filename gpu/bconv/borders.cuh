// The border of the output, whose windows are not whole. The host finds it (gpu/bconv/btc.py).

#pragma once

#include "bconv/geometry.cuh"

// The windows of output rows [top, bottom) have all rows of the filter inside the image, those of columns
// [left, right) all columns. Windows that have the same taps for that reason share a row of addends.
struct Borders {
    unsigned top, bottom, left, right;

    // All that are inside are one number, the one after those before.
    __device__ static unsigned shared(unsigned at, unsigned begin, unsigned end)
    {
        return at < begin ? at : at < end ? begin : at - (end - begin) + 1;
    }

    // One of the rows or columns of such a number.
    __device__ static unsigned sample(unsigned number, unsigned begin, unsigned end)
    {
        return number <= begin ? number : number + (end - begin) - 1;
    }

    __device__ unsigned across(const ConvShape& shape) const { return left + 1 + (shape.out_width - right); }
    __device__ unsigned down(const ConvShape& shape) const { return top + 1 + (shape.out_height - bottom); }

    __device__ unsigned of_pixel(const ConvShape& shape, const Pixel& pixel) const
    {
        return shared(pixel.row, top, bottom) * across(shape) + shared(pixel.column, left, right);
    }
};

// Rows of addends begin at multiples of 8 bytes.
__device__ inline unsigned pitch_of_addends(const ConvShape& shape) { return shape.filters + shape.filters % 2; }
