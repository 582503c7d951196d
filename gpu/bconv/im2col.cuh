// Windows that the copy engine brings, through an im2col map of the images: a copy has a piece of a tap of all windows of a
// tile, and zeros for taps outside of the image. Pixels of the output must be in memory order.

#pragma once

#include "bconv/windows.cuh"
#define PIECE IM2COL
#include "bmm/warpgroup_tile.cuh"

enum : unsigned {
    bringing = warp_size,  // threads of the warp whose first one asks for copies
    fillers = 1,           // who arrives when a stage is full
};

// A piece of k: some bytes of the tap in row r and column s of the filter.
struct Piece {
    unsigned byte, s, r;

    // The next one; after the last one, itself: filters have zeros there.
    __device__ Piece next(const ConvShape& shape, unsigned bytes_of_pixel) const
    {
        Piece next = {byte + piece_bytes, s, r};
        if (next.byte == bytes_of_pixel) next.byte = 0, ++next.s;
        if (next.s == shape.filter_width) next.s = 0, ++next.r;
        return next.r < shape.filter_height ? next : *this;
    }
};

__device__ inline void fill_stages(Shared& shared, const Tiles& tiles, const TensorMap& images, const TensorMap& filters,
                                   const ConvShape& shape)
{
    if (threadIdx.x != multiplying) return;
    const unsigned bytes_of_pixel = divide_up(shape.channels, 128) * chunk;
    Turn<stages> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
        unsigned first, column;
        tiles.find(i, first, column);
        const Pixel pixel = pixel_at(shape, first);
        const int down = row_of_tap(shape, pixel.row, 0), across = column_of_tap(shape, pixel.column, 0);
        Piece at = {};
        for (unsigned step = 0; step < tiles.steps; ++step, turn.advance()) {
            Stage& stage = shared.stages[turn.at];
            Barrier& full = shared.full[turn.at];
            const unsigned products = step + 1 < tiles.steps ? products_of_step : tiles.last;
            const unsigned pieces = divide_up(products * product_bytes, piece_bytes);
            wait(shared.empty[turn.at], turn.parity ^ 1);  // the first turn passes
            arrive_and_expect(full, pieces * rows * piece_bytes + sizeof(stage.b));  // bytes outside count, too
            load_box(stage.b, filters, step * step_bytes, column, full);
            for (unsigned piece = 0; piece < pieces; ++piece, at = at.next(shape, bytes_of_pixel))
                load_pixels(stage.a + piece * rows * piece_bytes, images, at.byte, across, down, pixel.image,
                            at.s * shape.dilation_w, at.r * shape.dilation_h, full);
        }
    }
}
