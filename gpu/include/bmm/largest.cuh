// The first of the largest numbers of neighbouring lanes.

#pragma once
#include "bmm/warp.cuh"

// Each of `lanes` lanes gives a number and its place, or as place `none`; each gets those of the first largest one.
template <unsigned lanes> __device__ inline void find_largest(float& number, unsigned& place, unsigned none)
{
#pragma unroll
    for (unsigned distance = lanes / 2; distance; distance /= 2) {
        const float other = __shfl_xor_sync(all_lanes, number, distance);
        const unsigned where = __shfl_xor_sync(all_lanes, place, distance);
        if (where < none && (place == none || other > number || (other == number && where < place)))
            number = other, place = where;
    }
}
