// Images as a network's first value: integers (see source.cuh), or bits.
//
//   -DIMAGES_UINT8      bytes, against thresholds of channels
//   -DIMAGES_FLOAT32    floats, likewise; a NaN or an infinity raises *flag, which the host reads
//   -DIMAGES_PLANES     bytes; bit 7 - b is number b of eight
//   -DALIGNED           rows of images begin at vectors, and end with them
//   -DFOURS             thresholds are of four channels and more, whose number is a multiple of 4
//   -DVECTORS           see bits.cuh
//   -DLINES             words of a row are padded with zeros to 128 bits, and their ones are counted

#include "bnn/bits.cuh"
#include "bnn/source.cuh"
#include "overlap.cuh"

extern "C" __global__ void __launch_bounds__(256)
integers_of_images(SOURCE, Made* y, unsigned count, unsigned channels)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = (Made)READ(i, i % channels);
}

#if defined(IMAGES_FLOAT32)
typedef float Number;
typedef uint4 Vector;
#define IMAGES const float* images, const float* thresholds, int* flag
#elif defined(IMAGES_PLANES)
typedef unsigned char Number;
typedef unsigned Vector;
#define IMAGES const unsigned char* images
#else
typedef unsigned char Number;
typedef uint4 Vector;
#define IMAGES const unsigned char* images, const float* thresholds
#endif

enum : unsigned {
#if defined(IMAGES_PLANES)
    numbers_of_word = 4,
#else
    numbers_of_word = 32,
#endif
    numbers_of_vector = sizeof(Vector) / sizeof(Number),
    most_rows = 256,  // of a block
};

union Numbers {
    Vector vectors[numbers_of_word / numbers_of_vector];
    Number of[numbers_of_word];
};

// The numbers of a row from `first` on; those past its end are zeros.
__device__ inline void load(Numbers& x, const Number* row, unsigned first, unsigned count)
{
#if defined(ALIGNED)
#pragma unroll
    for (unsigned v = 0; v < numbers_of_word / numbers_of_vector; ++v) {
        const unsigned at = first + v * numbers_of_vector;
        x.vectors[v] = at < count ? *reinterpret_cast<const Vector*>(row + at) : Vector{};
    }
#else
#pragma unroll
    for (unsigned i = 0; i < numbers_of_word; ++i) x.of[i] = first + i < count ? row[first + i] : 0;
#endif
}

#if !defined(IMAGES_PLANES)
// The thresholds of numbers from `first` on, whose channels follow one another again and again.
__device__ inline void load_thresholds(float (&t)[numbers_of_word], const float* thresholds,
                                       unsigned first, unsigned channels)
{
    unsigned channel = first % channels;
#if defined(FOURS)
#pragma unroll
    for (unsigned i = 0; i < numbers_of_word; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(thresholds + channel);
        t[i] = four.x, t[i + 1] = four.y, t[i + 2] = four.z, t[i + 3] = four.w;
        channel = channel + 4 == channels ? 0 : channel + 4;
    }
#else
    if (channels == 1) {
        const float only = thresholds[0];
#pragma unroll
        for (unsigned i = 0; i < numbers_of_word; ++i) t[i] = only;
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < numbers_of_word; ++i) {
        t[i] = thresholds[channel];
        channel = channel + 1 == channels ? 0 : channel + 1;
    }
#endif
}
#endif

// A word of a row with so many numbers.
__device__ inline unsigned word_at(IMAGES, unsigned row, unsigned word, unsigned count, unsigned channels)
{
    const unsigned first = word * numbers_of_word;
    if (first >= count) return 0;
    Numbers x;
    load(x, images + row * count, first, count);
    unsigned bits = 0;
#if defined(IMAGES_PLANES)
#pragma unroll
    for (unsigned i = 0; i < numbers_of_word; ++i) bits |= __brev(x.of[i]) >> 24 << 8 * i;
    return bits;
#else
    float t[numbers_of_word];
    load_thresholds(t, thresholds, first, channels);
#if defined(IMAGES_FLOAT32)
    bool strange = false;
#pragma unroll
    for (unsigned i = 0; i < numbers_of_word; ++i) strange |= !(fabsf(x.of[i]) <= 3.402823466e38f);
    if (strange) atomicOr(flag, 1);
#endif
#pragma unroll
    for (unsigned i = 0; i < numbers_of_word; ++i) bits |= (unsigned)((float)x.of[i] >= t[i]) << i;
    const unsigned spare = first + 32 > count ? first + 32 - count : 0;
    return bits & 0xffffffffu >> spare;
#endif
}

// Rows have `count` numbers and `words` words. Threads (words, rows).
extern "C" __global__ void __launch_bounds__(256)
bits_of_images(IMAGES, unsigned* bits,
#if defined(LINES)
               unsigned* ones,
#endif
               unsigned rows, unsigned words, unsigned count, unsigned channels)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
#if defined(LINES)
    __shared__ unsigned of_rows[most_rows];
    if (threadIdx.x == 0) of_rows[threadIdx.y] = 0;
    __syncthreads();
#endif
    unsigned mine = 0;
    for (unsigned word = threadIdx.x; row < rows && word < words; word += blockDim.x) {
#if defined(IMAGES_FLOAT32)
        const unsigned made = word_at(images, thresholds, flag, row, word, count, channels);
#elif defined(IMAGES_PLANES)
        const unsigned made = word_at(images, row, word, count, channels);
#else
        const unsigned made = word_at(images, thresholds, row, word, count, channels);
#endif
        bits[index_of({row, word}, rows, words)] = made;
        mine += __popc(made);
    }
#if defined(LINES)
    atomicAdd(&of_rows[threadIdx.y], mine);
    __syncthreads();
    if (threadIdx.x == 0 && row < rows) ones[row] = of_rows[threadIdx.y];
#endif
}
