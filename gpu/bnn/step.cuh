// A step of a whole network as data. The host's twin is gpu/bnn/whole.py.

#pragma once

enum Kind : unsigned {
    products_of_bits,     // convolutions and dense layers; products.cuh
    products_of_numbers,  //
    numbers_of_numbers,   // element by element; elements.cuh
    bits_of_numbers,
    shorts_of_numbers,
    bits_of_planes,
    bits_flattened,
    bits_pooled,
    last_answer,  // answer.cuh
};

enum Source : unsigned { integers, bytes, reals, ordered_bytes, ordered_floats };

enum Join : unsigned { join_nothing, join_or, join_and, join_max, join_sum };

enum : unsigned { nowhere = 0xffffffff };

// Bits of a row (a pixel, or a vector) are units of 64, the first bit lowest, zero past the last one.
// Shorts of a row are units of four: low bytes, then high bytes. Integers of 32 bits are two planes of them.
enum : unsigned { unit_bits = 64, unit_shorts = 4 };

struct Step {
    unsigned kind;
    unsigned waits;  // for all blocks to have ended the steps before
    unsigned tasks, first_block;
    // In the arena, by 16 bytes: what is read, what is added to it, and what is written.
    unsigned x, addend, numbers, lines;
    // In the constants, by 16 bytes.
    unsigned weights, taps, border, border_rows, border_columns, affine, rule;
    unsigned bytes_of_weights;
    // What is made.
    unsigned batch, out_height, out_width, out_channels;
    // Of products: the images, and units of each pixel.
    unsigned height, width, units, pad_top, pad_left, stride_h, stride_w;
    unsigned pool;  // of bits, windows of 2 x 2
    unsigned tiles, tiles_of_columns, steps_of_k, parts_of_k;
    unsigned planes, plane;  // of shorts: how many, and units of each
    // The addend if there is one, else x, is seen through windows of its pixels, behind channels of zeros.
    unsigned seen_height, seen_width, seen_channels, before, join;
    unsigned window_h, window_w, step_h, step_w, above, beside;
    unsigned source;
    int low, high;
    float unit;
};

// The arrays of a launch.
struct Memory {
    const unsigned char* images;
    unsigned char* arena;
    const unsigned char* constants;
    int* flag;
    int* sums;
    float* logits;
    long long* classes;

    template <typename T> __device__ T* of_arena(unsigned place) const
    {
        return reinterpret_cast<T*>(arena + 16ull * place);
    }
    template <typename T> __device__ const T* constant(unsigned place) const
    {
        return reinterpret_cast<const T*>(constants + 16ull * place);
    }
};

// Tasks are dealt out to blocks in turn, from the one behind the last task of the step before.
__device__ inline unsigned first_task(const Step& step)
{
    const unsigned before = blockIdx.x < step.first_block ? gridDim.x : 0;
    return blockIdx.x + before - step.first_block;
}
