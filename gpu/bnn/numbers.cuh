// The integers that steps of a whole network read, and what layers on integers do with them.

#pragma once

#include "bnn/source.cuh"
#include "bnn/step.cuh"

// Integers in the order of floats, and 0 for both zeros. A NaN or an infinity raises *flag, which the host reads.
__device__ inline int in_order(float x, int* flag)
{
    if (!(fabsf(x) <= 3.402823466e38f)) atomicOr(flag, 1);
    const int bits = __float_as_int(x + 0.0f);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

__device__ inline int source_at(const Step& step, const Memory& memory, unsigned place, unsigned at)
{
    const float* const floats = reinterpret_cast<const float*>(memory.images);
    switch (step.source) {
    case bytes: return memory.images[at];
    case reals: return fixed_point(floats[at], step.unit, memory.flag);
    case ordered_bytes: return in_order(memory.images[at], memory.flag);
    case ordered_floats: return in_order(floats[at], memory.flag);
    default: return memory.of_arena<const int>(place)[at];
    }
}

__device__ inline int joined(unsigned join, int x, int y)
{
    switch (join) {
    case join_max: return max(x, y);
    case join_sum: return x + y;
    case join_or: return x | y;
    default: return x & y;
    }
}

// The number (or word) of a row and channel of what is made: of a window's pixels, of which one is inside the image.
__device__ inline int seen_at(const Step& step, const Memory& memory, unsigned place, unsigned row, unsigned channel)
{
    const unsigned from = channel - step.before, channels = step.seen_channels;  // before the first one it wraps around
    if (from >= channels) return 0;
    if (step.join == join_nothing) return source_at(step, memory, place, row * channels + from);
    const unsigned line = row / step.out_width, image = line / step.out_height;
    // Above and left of the image the differences wrap around to large numbers.
    const unsigned top = line % step.out_height * step.step_h - step.above;
    const unsigned left = row % step.out_width * step.step_w - step.beside;
    bool first = true;
    int all = 0;
    for (unsigned r = 0; r < step.window_h; ++r) {
        if (top + r >= step.seen_height) continue;
        for (unsigned s = 0; s < step.window_w; ++s) {
            if (left + s >= step.seen_width) continue;
            const unsigned pixel = (image * step.seen_height + top + r) * step.seen_width + left + s;
            const int one = source_at(step, memory, place, pixel * channels + from);
            all = first ? one : joined(step.join, all, one);
            first = false;
        }
    }
    return all;
}

// Layers on integers in their order: an affine one, a clip, a sum. The network's ranges fit int32, so what wraps
// around is put right by the offset.
__device__ inline int finished(const Step& step, const Memory& memory, int number, unsigned row, unsigned channel)
{
    if (step.affine != nowhere) {
        const int2 rule = memory.constant<int2>(step.affine)[channel];
        number = (int)((unsigned)rule.x * (unsigned)number + (unsigned)rule.y);
    }
    number = min(max(number, step.low), step.high);
    if (step.addend == nowhere) return number;
    return number + seen_at(step, memory, step.addend, row, channel);
}

__device__ inline int number_at(const Step& step, const Memory& memory, unsigned row, unsigned channel)
{
    const bool is_seen = step.addend == nowhere;
    const int x = is_seen ? seen_at(step, memory, step.x, row, channel)
                          : memory.of_arena<const int>(step.x)[row * step.out_channels + channel];
    return finished(step, memory, x, row, channel);
}
