// The signs that stand for bits: 0 where a number is not 0, else -1. Compiled once per element type (signs.cuh).
//
// A NaN is neither: it raises *nan_flag, which the host reads.

#include "bmm/signs.cuh"

extern "C" __global__ void __launch_bounds__(256)
nonzero(const Element* __restrict__ elements, signed char* __restrict__ signs, unsigned long long count,
        int* __restrict__ nan_flag)
{
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const unsigned word = word_of(elements[i]);
    const unsigned magnitude = per_word == 4 ? word : word & ~top_of_first;  // integers have no minus zero
    signs[i] = magnitude == 0 ? -1 : 0;
    if (any_nan(word, word)) atomicOr(nan_flag, 1);
}
