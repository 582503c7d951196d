// Convolutions and dense layers of a whole network: products on tensor cores, by sm_80's instructions.
//
// A dense layer is a convolution of images of one pixel. k counts units of a window: taps, and in each the units
// of a pixel. A warp makes a tile of 16 pixels and 32 filters; lane l has words l % 4 of pixels l / 4 and l / 4 + 8,
// and of the filters 8 t + l / 4, and gets their products with filters 8 t + 2 (l % 4) and the one after. It takes
// its units straight from memory: which of them meet in a step does not matter, as long as filters have them alike.
//
// Where tiles are few the warps of a team share a tile's k, and add up.
//
// Taps outside the image are zeros, which count for nothing among numbers. Of bits, with `and`,
//
//   dot = (C - 2 ones of the filter) for each tap inside + 4 popc(x & filter) - 2 popc(x),
//
// where the first term is the border's, from a table, and popc(x) a product with a filter of ones.

#pragma once

#include "bmm/warp.cuh"
#include "bnn/byte_products.cuh"
#include "bnn/numbers.cuh"
#include "bnn/step.cuh"

enum : unsigned {
    tile_pixels = 16,
    column_tiles = 4,  // of eight filters
    tile_filters = 8 * column_tiles,
    sums_of_lane = 4 * column_tiles,
};

// Where a unit of a window is, from the window's first one. A unit past the last one is never inside.
struct Tap {
    unsigned offset, row, column, unused;
};

struct Window {
    unsigned first, top, left;
};

__device__ inline void multiply_bits(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A pixel that is computed. With a pool four after one another are a window of 2 x 2.
struct Place {
    unsigned image, row, column;
};

__device__ inline unsigned number_of_places(const Step& step)
{
    return step.batch * step.out_height * step.out_width * (step.pool ? 4 : 1);
}

// Past the last one, the last one.
__device__ inline Place place_at(const Step& step, unsigned index)
{
    index = min(index, number_of_places(step) - 1);
    const unsigned corner = step.pool ? index % 4 : 0, pixel = step.pool ? index / 4 : index;
    const unsigned line = pixel / step.out_width, scale = step.pool ? 2 : 1;
    return {line / step.out_height, scale * (line % step.out_height) + corner / 2,
            scale * (pixel % step.out_width) + corner % 2};
}

// Above and left of the image the differences wrap around to large numbers.
__device__ inline Window window_at(const Step& step, const Place& place)
{
    const unsigned top = place.row * step.stride_h - step.pad_top, left = place.column * step.stride_w - step.pad_left;
    return {((place.image * step.height + top) * step.width + left) * step.units, top, left};
}

__device__ inline uint2 unit_of(const Step& step, const uint2* x, const Window& window, const Tap& tap)
{
    const bool inside = window.top + tap.row < step.height && window.left + tap.column < step.width;
    return inside ? x[window.first + tap.offset] : make_uint2(0, 0);
}

// This lane's sums over some steps of k, of bits: without the border's term.
__device__ inline void add_products_of_bits(const Step& step, const uint2* x, const Window (&windows)[2],
                                            const Tap* taps, const uint4* weights, unsigned first, unsigned last,
                                            int (&sums)[sums_of_lane])
{
    int common[column_tiles][4] = {}, ones[4] = {};
    const unsigned lane = lane_of_this_thread();
#pragma unroll 4
    for (unsigned k = first; k < last; ++k) {
        const Tap tap = taps[4 * k + lane % 4];
        const uint2 up = unit_of(step, x, windows[0], tap), down = unit_of(step, x, windows[1], tap);
        const unsigned a[] = {up.x, down.x, up.y, down.y};
#pragma unroll
        for (unsigned pair = 0; pair < column_tiles / 2; ++pair) {
            const uint4 b = __ldg(weights + (k * column_tiles / 2 + pair) * warp_size + lane);
            multiply_bits(common[2 * pair], a, b.x, b.y);
            multiply_bits(common[2 * pair + 1], a, b.z, b.w);
        }
        multiply_bits(ones, a, 0xffffffff, 0xffffffff);
    }
#pragma unroll
    for (unsigned i = 0; i < sums_of_lane; ++i) sums[i] += 4 * common[i / 4][i % 4] - 2 * ones[i / 2 % 2 * 2];
}

// The same of shorts: low bytes and high bytes are two products. What wraps around is put right by the sum.
__device__ inline void add_products_of_shorts(const Step& step, const uint2* x, const Window (&windows)[2],
                                              const Tap* taps, const uint4* weights, unsigned begin, unsigned end,
                                              unsigned shift, int (&sums)[sums_of_lane])
{
    int low[column_tiles][4] = {}, high[column_tiles][4] = {};
    const unsigned lane = lane_of_this_thread();
#pragma unroll 2
    for (unsigned k = begin; k < end; ++k) {
        const Tap tap = taps[8 * k + 2 * (lane % 4)], next = taps[8 * k + 2 * (lane % 4) + 1];
        const uint2 up[] = {unit_of(step, x, windows[0], tap), unit_of(step, x, windows[0], next)};
        const uint2 down[] = {unit_of(step, x, windows[1], tap), unit_of(step, x, windows[1], next)};
        const unsigned of_low[] = {up[0].x, down[0].x, up[1].x, down[1].x};
        const unsigned of_high[] = {up[0].y, down[0].y, up[1].y, down[1].y};
#pragma unroll
        for (unsigned pair = 0; pair < column_tiles / 2; ++pair) {
            const uint4 b = __ldg(weights + (k * column_tiles / 2 + pair) * warp_size + lane);
            const unsigned first[] = {b.x, b.y}, second[] = {b.z, b.w};
            multiply_add<false>(low[2 * pair], of_low, first);
            multiply_add<false>(low[2 * pair + 1], of_low, second);
            multiply_add<true>(high[2 * pair], of_high, first);
            multiply_add<true>(high[2 * pair + 1], of_high, second);
        }
    }
#pragma unroll
    for (unsigned i = 0; i < sums_of_lane; ++i) {
        const unsigned sum = (unsigned)low[i / 4][i % 4] + 256u * (unsigned)high[i / 4][i % 4];
        sums[i] = (int)((unsigned)sums[i] + (sum << shift));
    }
}

// The sums of a tile over a part of k.
__device__ inline void add_tile(const Step& step, const Memory& memory, unsigned tile, unsigned part,
                                int (&sums)[sums_of_lane])
{
    const unsigned columns = tile % step.tiles_of_columns, index = tile / step.tiles_of_columns * tile_pixels;
    if (columns * tile_filters >= step.out_channels) return;  // the rest of a unit
    const unsigned first = part * step.steps_of_k / step.parts_of_k;
    const unsigned last = (part + 1) * step.steps_of_k / step.parts_of_k;
    const unsigned pixel = index + lane_of_this_thread() / 4;
    const Window windows[] = {window_at(step, place_at(step, pixel)), window_at(step, place_at(step, pixel + 8))};
    const Tap* const taps = memory.constant<Tap>(step.taps);
    const uint2* const x = memory.of_arena<const uint2>(step.x);
    const uint4* const weights =
        memory.constant<uint4>(step.weights) + columns * step.steps_of_k * (column_tiles / 2 * warp_size);
    if (step.kind == products_of_bits) {
        add_products_of_bits(step, x, windows, taps, weights, first, last, sums);
        return;
    }
    for (unsigned plane = 0; plane < step.planes; ++plane)
        add_products_of_shorts(step, x + plane * step.plane, windows, taps, weights, first, last, 16 * plane, sums);
}

// One lane's bits of a row, two for each tile of columns, together with those of its neighbours: the row's word.
__device__ inline unsigned word_of(const Step& step, unsigned bits)
{
    bits |= __shfl_xor_sync(all_lanes, bits, 1);
    bits |= __shfl_xor_sync(all_lanes, bits, 2);
    if (step.pool == join_nothing) return bits;
#pragma unroll
    for (unsigned distance = 4; distance <= 8; distance *= 2) {
        const unsigned other = __shfl_xor_sync(all_lanes, bits, distance);
        bits = step.pool == join_or ? bits | other : bits & other;
    }
    return bits;
}

// Give a tile's sums: as integers, as bits, or both.
__device__ inline void give_tile(const Step& step, const Memory& memory, unsigned tile, const int (&sums)[sums_of_lane])
{
    const unsigned lane = lane_of_this_thread(), column_tile = tile % step.tiles_of_columns;
    const unsigned first_column = column_tile * tile_filters + 2 * (lane % 4);
    const int2* const rule = memory.constant<int2>(step.rule);
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
        const unsigned index = tile / step.tiles_of_columns * tile_pixels + lane / 4 + 8 * half;
        const bool real = index < number_of_places(step);
        const int* border = nullptr;
        if (step.border != nowhere) {
            const Place place = place_at(step, index);
            border = memory.constant<int>(step.border) + memory.constant<unsigned>(step.border_rows)[place.row] +
                     memory.constant<unsigned>(step.border_columns)[place.column];
        }
        unsigned bits = 0;
#pragma unroll
        for (unsigned i = 0; i < 2 * column_tiles; ++i) {
            const unsigned column = first_column + i / 2 * 8 + i % 2;
            int sum = sums[i / 2 * 4 + 2 * half + i % 2];
            if (border) sum += border[column];
            const unsigned at = index * step.out_channels + column;
            if (real && column < step.out_channels) {
                sum = finished(step, memory, sum, index, column);
                if (step.numbers != nowhere) memory.of_arena<int>(step.numbers)[at] = sum;
            }
            if (step.lines != nowhere) {
                const int2 limit = rule[column];
                bits |= (unsigned)((sum >= limit.x) ^ (limit.y != 0)) << (i / 2 * 8 + 2 * (lane % 4) + i % 2);
            }
        }
        if (step.lines == nowhere) continue;
        bits = word_of(step, bits);
        const unsigned rows = step.pool ? 4 : 1;
        if (real && lane % 4 == 0 && lane / 4 % rows == 0)
            memory.of_arena<unsigned>(step.lines)[index / rows * step.tiles_of_columns + column_tile] = bits;
    }
}

// A team's first warp adds the others' sums to its own.
template <unsigned warps>
__device__ inline void add_up(const Step& step, int (&shared)[warps][sums_of_lane][warp_size], unsigned warp,
                              int (&sums)[sums_of_lane])
{
    const unsigned lane = lane_of_this_thread(), part = warp % step.parts_of_k;
    __syncthreads();  // the sums of the task before are read
    if (part) {
#pragma unroll
        for (unsigned i = 0; i < sums_of_lane; ++i) shared[warp][i][lane] = sums[i];
    }
    __syncthreads();
    if (part) return;
    for (unsigned other = 1; other < step.parts_of_k; ++other)
#pragma unroll
        for (unsigned i = 0; i < sums_of_lane; ++i) sums[i] += shared[warp + other][i][lane];
}

template <unsigned warps>
__device__ inline void make_products(const Step& step, const Memory& memory,
                                     int (&shared)[warps][sums_of_lane][warp_size])
{
    const unsigned warp = threadIdx.x / warp_size, part = warp % step.parts_of_k;
    const unsigned teams = warps / step.parts_of_k;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned tile = task * teams + warp / step.parts_of_k;
        int sums[sums_of_lane] = {};
        if (tile < step.tiles) add_tile(step, memory, tile, part, sums);
        if (step.parts_of_k > 1) add_up(step, shared, warp, sums);
        if (tile < step.tiles && part == 0) give_tile(step, memory, tile, sums);
    }
}
