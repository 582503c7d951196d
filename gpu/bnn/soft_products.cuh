// Convolutions and dense layers of bits in a whole network, on CUDA cores (BSTC, sections 5 and 6):
//
//   dot[pixel, o] = channels * (taps - exclude) - 2 * sum over taps inside, w of popc(x[tap, w] ^ w[tap, w, o])
//
// A dense layer is a convolution of images of one pixel. A warp takes a tile of pixels (windows as a whole when
// pooling) by 32 or 64 filters: each lane has a filter or two and looks up the taps of a pixel or two, whose words it
// broadcasts. Filters have a word of all filters after another, as in listings 4 to 6.

#pragma once

#include "bnn/rows.cuh"

__device__ inline unsigned count_ones(unsigned word) { return __popc(word); }
__device__ inline unsigned count_ones(unsigned long long word) { return __popcll(word); }

// How many bits differ, for each pixel of the tile and each of the lane's filters; carry-save as in gpu/bmm/bmm.cu.
template <typename Bits, unsigned rows, unsigned halves> struct CarrySave {
    Bits ones[rows][halves] = {};
    unsigned twos[rows][halves] = {};
    __device__ void add(unsigned row, unsigned half, Bits x, Bits y)
    {
        Bits& sum = ones[row][half];
        twos[row][half] += count_ones((Bits)((x & y) | (sum & (x ^ y))));
        sum ^= x ^ y;
    }
    __device__ unsigned operator()(unsigned row, unsigned half) const
    {
        return 2 * twos[row][half] + count_ones(ones[row][half]);
    }
};

// Two counts of 16 bits in a register (listing 5): right up to 65,535 bits.
template <typename Bits, unsigned rows, unsigned halves> struct Packed {
    static_assert(halves == 2, "a register has two counts");
    unsigned both[rows] = {};
    __device__ void add(unsigned row, unsigned half, Bits x, Bits y)
    {
        both[row] += (count_ones(x) + count_ones(y)) << 16 * half;
    }
    __device__ unsigned operator()(unsigned row, unsigned half) const { return both[row] >> 16 * half & 0xffffu; }
};

// What differs between the pixels inside the image and the lane's filters, at one tap.
template <typename Bits, unsigned rows, unsigned halves, unsigned looks, typename Counters>
__device__ inline void count_tap(Counters& differing, const Bits* const (&pixels)[looks],
                                 const unsigned (&in_frame)[looks], const bool (&inside)[looks], const Bits* filters,
                                 unsigned words, unsigned columns)
{
    for (unsigned w = 0; w < words; w += 2) {
        const bool pair = w + 1 < words;
        Bits x[looks], y[looks], f[halves], g[halves];
#pragma unroll
        for (unsigned h = 0; h < looks; ++h) {
            x[h] = inside[h] ? pixels[h][w] : 0;
            y[h] = inside[h] && pair ? pixels[h][w + 1] : 0;
        }
#pragma unroll
        for (unsigned half = 0; half < halves; ++half) {
            f[half] = __ldg(filters + w * columns + half * warp_size);
            g[half] = pair ? __ldg(filters + (w + 1) * columns + half * warp_size) : 0;
        }
#pragma unroll
        for (unsigned i = 0; i < rows; ++i) {
            if (!(in_frame[i / warp_size] >> i % warp_size & 1)) continue;
            const Bits of_x = __shfl_sync(all_lanes, x[i / warp_size], i % warp_size);
            const Bits of_y = __shfl_sync(all_lanes, y[i / warp_size], i % warp_size);
#pragma unroll
            for (unsigned half = 0; half < halves; ++half)
                differing.add(i, half, of_x ^ f[half], of_y ^ g[half]);
        }
    }
}

template <typename Bits, unsigned rows, unsigned halves, typename Counters>
__device__ inline void make_soft_tile(const Layer& step, const Memory& memory, Sums& sums, unsigned first_row,
                                      unsigned first_column)
{
    enum : unsigned { looks = (rows + warp_size - 1) / warp_size, words_of_unit = unit_bits / (8 * sizeof(Bits)) };
    const unsigned lane = lane_of_this_thread(), pitch = step.units * words_of_unit;
    const Tap* const taps = memory.constant<Tap>(step.taps);
    const Bits* const x = memory.of_arena<const Bits>(step.x);
    const Bits* filters = memory.constant<Bits>(step.weights) + first_column + lane;
    Look look[looks];
#pragma unroll
    for (unsigned h = 0; h < looks; ++h) look[h] = look_at(step, first_row + h * warp_size + lane % rows);
    unsigned exclude[looks] = {};  // taps of the lane's pixels outside the image
    Counters differing;
    const unsigned count = first_column < step.out_channels ? step.window_taps : 0;  // else the rest of a unit
    for (unsigned t = 0; t < count; ++t, filters += step.words * step.columns) {
        const Tap tap = taps[t];
        const Bits* pixels[looks];
        unsigned in_frame[looks], any = 0;
        bool inside[looks];
#pragma unroll
        for (unsigned h = 0; h < looks; ++h) {
            inside[h] = is_inside(step, look[h], tap);
            exclude[h] += !inside[h];
            any |= in_frame[h] = __ballot_sync(all_lanes, inside[h]);
            pixels[h] = x + (inside[h] ? look[h].first + tap.offset : 0) * pitch;
        }
        if (any) count_tap<Bits, rows, halves>(differing, pixels, in_frame, inside, filters, step.words, step.columns);
    }
#pragma unroll
    for (unsigned first = 0; first < rows; first += rows_at_once) {
#pragma unroll
        for (unsigned i = 0; i < rows_at_once; ++i) {
            const unsigned row = first + i, taken = count - exclude[row / warp_size];
            const unsigned length = step.channels * __shfl_sync(all_lanes, taken, row % warp_size);
#pragma unroll
            for (unsigned half = 0; half < halves; ++half)
                sums[i][half * warp_size + lane] = (int)(length - 2 * differing(row, half));
        }
        give_rows<halves>(step, memory, sums, first_row + first, first_column);
    }
}

// Warps take the tiles in turn (listing 8).
template <typename Bits, unsigned rows, unsigned halves, typename Counters>
__device__ inline void make_soft_products(const Layer& step, const Memory& memory, Sums& sums)
{
    const unsigned warp = threadIdx.x / warp_size, warps = blockDim.x / warp_size;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned tile = task * warps + warp;
        if (tile >= step.tiles) break;
        make_soft_tile<Bits, rows, halves, Counters>(step, memory, sums, tile / step.tiles_of_columns * rows,
                                                     tile % step.tiles_of_columns * (halves * warp_size));
    }
}
