// The windows of a convolution, and their taps.

#pragma once

#include "bconv/geometry.cuh"

// A tap, from the first one of its window.
struct Tap {
    unsigned down, across, pixels;

    __device__ Tap(const ConvShape& shape, unsigned r, unsigned s)
        : down(r * shape.dilation_h), across(s * shape.dilation_w), pixels(down * shape.width + across)
    {
    }
};

// The place of a window's first tap, in its image and among all pixels of images. Outside of the image these numbers wrap
// around, and back for taps inside.
struct Window {
    unsigned row, column, pixel;

    Window() = default;
    __device__ Window(const ConvShape& shape, const Pixel& of)
        : row(row_of_tap(shape, of.row, 0)), column(column_of_tap(shape, of.column, 0)),
          pixel((of.image * shape.height + row) * shape.width + column)
    {
    }
    __device__ bool has(const Tap& tap, const ConvShape& shape) const
    {
        return is_inside(shape, row + tap.down, column + tap.across);
    }

    // Bit r: row r of its taps is inside the image; bit 16 + s: column s is.
    __device__ unsigned inside(const ConvShape& shape) const
    {
        unsigned found = 0;
        for (unsigned r = 0; r < shape.filter_height; ++r) found |= (row + r * shape.dilation_h < shape.height) << r;
        for (unsigned s = 0; s < shape.filter_width; ++s) found |= (column + s * shape.dilation_w < shape.width) << 16 << s;
        return found;
    }
};
