// What the kernels of this folder share: the warp, its tile, and the order of bits in a word.
//
//   -DWORD_32 | -DWORD_64 | -DWORD=128   the word size of packed matrices
//   -DFIRST_MSB | -DFIRST_LSB    where the first of a word's elements goes

#pragma once

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

#if defined(WORD_64)
#define WORD 64
typedef unsigned long long Word;
#elif !defined(WORD)  // more than 64 are several numbers, without a type
#define WORD 32
typedef unsigned Word;
#endif
enum : unsigned { word_size = WORD, word_halves = WORD / 32 };

typedef unsigned long long Index;  // into matrices, which may have more than 2^32 elements

__device__ inline unsigned divide_up(unsigned x, unsigned y) { return x / y + (x % y != 0); }

__device__ inline unsigned lane_of_this_thread() { return threadIdx.x % warp_size; }

// Warps are numbered along the grid.
__device__ inline unsigned number_of_this_warp()
{
    return blockIdx.x * (blockDim.x / warp_size) + threadIdx.x / warp_size;
}

// A ballot has lane 0 in its lowest bit. Turn it so that lane 0 is the first element.
__device__ inline unsigned first_lane_first(unsigned ballot)
{
#if defined(FIRST_MSB)
    return __brev(ballot);
#else
    return ballot;
#endif
}

// Half a word, as a 32-bit number in memory: half 0 holds the first elements.
__device__ inline Index half_at(Index word, unsigned half)
{
#if defined(FIRST_MSB)
    return word * word_halves + (word_halves - 1 - half);
#else
    return word * word_halves + half;
#endif
}

// Floats of 16 bits: float16 and bfloat16 differ in where their exponent ends.
#if defined(ELEMENT_BFLOAT16)
enum : unsigned short { is_bfloat16 = 1, infinity_of_16_bits = 0x7f80 };
#else
enum : unsigned short { is_bfloat16 = 0, infinity_of_16_bits = 0x7c00 };
#endif
