// Sums of integers times ±1: a convolution of integers, and with images of one pixel a dense layer.
//
//   -DGIVEN_… | -DSOURCE_…   what is read; see source.cuh
//   -DWIDE                   integers of 32 bits; otherwise they fit 16, and dp2a adds two at once
//   -DMADE_INT16 | -DMADE_INT32
//                            the sums; see widths.cuh
//   -DOUTPUT_BITS            1 where a sum is at least its filter's threshold, turned over by flip
//   -DVECTORS                see bits.cuh
//
// k counts the numbers of a window: taps, and in each the channels. Filters are words along k,
// filters[k / 32][filter], the first bit lowest; 1 is +1. A tap outside the image is read as 0.

#include "bconv/geometry.cuh"
#include "bnn/bits.cuh"
#include "bnn/source.cuh"

enum : unsigned {
    threads = 128,
    warps = threads / warp_size,
    pixels_of_warp = 8,
    pixels_of_block = warps * pixels_of_warp,
    chunk = 64,  // of k, in shared memory at once
    lines_at_once = threads / chunk,
};

#if defined(WIDE)
typedef int Number;
#else
typedef short Number;
#endif

struct alignas(4 * sizeof(Number)) Four {
    Number of[4];
};

// Four bits as the bytes 1 and -1.
__device__ inline unsigned signs_of(unsigned four_bits)
{
    return (four_bits * 0x00204081u & 0x01010101u) * 0xfeu ^ 0xffffffffu;
}

// sum += four numbers times the signs.
__device__ inline int add_products(const Four& x, unsigned signs, int sum)
{
#if defined(WIDE)
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) sum += x.of[i] * (int)(signed char)(signs >> 8 * i);
    return sum;
#else
    const int2 pairs = *reinterpret_cast<const int2*>(&x);
    return __dp2a_hi(pairs.y, (int)signs, __dp2a_lo(pairs.x, (int)signs, sum));
#endif
}

// A block has 32 pixels and 32 filters, which are its lanes; a warp has eight of the pixels.
extern "C" __global__ void __launch_bounds__(threads)
dots(SOURCE, const unsigned* __restrict__ filters,
#if defined(OUTPUT_BITS)
     const int* __restrict__ thresholds, const unsigned char* __restrict__ flip, unsigned* __restrict__ y,
#else
     Made* __restrict__ y,
#endif
     const ConvShape shape)
{
    __shared__ __align__(16) Number windows[pixels_of_block][chunk];
    __shared__ Pixel pixels[pixels_of_block];
    const unsigned count = number_of_pixels(shape), first_pixel = blockIdx.x * pixels_of_block;
    const unsigned length = shape.filter_height * shape.filter_width * shape.channels;
    const unsigned lane = lane_of_this_thread(), first_own = threadIdx.x / warp_size * pixels_of_warp;
    const unsigned filter = blockIdx.y * warp_size + lane;
    if (threadIdx.x < pixels_of_block) pixels[threadIdx.x] = pixel_at(shape, first_pixel + threadIdx.x);
    int sums[pixels_of_warp] = {};
    for (unsigned start = 0; start < length; start += chunk) {
        __syncthreads();
        const unsigned k = start + threadIdx.x % chunk, tap = k / shape.channels, channel = k % shape.channels;
        const unsigned r = tap / shape.filter_width, s = tap % shape.filter_width;
#pragma unroll 4
        for (unsigned i = threadIdx.x / chunk; i < pixels_of_block; i += lines_at_once) {
            const Pixel pixel = pixels[i];
            const unsigned row = row_of_tap(shape, pixel.row, r), column = column_of_tap(shape, pixel.column, s);
            Number number = 0;
            if (k < length && is_inside(shape, row, column)) {
                const unsigned at = (pixel.image * shape.height + row) * shape.width + column;
                number = (Number)READ(at * shape.channels + channel, channel);
            }
            windows[i][threadIdx.x % chunk] = number;
        }
        __syncthreads();
#pragma unroll
        for (unsigned part = 0; part < chunk / 32; ++part) {
            const unsigned word = start / 32 + part;
            unsigned bits = 0;
            if (filter < shape.filters && word * 32 < length) bits = filters[word * shape.filters + filter];
#pragma unroll
            for (unsigned four = 0; four < 32; four += 4) {
                const unsigned signs = signs_of(bits >> four & 15);
#pragma unroll
                for (unsigned p = 0; p < pixels_of_warp; ++p) {
                    const Number* const own = &windows[first_own + p][part * 32 + four];
                    sums[p] = add_products(*reinterpret_cast<const Four*>(own), signs, sums[p]);
                }
            }
        }
    }
    const unsigned first = first_pixel + first_own;
#if defined(OUTPUT_BITS)
    const bool real = filter < shape.filters;
    const int threshold = real ? thresholds[filter] : 0;
    const bool flipped = real && flip[filter];
    unsigned mine = 0;
#pragma unroll
    for (unsigned p = 0; p < pixels_of_warp; ++p) {
        const unsigned ballot = __ballot_sync(all_lanes, real && (sums[p] >= threshold) ^ flipped);
        if (lane == p) mine = ballot;
    }
    if (lane < pixels_of_warp && first + lane < count)
        y[index_of({first + lane, blockIdx.y}, count, divide_up(shape.filters, 32))] = mine;
#else
#pragma unroll
    for (unsigned p = 0; p < pixels_of_warp; ++p)
        if (first + p < count && filter < shape.filters) y[(first + p) * shape.filters + filter] = (Made)sums[p];
#endif
}
