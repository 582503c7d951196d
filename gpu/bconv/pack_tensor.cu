// Bit packing of images and filters along their channels: 1 where the element is >= 0 (BSTC, section 5.2).
//
//   -DELEMENT_FLOAT64 | -DELEMENT_FLOAT32 | -DELEMENT_FLOAT16 | -DELEMENT_BFLOAT16 | -DELEMENT_INT8
//
// Words are written in pieces of 32 channels, channel 0 in the lowest bit of the first; two pieces are a 64-bit
// word. Past the last channel a bit is 0. A NaN has no sign to keep: it raises *nan_flag, which the host reads.

#include "bmm/warp.cuh"

// Elements are read as their bits, as signed integers; only minus zero is negative and yet >= 0.
#if defined(ELEMENT_FLOAT64)
typedef long long Element;
enum : long long { infinity = 0x7ffll << 52, minus_zero = (long long)(1ull << 63) };
#elif defined(ELEMENT_FLOAT32)
typedef int Element;
enum : int { infinity = 0xff << 23, minus_zero = (int)(1u << 31) };
#elif defined(ELEMENT_FLOAT16) || defined(ELEMENT_BFLOAT16)
typedef short Element;
enum : short { infinity = infinity_of_16_bits, minus_zero = -0x8000 };
#elif defined(ELEMENT_INT8)
typedef signed char Element;
#endif

#if defined(ELEMENT_INT8)
__device__ inline bool is_one(Element x) { return x >= 0; }
__device__ inline bool is_nan(Element) { return false; }
#else
__device__ inline bool is_one(Element x) { return x >= 0 || x == minus_zero; }
__device__ inline bool is_nan(Element x) { return (x & ~minus_zero) > infinity; }
#endif

__device__ inline void tell(bool nan, int* nan_flag)
{
    if (nan) atomicOr(nan_flag, 1);
}

// Images (pixels, channels) to words (pixels, words): a warp makes 32 pieces, each by a ballot over 32 channels.
extern "C" __global__ void __launch_bounds__(128)
pack_images(const Element* __restrict__ elements, unsigned* __restrict__ words, unsigned pixels, unsigned channels,
            unsigned pieces, int* __restrict__ nan_flag)
{
    const unsigned lane = lane_of_this_thread(), first = number_of_this_warp() * warp_size;
    unsigned pixel = first / pieces, piece = first % pieces, mine = 0;
    bool nan = false;
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i) {
        const unsigned channel = 32 * piece + lane;
        bool one = false;
        if (pixel < pixels && channel < channels) {
            const Element x = elements[pixel * channels + channel];
            one = is_one(x);
            nan |= is_nan(x);
        }
        const unsigned bits = __ballot_sync(all_lanes, one);
        if (lane == i) mine = bits;
        if (++piece == pieces) piece = 0, ++pixel;
    }
    if (first + lane < pixels * pieces) words[first + lane] = mine;
    tell(nan, nan_flag);
}

// Filters (taps, channels, filters) to words (taps, filters, words): each lane gathers 32 channels of a filter.
extern "C" __global__ void __launch_bounds__(128)
pack_filters(const Element* __restrict__ elements, unsigned* __restrict__ words, unsigned taps, unsigned channels,
             unsigned filters, unsigned pieces, int* __restrict__ nan_flag)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned filter = thread % filters, piece = thread / filters % pieces, tap = thread / filters / pieces;
    if (tap >= taps) return;
    unsigned bits = 0;
    bool nan = false;
#pragma unroll
    for (unsigned i = 0; i < 32; ++i) {
        const unsigned channel = 32 * piece + i;
        if (channel < channels) {
            const Element x = elements[(tap * channels + channel) * filters + filter];
            bits |= (unsigned)is_one(x) << i;
            nan |= is_nan(x);
        }
    }
    words[(tap * filters + filter) * pieces + piece] = bits;
    tell(nan, nan_flag);
}
