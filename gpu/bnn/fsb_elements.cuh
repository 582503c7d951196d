// What a whole network in FSB does word by word: elements.cuh has the same for rows.

#pragma once

#include "bnn/elements.cuh"
#include "bnn/layer.cuh"

__device__ inline unsigned words_in_tiles(unsigned channels) { return fsb_words * divide_up(channels, fsb_bits); }

// A thread makes a word at a time; `word_of` gives it for a row and a word's number.
template <typename Make> __device__ inline void make_words(const Layer& step, const Memory& memory, Make word_of)
{
    const unsigned words = words_in_tiles(step.out_channels), count = number_of_rows(step) * words;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned i = task * blockDim.x + threadIdx.x;
        if (i >= count) break;
        memory.of_arena<unsigned>(step.lines)[place_of_word(step, i / words, i % words)] = word_of(i / words, i % words);
    }
}

// Bit 7 - b of a byte is channel b of its eight.
__device__ inline void make_planes_in_tiles(const Layer& step, const Memory& memory)
{
    make_words(step, memory, [&](unsigned row, unsigned first) {
        unsigned word = 0;
        for (unsigned k = 0; k < 4 && 4 * first + k < step.seen_channels; ++k)
            word |= (__brev(memory.images[row * step.seen_channels + 4 * first + k]) >> 24) << 8 * k;
        return word;
    });
}

// The change of format between convolutions and dense layers.
__device__ inline void make_flat_in_tiles(const Layer& step, const Memory& memory)
{
    const unsigned* const x = memory.of_arena<const unsigned>(step.x);
    const unsigned channels = step.seen_channels, units = divide_up(channels, fsb_bits);
    make_words(step, memory, [&](unsigned image, unsigned number) {
        const unsigned first = 32 * number, last = min(first + 32, step.out_channels);
        unsigned word = 0;
        for (unsigned feature = first; feature < last;) {
            const unsigned pixel = feature / channels, channel = feature % channels;
            const unsigned taken = min(min(32 - channel % 32, channels - channel), last - feature);
            const unsigned source = x[place_in_tiles(step.batch, image, pixel, units, channel / 32)] >> channel % 32;
            word |= (source & (0xffffffffu >> (32 - taken))) << (feature - first);
            feature += taken;
        }
        return word;
    });
}

// Windows of words; a pixel outside the image has none.
__device__ inline void make_pools_in_tiles(const Layer& step, const Memory& memory)
{
    const int* const x = memory.of_arena<const int>(step.x);
    const unsigned pixels = step.out_height * step.out_width, units = divide_up(step.out_channels, fsb_bits);
    make_words(step, memory, [&](unsigned row, unsigned number) {
        const unsigned top = row % pixels / step.out_width * step.step_h - step.above;
        const unsigned left = row % step.out_width * step.step_w - step.beside;
        bool first = true;
        int all = 0;
        for (unsigned r = 0; r < step.window_h; ++r) {
            if (top + r >= step.seen_height) continue;
            for (unsigned s = 0; s < step.window_w; ++s) {
                if (left + s >= step.seen_width) continue;
                const unsigned pixel = (top + r) * step.seen_width + left + s;
                const int one = x[place_in_tiles(step.batch, row / pixels, pixel, units, number)];
                all = first ? one : joined(step.join, all, one);
                first = false;
            }
        }
        return all;
    });
}

// A warp makes words of 32 channels, each by a ballot.
__device__ inline void make_bits_in_tiles(const Layer& step, const Memory& memory)
{
    const unsigned words = words_in_tiles(step.out_channels), count = number_of_rows(step) * words;
    const unsigned lane = lane_of_this_thread(), warps_of_block = blockDim.x / warp_size;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned first = (task * warps_of_block + threadIdx.x / warp_size) * words_of_warp;
        for (unsigned i = first; i < min(first + words_of_warp, count); ++i) {
            const unsigned row = i / words, channel = i % words * warp_size + lane;
            bool one = false;
            if (channel < step.out_channels) {
                const int number = number_at(step, memory, row, channel);
                const int2 limit = memory.constant<int2>(step.rule)[channel];
                one = (number >= limit.x) ^ (limit.y != 0);
                const unsigned at = row * step.out_channels + channel;
                if (step.numbers != nowhere) memory.of_arena<int>(step.numbers)[at] = number;
            }
            const unsigned ballot = __ballot_sync(all_lanes, one);
            if (lane == 0) memory.of_arena<unsigned>(step.lines)[place_of_word(step, row, i % words)] = ballot;
        }
    }
}
