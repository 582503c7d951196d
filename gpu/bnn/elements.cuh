// What a whole network does element by element. A task is one element of each thread, or a few words of each warp.

#pragma once

#include "bmm/warp.cuh"
#include "bnn/numbers.cuh"
#include "bnn/step.cuh"

enum : unsigned { words_of_warp = 8 };

__device__ inline unsigned number_of_rows(const Step& step) { return step.batch * step.out_height * step.out_width; }

__device__ inline unsigned units_of(unsigned channels, unsigned of_unit) { return divide_up(channels, of_unit); }

__device__ inline void make_numbers(const Step& step, const Memory& memory)
{
    const unsigned count = number_of_rows(step) * step.out_channels;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned i = task * blockDim.x + threadIdx.x;
        if (i >= count) break;
        memory.of_arena<int>(step.numbers)[i] =
            number_at(step, memory, i / step.out_channels, i % step.out_channels);
    }
}

// A warp makes words of 32 channels, each by a ballot; past the last channel they are zero.
__device__ inline void make_bits(const Step& step, const Memory& memory)
{
    const unsigned words = 2 * units_of(step.out_channels, unit_bits), count = number_of_rows(step) * words;
    const unsigned lane = lane_of_this_thread(), warps = blockDim.x / warp_size;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned first = (task * warps + threadIdx.x / warp_size) * words_of_warp;
        unsigned mine = 0;
#pragma unroll 4
        for (unsigned i = 0; i < words_of_warp; ++i) {
            const unsigned row = (first + i) / words, channel = (first + i) % words * warp_size + lane;
            bool one = false;
            if (first + i < count && channel < step.out_channels) {
                const int number = number_at(step, memory, row, channel);
                const int2 limit = memory.constant<int2>(step.rule)[channel];
                one = (number >= limit.x) ^ (limit.y != 0);
                const unsigned at = row * step.out_channels + channel;
                if (step.numbers != nowhere) memory.of_arena<int>(step.numbers)[at] = number;
            }
            const unsigned ballot = __ballot_sync(all_lanes, one);
            if (lane == i) mine = ballot;
        }
        if (lane < words_of_warp && first + lane < count) memory.of_arena<unsigned>(step.lines)[first + lane] = mine;
    }
}

// Four channels' low bytes and high bytes; of integers of 32 bits a second plane with the rest, so that
// x = short of plane 0 + 65536 * short of plane 1, up to what wraps around.
__device__ inline void make_shorts(const Step& step, const Memory& memory)
{
    const unsigned units = units_of(step.out_channels, unit_shorts), count = number_of_rows(step) * units;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned i = task * blockDim.x + threadIdx.x;
        if (i >= count) break;
        uint2 unit = {}, rest = {};
#pragma unroll
        for (unsigned k = 0; k < unit_shorts; ++k) {
            const unsigned channel = i % units * unit_shorts + k;
            if (channel >= step.out_channels) break;
            const unsigned number = number_at(step, memory, i / units, channel);
            const unsigned above = (number - (unsigned)(int)(short)number) >> 16;
            unit.x |= (number & 255) << 8 * k;
            unit.y |= (number >> 8 & 255) << 8 * k;
            rest.x |= (above & 255) << 8 * k;
            rest.y |= (above >> 8) << 8 * k;
        }
        uint2* const shorts = memory.of_arena<uint2>(step.lines);
        shorts[i] = unit;
        if (step.planes == 2) shorts[step.plane + i] = rest;
    }
}

// Bit 7 - b of a byte is channel b of its eight: a word is four bytes, each reversed.
__device__ inline void make_planes(const Step& step, const Memory& memory)
{
    const unsigned words = 2 * units_of(step.out_channels, unit_bits), count = number_of_rows(step) * words;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned i = task * blockDim.x + threadIdx.x;
        if (i >= count) break;
        unsigned word = 0;
        for (unsigned k = 0; k < 4 && 4 * (i % words) + k < step.seen_channels; ++k)
            word |= (__brev(memory.images[i / words * step.seen_channels + 4 * (i % words) + k]) >> 24) << 8 * k;
        memory.of_arena<unsigned>(step.lines)[i] = word;
    }
}

// Bits of pixels as bits of a vector, without the gaps that fill the last unit of each pixel.
__device__ inline void make_flat(const Step& step, const Memory& memory)
{
    const unsigned features = step.out_channels, words = 2 * units_of(features, unit_bits);
    const unsigned gaps = 2 * units_of(step.seen_channels, unit_bits), pixels = step.seen_height * step.seen_width;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned i = task * blockDim.x + threadIdx.x;
        if (i >= step.batch * words) break;
        const unsigned image = i / words, first = i % words * 32, last = min(first + 32, features);
        unsigned word = 0;
        for (unsigned feature = first; feature < last;) {
            const unsigned pixel = feature / step.seen_channels, channel = feature % step.seen_channels;
            // From here to the end of the source's word, of the pixel, or of the vector's word.
            const unsigned taken = min(min(32 - channel % 32, step.seen_channels - channel), last - feature);
            const unsigned at = (image * pixels + pixel) * gaps + channel / 32;
            const unsigned source = memory.of_arena<const unsigned>(step.x)[at] >> channel % 32;
            word |= (source & (0xffffffffu >> (32 - taken))) << (feature - first);
            feature += taken;
        }
        memory.of_arena<unsigned>(step.lines)[i] = word;
    }
}

// Windows of words. Each has a pixel inside the image.
__device__ inline void make_pools(const Step& step, const Memory& memory)
{
    const unsigned words = step.seen_channels, count = number_of_rows(step) * words;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned i = task * blockDim.x + threadIdx.x;
        if (i >= count) break;
        memory.of_arena<int>(step.lines)[i] = seen_at(step, memory, step.x, i / words, i % words);
    }
}
