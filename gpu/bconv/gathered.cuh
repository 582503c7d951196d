// Windows that two warps gather from the images, each lane the same chunk of a step for some of the rows, and zeros for taps
// outside of the image. Any geometry can be gathered.

#pragma once

#include "bconv/windows.cuh"
#define GATHERED
#include "bmm/warpgroup_tile.cuh"

enum : unsigned {
    bringing = 2 * warp_size,  // threads that bring windows
    fillers = 1 + bringing,    // who arrives when a stage is full: who expects the filters' bytes, too
    rows_of_warp = rows / (bringing / warp_size),
    chunks_of_step = step_bytes / chunk,
    chunks_of_product = product_bytes / chunk,
    rows_at_once = warp_size / chunks_of_step,
    rows_of_lane = rows_of_warp / rows_at_once,
};

// A chunk of k: a piece of the channels of the tap in row r and column s of the filter.
struct Chunk {
    unsigned piece, s, r;

    __device__ void advance(const Chunk& by, const ConvShape& shape, unsigned pieces)
    {
        piece += by.piece, s += by.s, r += by.r;
        if (piece >= pieces) piece -= pieces, ++s;
        if (s >= shape.filter_width) s -= shape.filter_width, ++r;
    }
};

// The first chunks of k: those of a step, and as the last one the way from each to the same of the next step.
struct Chunks {
    Chunk first[chunks_of_step + 1];
};

// A gathering warp. A lane has chunk lane % 8 of each step, of every fourth of the warp's rows.
struct Gatherer {
    Shared& shared;
    const unsigned lane = lane_of_this_thread(), first = (threadIdx.x - multiplying) / warp_size * rows_of_warp;
    const unsigned chunk_of_lane = lane % chunks_of_step, row_of_lane = lane / chunks_of_step;
    unsigned first_chunks[rows_of_lane], inside[rows_of_lane];  // of the windows of its rows

    // Find the windows of a tile, one for each lane, and hand them out.
    __device__ void find_windows(const ConvShape& shape, unsigned row, unsigned pieces)
    {
#pragma unroll
        for (unsigned i = 0; i < rows_of_warp; i += warp_size) {
            const Window window(shape, pixel_at(shape, row + first + i + lane));
            const unsigned chunk_of_window = window.pixel * pieces, taps = window.inside(shape);
#pragma unroll
            for (unsigned j = 0; j < warp_size / rows_at_once; ++j) {
                const unsigned from = j * rows_at_once + row_of_lane;
                first_chunks[i / rows_at_once + j] = __shfl_sync(all_lanes, chunk_of_window, from);
                inside[i / rows_at_once + j] = __shfl_sync(all_lanes, taps, from);
            }
        }
    }

    // Begin the copies of a step, or so many of its chunks; those past the last tap are zeros.
    __device__ void gather(Stage& stage, const uint4* images, const Chunk& at, const ConvShape& shape,
                           unsigned pieces, unsigned needed)
    {
        if (chunk_of_lane >= needed) return;
        const bool is_tap = at.r < shape.filter_height;
        const unsigned taps = is_tap ? 1u << at.r | 0x10000u << at.s : ~0u;  // no window has all of these
        const unsigned chunk_of_tap = Tap(shape, at.r, at.s).pixels * pieces + at.piece;
        unsigned char* const line = &stage.a[(first + row_of_lane) * step_bytes];
#pragma unroll
        for (unsigned i = 0; i < rows_of_lane; ++i) {
            const unsigned swizzled = chunk_of_lane ^ (row_of_lane + i * rows_at_once) % atom_rows;
            copy_chunk(line + swizzled * chunk + i * rows_at_once * step_bytes, images + (first_chunks[i] + chunk_of_tap),
                       (inside[i] & taps) == taps);
        }
    }
};

__device__ inline void fill_stages(Shared& shared, const Tiles& tiles, const uint4* images,
                                   const TensorMap& filters, const ConvShape& shape, const Chunks& chunks)
{
    const unsigned pieces = divide_up(shape.channels, 128);
    Gatherer gatherer{shared};
    Turn<stages> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
        unsigned row, column;
        tiles.find(i, row, column);
        gatherer.find_windows(shape, row, pieces);
        Chunk at = chunks.first[gatherer.chunk_of_lane];
        for (unsigned step = 0; step < tiles.steps; ++step, turn.advance()) {
            Stage& stage = shared.stages[turn.at];
            wait(shared.empty[turn.at], turn.parity ^ 1);  // the first turn passes
            if (threadIdx.x == multiplying) {
                Barrier& full = shared.full[turn.at];
                arrive_and_expect(full, sizeof(stage.b));  // bytes outside of the filters count, too
                load_box(stage.b, filters, step * step_bytes, column, full);
            }
            const unsigned needed = step + 1 < tiles.steps ? chunks_of_step : tiles.last * chunks_of_product;
            gatherer.gather(stage, images, at, shape, pieces, needed);
            arrive_with_chunks(shared.full[turn.at]);
            at.advance(chunks.first[chunks_of_step], shape, pieces);
        }
    }
}
