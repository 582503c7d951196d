// The integers that a kernel reads: from memory, or made of images on the way.
//
//   -DGIVEN_INT16 | -DGIVEN_INT32 | -DSOURCE_PIXELS | -DSOURCE_REALS
//
// SOURCE are the kernel's parameters, SOURCE_NAMES their names, READ(i, c) is element i, of channel c.

#pragma once

#include "bmm/warp.cuh"
#include "bnn/widths.cuh"

#if defined(SOURCE_PIXELS)
#define SOURCE const unsigned char* images, const int* scale, const int* offset
#define SOURCE_NAMES images, scale, offset
#define READ(i, c) (scale[c] * images[i] + offset[c])
#elif defined(SOURCE_REALS)
#define SOURCE const float* images, float unit, int* flag
#define SOURCE_NAMES images, unit, flag
#define READ(i, c) fixed_point(images[i], unit, flag)
#else
#define SOURCE const Given* integers
#define SOURCE_NAMES integers
#define READ(i, c) integers[i]
#endif

// x in units of 1 / unit, a power of two, to the nearest integer, ties to even. One beyond int16, and a NaN,
// raise *flag, which the host reads.
__device__ inline int fixed_point(float x, float unit, int* flag)
{
    const float nearest = rintf(x * unit);
    if (!(nearest >= -32768.0f && nearest <= 32767.0f)) atomicOr(flag, 1);
    return __float2int_rn(nearest);
}
