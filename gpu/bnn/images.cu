// Images as a network's first value: integers (see source.cuh), bits against thresholds, or the planes of their bytes.
//
//   -DIMAGES_UINT8      bytes
//   -DIMAGES_FLOAT32    floats; a NaN or an infinity raises *flag, which the host reads
//   -DVECTORS           see bits.cuh

#include "bnn/bits.cuh"
#include "bnn/source.cuh"
#include "overlap.cuh"

extern "C" __global__ void __launch_bounds__(256)
integers_of_images(SOURCE, Made* __restrict__ y, unsigned count, unsigned channels)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = (Made)READ(i, i % channels);
}

#if defined(IMAGES_FLOAT32)
#define IMAGES const float* __restrict__ images, const float* __restrict__ thresholds, int* __restrict__ flag
#define IS_ONE(i, c) is_one(images[i], thresholds[c], flag)
#else
#define IMAGES const unsigned char* __restrict__ images, const float* __restrict__ thresholds
#define IS_ONE(i, c) ((float)images[i] >= thresholds[c])
#endif

__device__ inline bool is_one(float x, float threshold, int* flag)
{
    if (!(fabsf(x) <= 3.402823466e38f)) atomicOr(flag, 1);
    return x >= threshold;
}

enum : unsigned { words_of_warp = 8 };

// A warp makes eight words, each by a ballot over 32 channels of a row.
extern "C" __global__ void __launch_bounds__(128)
bits_of_images(IMAGES, unsigned* __restrict__ bits, unsigned rows, unsigned channels)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
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

// Bit 7 - b of a byte is channel b of its eight: a word is four bytes, each reversed.
extern "C" __global__ void __launch_bounds__(256)
planes_of_images(const unsigned char* __restrict__ bytes, unsigned* __restrict__ bits, unsigned rows,
                 unsigned channels)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned words = divide_up(channels, 4), i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * words) return;
    const WordPlace place = place_of(i, rows, words);
    unsigned word = 0;
    for (unsigned byte = 0; byte < 4 && 4 * place.word + byte < channels; ++byte)
        word |= (__brev(bytes[place.row * channels + 4 * place.word + byte]) >> 24) << 8 * byte;
    bits[i] = word;
}
