// The logits of an image's last sums, and the first class with the largest one.

#pragma once

#include "bmm/largest.cuh"

// For a warp; `wide` gets the sums themselves unless it is null. A product and a sum, each rounded: the compiler
// fuses nothing (-fmad=false).
template <typename Number>
__device__ inline void answer_of(unsigned image, const Number* sums, const float* scale,
                                 const float* offset, int* wide,
                                 float* logits, long long* classes, unsigned count)
{
    const unsigned lane = lane_of_this_thread();
    float largest = 0;
    unsigned best = count;  // no class yet
    for (unsigned k = lane; k < count; k += warp_size) {
        const int sum = sums[image * count + k];
        if (wide) wide[image * count + k] = sum;
        const float logit = __int2float_rn(sum) * scale[k] + offset[k];
        logits[image * count + k] = logit;
        if (best == count || logit > largest) largest = logit, best = k;
    }
    find_largest<warp_size>(largest, best, count);
    if (lane == 0) classes[image] = best;
}
