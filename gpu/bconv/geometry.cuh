// The geometry of a convolution, and where its taps fall. The host's twin is gpu/bconv/geometry.py.
//
//   -DPOOL_NONE               pixels of the output in memory order: image, row, column
//   -DPOOL_OR | -DPOOL_AND    four neighbours after one another are a window of 2 x 2; a last odd row or
//                             column belongs to no window

#pragma once

#include "bmm/warp.cuh"

// Images, filters and outputs have fewer than 2^31 elements each: offsets into them fit 32 bits.
struct ConvShape {
    unsigned batch, height, width, channels;
    unsigned filter_height, filter_width, filters;
    unsigned out_height, out_width;
    unsigned pad_top, pad_left;
    unsigned stride_h, stride_w;
    unsigned dilation_h, dilation_w;
};

// A pixel of the output.
struct Pixel {
    unsigned image, row, column;
};

#if defined(POOL_OR) || defined(POOL_AND)
enum : unsigned { window = 4 };
__device__ inline unsigned rows_of_output(const ConvShape& shape) { return shape.out_height / 2; }
__device__ inline unsigned columns_of_output(const ConvShape& shape) { return shape.out_width / 2; }
#else
enum : unsigned { window = 1 };
__device__ inline unsigned rows_of_output(const ConvShape& shape) { return shape.out_height; }
__device__ inline unsigned columns_of_output(const ConvShape& shape) { return shape.out_width; }
#endif

// How many pixels are computed; number_of_pixels / window of them leave the kernel.
__device__ inline unsigned number_of_pixels(const ConvShape& shape)
{
    return window * shape.batch * rows_of_output(shape) * columns_of_output(shape);
}

// Pixel `index` of those that are computed; past the last one, the last one.
__device__ inline Pixel pixel_at(const ConvShape& shape, unsigned index)
{
    index = min(index, number_of_pixels(shape) - 1);
    const unsigned place = index / window, corner = index % window;
    const unsigned column = place % columns_of_output(shape), line = place / columns_of_output(shape);
    const unsigned row = line % rows_of_output(shape), image = line / rows_of_output(shape);
#if defined(POOL_OR) || defined(POOL_AND)
    return {image, 2 * row + corner / 2, 2 * column + corner % 2};
#else
    return {image, row, column};
#endif
}

// The row of the image that filter row r covers at output row p. Above the image the difference wraps
// around to more than 2^31, which is past any height.
__device__ inline unsigned row_of_tap(const ConvShape& shape, unsigned p, unsigned r)
{
    return p * shape.stride_h + r * shape.dilation_h - shape.pad_top;
}

__device__ inline unsigned column_of_tap(const ConvShape& shape, unsigned q, unsigned s)
{
    return q * shape.stride_w + s * shape.dilation_w - shape.pad_left;
}

__device__ inline bool is_inside(const ConvShape& shape, unsigned row, unsigned column)
{
    return row < shape.height && column < shape.width;
}
