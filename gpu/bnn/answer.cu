// The logits of the last sums, and the first class with the largest one.
//
//   -DGIVEN_INT16 | -DGIVEN_INT32    the sums; see widths.cuh. Those of 16 bits are stored as int32, too

#include "bmm/warp.cuh"
#include "bnn/widths.cuh"
#include "overlap.cuh"

// A warp for each image. A product and a sum, each rounded: the compiler fuses nothing (-fmad=false).
extern "C" __global__ void __launch_bounds__(128)
answer(const Given* __restrict__ sums, const float* __restrict__ scale, const float* __restrict__ offset,
#if defined(GIVEN_INT16)
       int* __restrict__ wide,
#endif
       float* __restrict__ logits, long long* __restrict__ classes, unsigned batch, unsigned count)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned image = number_of_this_warp(), lane = lane_of_this_thread();
    if (image >= batch) return;
    float largest = 0;
    unsigned best = count;  // no class yet
    for (unsigned k = lane; k < count; k += warp_size) {
#if defined(GIVEN_INT16)
        wide[image * count + k] = sums[image * count + k];
#endif
        const float logit = __int2float_rn(sums[image * count + k]) * scale[k] + offset[k];
        logits[image * count + k] = logit;
        if (best == count || logit > largest) largest = logit, best = k;
    }
#pragma unroll
    for (unsigned distance = 16; distance; distance /= 2) {
        const float other = __shfl_xor_sync(all_lanes, largest, distance);
        const unsigned where = __shfl_xor_sync(all_lanes, best, distance);
        if (where < count && (best == count || other > largest || (other == largest && where < best)))
            largest = other, best = where;
    }
    if (lane == 0) classes[image] = best;
}
