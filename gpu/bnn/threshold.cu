// Bits of numbers: 1 where a number is at least its channel's threshold.
//
//   -DNUMBERS_INT32     integers; flip turns channels over
//   -DNUMBERS_SUM       the sums of two arrays of integers, for residuals; with -DKEEP_SUM they are stored, too
//   -DNUMBERS_UINT8     images of bytes against thresholds in float32
//   -DNUMBERS_FLOAT32   images of floats; a NaN or an infinity raises *flag, which the host reads
//   -DVECTORS           see bits.cuh

#include "bnn/bits.cuh"

enum : unsigned { words_of_warp = 8 };

#if defined(NUMBERS_UINT8)
#define NUMBERS const unsigned char* __restrict__ images, const float* __restrict__ thresholds
#define IS_ONE(i, c) ((float)images[i] >= thresholds[c])
#elif defined(NUMBERS_FLOAT32)
#define NUMBERS const float* __restrict__ images, const float* __restrict__ thresholds, int* __restrict__ flag
#define IS_ONE(i, c) is_one(images[i], thresholds[c], flag)
#elif defined(KEEP_SUM)
#define NUMBERS                                                                                       \
    const int* __restrict__ x, const int* __restrict__ y, int* __restrict__ sums,                    \
        const int* __restrict__ thresholds, const unsigned char* __restrict__ flip
#define IS_ONE(i, c) (((sums[i] = x[i] + y[i]) >= thresholds[c]) ^ (flip[c] != 0))
#elif defined(NUMBERS_SUM)
#define NUMBERS                                                                                       \
    const int* __restrict__ x, const int* __restrict__ y, const int* __restrict__ thresholds,        \
        const unsigned char* __restrict__ flip
#define IS_ONE(i, c) ((x[i] + y[i] >= thresholds[c]) ^ (flip[c] != 0))
#else
#define NUMBERS                                                                                       \
    const int* __restrict__ x, const int* __restrict__ thresholds, const unsigned char* __restrict__ flip
#define IS_ONE(i, c) ((x[i] >= thresholds[c]) ^ (flip[c] != 0))
#endif

__device__ inline bool is_one(float x, float threshold, int* flag)
{
    if (!(fabsf(x) <= 3.402823466e38f)) atomicOr(flag, 1);
    return x >= threshold;
}

// A warp makes eight words, each by a ballot over 32 channels of a row.
extern "C" __global__ void __launch_bounds__(128)
threshold(NUMBERS, unsigned* __restrict__ bits, unsigned rows, unsigned channels)
{
    const unsigned words = divide_up(channels, warp_size), count = rows * words;
    const unsigned first = number_of_this_warp() * words_of_warp, lane = lane_of_this_thread();
    unsigned mine = 0;
    for (unsigned i = 0; i < words_of_warp && first + i < count; ++i) {
        const WordPlace place = place_of(first + i, rows, words);
        const unsigned channel = place.word * warp_size + lane;
        bool one = false;
        if (channel < channels) one = IS_ONE(place.row * channels + channel, channel);
        const unsigned ballot = __ballot_sync(all_lanes, one);
        if (lane == i) mine = ballot;
    }
    if (lane < words_of_warp && first + lane < count) bits[first + lane] = mine;
}
