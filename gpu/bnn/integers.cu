// Layers on integers: as many of a chain as one launch computes, element by element.
//
//   -DGIVEN_INT16 | -DGIVEN_INT32    x, the first numbers; see widths.cuh
//   -DAFFINE                         then scale[c] * number + offset[c]
//   -DCLIP                           then within low and high
//   -DOTHER_INT16 | -DOTHER_INT32    then plus the number of another array, for residuals
//   -DVIEWED                         the last of the arrays is seen through windows of WINDOW_H x WINDOW_W of its pixels,
//                                    -DPOOL_MAX | -DPOOL_SUM, between channels of zeros
//   -DMADE_INT16 | -DMADE_INT32      the numbers are stored
//   -DBITS                           1 where a number is at least its channel's threshold, turned over by flip
//   -DVECTORS                        see bits.cuh
//   -DALIGNED                        eights of channels are aligned in all arrays, and those of zeros are eights
//
// A thread has eight channels, whose bits are a byte, and goes down the rows, which are pixels or vectors.

#include "bnn/bits.cuh"
#include "bnn/widths.cuh"
#include "overlap.cuh"

enum : unsigned { threads = 256, width = 8 };

struct Eight {
    int of[width];
};

// ---- eights in memory -------------------------------------------------------------------------------------------------

__device__ inline void load_aligned(Eight& x, const short* from)
{
    const uint4 loaded = *reinterpret_cast<const uint4*>(from);
    const unsigned pairs[width / 2] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
    for (unsigned i = 0; i < width; ++i) x.of[i] = (int)(i % 2 ? pairs[i / 2] : pairs[i / 2] << 16) >> 16;
}

__device__ inline void load_aligned(Eight& x, const int* from)
{
    const int4 low = reinterpret_cast<const int4*>(from)[0], high = reinterpret_cast<const int4*>(from)[1];
    x = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
}

__device__ inline void store_aligned(short* to, const Eight& x)
{
    unsigned pairs[width / 2];
#pragma unroll
    for (unsigned i = 0; i < width / 2; ++i) pairs[i] = (unsigned)x.of[2 * i + 1] << 16 | (x.of[2 * i] & 0xffff);
    *reinterpret_cast<uint4*>(to) = {pairs[0], pairs[1], pairs[2], pairs[3]};
}

__device__ inline void store_aligned(int* to, const Eight& x)
{
    reinterpret_cast<int4*>(to)[0] = {x.of[0], x.of[1], x.of[2], x.of[3]};
    reinterpret_cast<int4*>(to)[1] = {x.of[4], x.of[5], x.of[6], x.of[7]};
}

// Channels from `first` on of a row of so many; zeros outside, where numbers below 0 have wrapped around.
template <class Number> __device__ inline Eight load(const Number* row, unsigned first, unsigned channels)
{
    Eight x = {};
#if defined(ALIGNED)
    if (first < channels) load_aligned(x, row + first);
#else
#pragma unroll
    for (unsigned i = 0; i < width; ++i)
        if (first + i < channels) x.of[i] = row[first + i];
#endif
    return x;
}

__device__ inline void store(Made* row, const Eight& x, unsigned first, unsigned channels)
{
#if defined(ALIGNED)
    if (first < channels) store_aligned(row + first, x);
#else
#pragma unroll
    for (unsigned i = 0; i < width; ++i)
        if (first + i < channels) row[first + i] = (Made)x.of[i];
#endif
}

// ---- windows ----------------------------------------------------------------------------------------------------------

#if defined(VIEWED)
// Of an array of images; `before` channels of zeros come before its own.
struct View {
    unsigned height, width, channels, before, out_height, out_width;
    unsigned stride_h, stride_w, pad_top, pad_left;
};

__device__ inline int join(int x, int y)
{
#if defined(POOL_SUM)
    return x + y;
#else
    return max(x, y);
#endif
}

// Channels of a pixel of the output. Each window has a pixel inside the image.
template <class Number>
__device__ inline Eight load(const Number* x, unsigned pixel, unsigned first, const View& view)
{
    const unsigned column = pixel % view.out_width, line = pixel / view.out_width;
    const unsigned row = line % view.out_height, image = line / view.out_height;
    // Above and left of the image the differences wrap around to large numbers.
    const unsigned top = row * view.stride_h - view.pad_top, left = column * view.stride_w - view.pad_left;
    Eight joined = {};
    bool some = false;
#pragma unroll 2
    for (unsigned i = 0; i < WINDOW_H; ++i)
#pragma unroll 2
        for (unsigned j = 0; j < WINDOW_W; ++j) {
            if (top + i >= view.height || left + j >= view.width) continue;
            const unsigned at = (image * view.height + top + i) * view.width + left + j;
            const Eight numbers = load(x + at * view.channels, first - view.before, view.channels);
#pragma unroll
            for (unsigned c = 0; c < width; ++c) joined.of[c] = some ? join(joined.of[c], numbers.of[c]) : numbers.of[c];
            some = true;
        }
    return joined;
}
#endif

// ---- the chain --------------------------------------------------------------------------------------------------------

#if defined(OTHER_INT16) || defined(OTHER_INT32)
#define ADDED
#endif
#if defined(MADE_INT16) || defined(MADE_INT32)
#define MADE
#endif

extern "C" __global__ void __launch_bounds__(threads)
integers(const Given* x,
#if defined(AFFINE)
         const int* scale, const int* offset,
#endif
#if defined(CLIP)
         int low, int high,
#endif
#if defined(ADDED)
         const Other* other,
#endif
#if defined(VIEWED)
         const View view,
#endif
#if defined(MADE)
         Made* made,
#endif
#if defined(BITS)
         const int* thresholds, const unsigned char* flip, unsigned char* bits,
#endif
         unsigned rows, unsigned channels)
{
    let_later_launches_begin();
    const unsigned group = blockIdx.y * blockDim.x + threadIdx.x, first = group * width;
#if defined(BITS)
    const unsigned words = divide_up(channels, 32), groups = words * (32 / width);
#else
    const unsigned groups = divide_up(channels, width);
#endif
    if (group >= groups) return;
#if defined(AFFINE)
    const Eight scales = load(scale, first, channels), offsets = load(offset, first, channels);
#endif
#if defined(BITS)
    const Eight limits = load(thresholds, first, channels);
    unsigned flips = 0, real = 0;
#pragma unroll
    for (unsigned i = 0; i < width; ++i)
        if (first + i < channels) real |= 1 << i, flips |= (flip[first + i] != 0) << i;
#endif
    wait_for_earlier_launches();
    for (unsigned row = blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += gridDim.x * blockDim.y) {
#if defined(VIEWED) && !defined(ADDED)
        Eight numbers = load(x, row, first, view);
#else
        Eight numbers = load(x + row * channels, first, channels);
#endif
#if defined(ADDED) && defined(VIEWED)
        const Eight added = load(other, row, first, view);
#elif defined(ADDED)
        const Eight added = load(other + row * channels, first, channels);
#endif
#pragma unroll
        for (unsigned i = 0; i < width; ++i) {
            int& number = numbers.of[i];
#if defined(AFFINE)  // the network's ranges fit int32, so a product that wraps around is put right by its offset
            number = (int)((unsigned)scales.of[i] * (unsigned)number + (unsigned)offsets.of[i]);
#endif
#if defined(CLIP)
            number = min(max(number, low), high);
#endif
#if defined(ADDED)
            number += added.of[i];
#endif
        }
#if defined(MADE)
        store(made + row * channels, numbers, first, channels);
#endif
#if defined(BITS)
        unsigned ones = 0;
#pragma unroll
        for (unsigned i = 0; i < width; ++i) ones |= (numbers.of[i] >= limits.of[i]) << i;
        const WordPlace place = {row, first / 32};
        bits[index_of(place, rows, words) * (32 / width) + group % (32 / width)] = (ones ^ flips) & real;
#endif
    }
}
