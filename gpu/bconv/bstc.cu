// The +-1 convolution of packed operands on CUDA cores (BSTC, section 5.2 and listing 6):
//
//   dot[pixel, o] = channels * (taps - exclude) - 2 * sum over taps inside, w of popc(x[tap, w] ^ w[tap, o, w])
//
// A tap outside the image adds nothing: neither a product nor, being counted by `exclude`, a length. Images are
// packed NHWC, filters HWOI, both along the channels; their bits past `channels` are 0 and cancel in the xor.
//
// A warp computes a tile of ROWS pixels (windows as a whole when pooling) by CHANNELS: each lane has one channel
// or two, and looks up the taps of one pixel, whose words it broadcasts. Compiled once per scheme, output
// (output.cuh), pooling (geometry.cuh) and
//
//   -DSCHEME=bconv32 -DWORD_32 | -DSCHEME=bconv64 -DWORD_64
//   -DROWS=8 | 16 | 32      pixels of a tile
//   -DCHANNELS=32 | 64      output channels of a tile
//   -DCHUNK=1 | 2 | 4       words that a lane loads at once
//   -DALIGNED               the words of a pixel are a multiple of these
//
// The listing gives each warp one pixel; with more, a filter's word serves all of them.

#include "bconv/output.cuh"

enum : unsigned { rows = ROWS, halves = CHANNELS / warp_size };

__device__ inline unsigned count_ones(unsigned word) { return __popc(word); }
__device__ inline unsigned count_ones(unsigned long long word) { return __popcll(word); }

// How many bits differ, for each pixel of the tile and each of the lane's channels. Carry-save: `ones` is the
// sum so far modulo 2 at each bit, so that what two words add is one word of carries, and the population
// count, the slowest instruction here, is needed once for both.
struct Counters {
    Word ones[rows][halves] = {};
    unsigned twos[rows][halves] = {};
    __device__ void add(unsigned row, unsigned half, Word x, Word y)
    {
        Word& sum = ones[row][half];
        twos[row][half] += count_ones((x & y) | (sum & (x ^ y)));
        sum ^= x ^ y;
    }
    __device__ unsigned operator()(unsigned row, unsigned half) const
    {
        return 2 * twos[row][half] + count_ones(ones[row][half]);
    }
};

struct alignas(CHUNK * sizeof(Word)) Chunk {
    Word words[CHUNK];
};

// The words of a pixel or filter from number `w` on; past its last they are 0.
__device__ inline Chunk load(const Word* words, unsigned w, unsigned count)
{
#if defined(ALIGNED)
    return *reinterpret_cast<const Chunk*>(words + w);
#else
    Chunk chunk = {};
#pragma unroll
    for (unsigned j = 0; j < CHUNK; ++j)
        if (w + j < count) chunk.words[j] = words[w + j];
    return chunk;
#endif
}

// Counts what differs between the pixels that are in the frame and the lane's filters.
__device__ __forceinline__ void count(Counters& differing, const Chunk& image, const Chunk (&filter)[halves],
                             unsigned in_frame)
{
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) {
        if (!(in_frame >> i & 1)) continue;
#pragma unroll
        for (unsigned j = 0; j < CHUNK; j += 2) {
            const bool pair = j + 1 < CHUNK;
            const Word x = __shfl_sync(all_lanes, image.words[j], i);
            const Word y = pair ? __shfl_sync(all_lanes, image.words[j + pair], i) : 0;
#pragma unroll
            for (unsigned half = 0; half < halves; ++half) {
                const Word differing_y = pair ? y ^ filter[half].words[j + pair] : 0;
                differing.add(i, half, x ^ filter[half].words[j], differing_y);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
SCHEME(const Word* __restrict__ images, const Word* __restrict__ filters, Output* __restrict__ y,
       const ConvShape shape THRESHOLDS)
{
    const unsigned lane = lane_of_this_thread(), warp = number_of_this_warp();
    const unsigned across = divide_up(shape.filters, CHANNELS);
    const unsigned first_pixel = warp / across * rows, first_channel = warp % across * CHANNELS;
    if (first_pixel >= number_of_pixels(shape)) return;
    const Pixel pixel = pixel_at(shape, first_pixel + lane % rows);
    const unsigned words = divide_up(shape.channels, word_size);
    unsigned exclude = 0;  // taps of the lane's pixel outside the image
    Counters differing;
    for (unsigned r = 0; r < shape.filter_height; ++r) {
        for (unsigned s = 0; s < shape.filter_width; ++s) {
            const unsigned row = row_of_tap(shape, pixel.row, r), column = column_of_tap(shape, pixel.column, s);
            const bool inside = is_inside(shape, row, column);
            exclude += !inside;
            const unsigned in_frame = __ballot_sync(all_lanes, inside);
            if (!in_frame) continue;
            const unsigned place = inside ? (pixel.image * shape.height + row) * shape.width + column : 0;
            const unsigned tap = (r * shape.filter_width + s) * shape.filters;
            for (unsigned w = 0; w < words; w += CHUNK) {
                const Chunk image = load(images + place * words, w, words);
                Chunk filter[halves];
#pragma unroll
                for (unsigned half = 0; half < halves; ++half) {
                    const unsigned channel = min(first_channel + 32 * half + lane, shape.filters - 1);
                    filter[half] = load(filters + (tap + channel) * words, w, words);
                }
                if (in_frame == all_lanes)
                    count(differing, image, filter, all_lanes);  // the same, without asking for each pixel
                else
                    count(differing, image, filter, in_frame);
            }
        }
    }
    const unsigned length = shape.channels * (shape.filter_height * shape.filter_width - exclude);
    const auto dot = [&](unsigned i, unsigned half) {
        return (int)(__shfl_sync(all_lanes, length, i) - 2 * differing(i, half));
    };
    store_tile<rows, halves>(dot, y, shape, first_pixel, first_channel WITH_THRESHOLDS);
}
