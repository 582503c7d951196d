// Bias and activation of a convolution's results, in place: each number is read and written once.
//
//   -DELEMENT_FLOAT32, -DELEMENT_FLOAT16, -DELEMENT_BFLOAT16    the type of all numbers

#include "cuda_machine/pixels.cuh"

#if defined(ELEMENT_FLOAT32)
typedef float Element;
__device__ inline float number(Element x) { return x; }
__device__ inline Element rounded(float x) { return x; }
#else
typedef unsigned short Element;
#if defined(ELEMENT_FLOAT16)
__device__ inline float number(Element x)
{
    float found;
    asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(x));
    return found;
}
__device__ inline Element rounded(float x)
{
    Element found;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(found) : "f"(x));
    return found;
}
#else
__device__ inline float number(Element x) { return __uint_as_float((unsigned)x << 16); }
__device__ inline Element rounded(float x)
{
    Element found;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(found) : "f"(x));
    return found;
}
#endif
#endif

enum : int { none, relu, tangent, sigmoid };

// Tangent and sigmoid in double precision, rounded once; a NaN stays one.
__device__ inline float activated(float x, int activation)
{
    if (activation == none) return x;
    if (activation == relu) return x > 0 || x != x ? x : 0;
    if (activation == tangent) return (float)tanh((double)x);
    const double small = exp(-fabs((double)x));
    return (float)((x < 0 ? small : 1) / (1 + small));
}

// Block (row, part) works on a row of `length` numbers, of `count` in all; the blocks of a row share it.
// Rows are planes, whose channels take turns, or with `is_last` pixels, whose numbers are of all channels.
extern "C" __global__ void
finish(Element* y, const Element* bias, Index count, int length, int channels, int is_last, int activation)
{
    const Index start = (Index)blockIdx.x * length;
    const int end = count - start < length ? (int)(count - start) : length;
    const float of_row = bias && !is_last ? number(bias[blockIdx.x % channels]) : 0;
    const auto write = [=](int i, Element read) {
        const float addend = bias && is_last ? number(bias[i % channels]) : of_row;
        const float x = number(read);
        y[start + i] = rounded(activated(bias ? x + addend : x, activation));
    };
    each_pixel(end, [=](int i) { return y[start + i]; }, write);
}
