// Convolutions and dense layers of a whole network on bit tensor cores, in tiles of 8 x 128 bits (BTC, section 6.2).
//
// A row tile are the eight images of a group at one pixel, so that a product's operands lie as they are read: 128 bytes
// in a row. A warp takes a row tile (two from sm_80 on, the four of a window when pooling) by 32 filters, a word of what
// is made. k counts pieces of 128 bits of a window, taps and their channels. A tap outside the image is zeros; with the
// filter's ones there, the table of the border has what this leaves out:
//
//   and:  dot = border - 2 popc(x) + 4 popc(x & filter)      border = (C - 2 ones of the filter) for each tap inside
//   xor:  dot = border - 2 popc(x ^ filter)                  the same + 2 ones of the filter at all taps

#pragma once

#include "bmm/tensor_core.cuh"
#include "bnn/rows.cuh"

enum : unsigned { tiles_across = 4, words_of_a = product_words_of_a, words_of_b = product_words_of_b };

// The eight images of a group at one place of the output.
struct RowTile {
    unsigned group, pixel, corner;  // a corner of a window that is pooled
    bool real;

    __device__ RowTile(const Layer& step, unsigned number)
    {
        const unsigned corners = step.pool ? 4 : 1, groups = divide_up(step.batch, fsb_lines);
        corner = number % corners;
        group = number / corners % groups;
        pixel = number / corners / groups;
        real = pixel < step.out_height * step.out_width;
    }

    // The number of an image's place, in the order of place_at.
    __device__ unsigned place(const Layer& step, unsigned image) const
    {
        const unsigned row = image * step.out_height * step.out_width + pixel;
        return step.pool ? 4 * row + corner : row;
    }
};

// This lane's word of a tile: of image l / 4 of a row tile's group, at a piece.
__device__ inline unsigned word_of_tile(const Layer& step, const unsigned* x, const RowTile& rows, const Look& look,
                                        const Tap& tap)
{
    const unsigned lane = lane_of_this_thread(), groups = divide_up(step.batch, fsb_lines);
    const bool is_image = rows.group * fsb_lines + lane / fsb_words < step.batch;
    if (!rows.real || !is_image || !is_inside(step, look, tap)) return 0;
    const unsigned tile = ((look.first + tap.offset) * groups + rows.group) * step.words + tap.unused;
    return x[tile * warp_size + lane];
}

// What a pass over k gives: row 8 h + l of `sums` is of image l of row tile h.
__device__ inline void add_pieces(const Layer& step, const Memory& memory, const RowTile (&rows)[product_row_tiles],
                                  unsigned column_tile, int* sums)
{
    const unsigned lane = lane_of_this_thread();
    const unsigned* const x = memory.of_arena<const unsigned>(step.x);
    const Tap* const taps = memory.constant<Tap>(step.taps);
    const unsigned* filters =
        memory.constant<unsigned>(step.weights) + column_tile * step.steps_of_k * (tiles_across * warp_size) + lane;
    Look look[product_row_tiles];
#pragma unroll
    for (unsigned h = 0; h < product_row_tiles; ++h)
        look[h] = look_at(step, rows[h].real ? rows[h].place(step, 0) : 0);  // of image 0: all lie at one pixel
    int counts[tiles_across][product_counts] = {}, ones[product_counts] = {};
    for (unsigned piece = 0; piece < step.steps_of_k; piece += product_k_tiles) {
        unsigned a[words_of_a];
#pragma unroll
        for (unsigned i = 0; i < words_of_a; ++i) {
            const unsigned h = line_tile_of<product_row_tiles>(i);
            a[i] = word_of_tile(step, x, rows[h], look[h], taps[piece + k_tile_of<product_row_tiles>(i)]);
        }
#pragma unroll
        for (unsigned j = 0; j < tiles_across; ++j) {
            unsigned b[words_of_b];
#pragma unroll
            for (unsigned i = 0; i < words_of_b; ++i)
                b[i] = __ldg(filters + ((piece + i) * tiles_across + j) * warp_size);
            multiply_fragments(counts[j], a, b);
        }
        const unsigned all[2] = {0xffffffff, 0xffffffff};
        if (counts_common_ones) multiply_fragments(ones, a, all);
    }
#pragma unroll
    for (unsigned j = 0; j < tiles_across; ++j)
#pragma unroll
        for (unsigned i = 0; i < product_counts; ++i) {
            const unsigned row = lane / 4 + i / 2 * fsb_lines, column = fsb_lines * j + 2 * (lane % 4) + i % 2;
            const int counted = counts_common_ones ? 4 * counts[j][i] - 2 * ones[i] : -2 * counts[j][i];
            sums[row * warp_size + column] = counted;
        }
}

// The words of a row tile, by its image's lane; of a window's corners together.
__device__ inline void give_row_tile(const Layer& step, const Memory& memory, const RowTile& rows, unsigned column_tile,
                                     const int* sums, unsigned& word)
{
    const unsigned lane = lane_of_this_thread(), column = column_tile * warp_size + lane;
    const unsigned first = rows.group * fsb_lines, count = min(step.batch - first, (unsigned)fsb_lines);
    const Place place = place_at(step, rows.place(step, first));
    const unsigned border = memory.constant<unsigned>(step.border_rows)[place.row] +
                            memory.constant<unsigned>(step.border_columns)[place.column];
    const int addend = column < step.out_channels ? memory.constant<int>(step.border)[border + column] : 0;
    for (unsigned i = 0; i < count; ++i) {
        const int sum = column < step.out_channels ? sums[i * warp_size + lane] + addend : 0;
        const unsigned one = word_of_row(step, memory, sum, rows.place(step, first + i), column);
        if (lane == i) word = rows.corner ? pooled(step, word, one) : one;
    }
    if (step.lines == nowhere || (step.pool && rows.corner < 3) || lane >= count) return;
    const unsigned row = (first + lane) * step.out_height * step.out_width + rows.pixel;
    memory.of_arena<unsigned>(step.lines)[place_of_word(step, row, column_tile)] = word;
}

__device__ inline void make_products_of_tiles(const Layer& step, const Memory& memory, int* sums)
{
    const unsigned warp = threadIdx.x / warp_size, warps_of_block = blockDim.x / warp_size;
    const unsigned row_tiles = max(step.pool ? 4u : 1u, (unsigned)product_row_tiles);
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned tile = task * warps_of_block + warp, column_tile = tile % step.tiles_of_columns;
        if (tile >= step.tiles) break;
        const unsigned first = tile / step.tiles_of_columns * row_tiles;
        unsigned word = 0;
        for (unsigned pass = 0; pass < row_tiles; pass += product_row_tiles) {
#if __CUDA_ARCH__ >= 800
            const RowTile rows[] = {{step, first + pass}, {step, first + pass + 1}};
#else
            const RowTile rows[] = {{step, first + pass}};
#endif
            __syncwarp();  // the sums before are read
            if (column_tile * warp_size < step.out_channels) add_pieces(step, memory, rows, column_tile, sums);
            __syncwarp();
            for (unsigned h = 0; h < product_row_tiles; ++h)
                if (rows[h].real)
                    give_row_tile(step, memory, rows[h], column_tile, sums + h * fsb_lines * warp_size, word);
        }
    }
}
