// Sums of integers times ±1 on integer tensor cores: a convolution of integers, and with images of one pixel a dense
// layer.
//
//   -DGIVEN_… | -DSOURCE_…       what is read; see source.cuh
//   -DPLANES -DROW_TILES -DPASSES -DREGION -DWORDS
//                                its bytes in shared memory; see staging.cuh
//   -DUNSIGNED                   the one plane has bytes of 0 to 255; otherwise the highest bytes are signed
//   -DSTEPS                      steps of a window, with REGION
//   -DHELD                       all filters fit into registers
//   -DBLOCKS                     of a multiprocessor at once
//   -DALIGNED                    four numbers are a word of shared memory
//   -DMADE_INT16 | -DMADE_INT32  the sums; see widths.cuh
//   -DOUTPUT_BITS                1 where a sum is at least its filter's threshold, turned over by flip
//   -DOUTPUT_BOTH                these, and the sums
//   -DFAR                        a sum less its threshold may not fit into int32
//   -DVECTORS                    see bits.cuh
//
// A step is 16 of k. Filters are bytes of 1 and -1, and 0 where there is none, in the order in which lanes take them:
// for each 64 filters and each step two pieces of 16 bytes a lane. A lane's sums are of 2 x 8 filters that follow one
// another. A number is 256 * (higher bytes) + the lowest; the sums of higher planes are shifted before lower ones are added.
// Sums that only become bits start at -threshold, so that their signs are the bits, unless that might pass the ends of
// int32.

#include "bnn/bits.cuh"
#include "bnn/byte_products.cuh"
#include "bnn/staging.cuh"
#include "overlap.cuh"

#if defined(OUTPUT_BOTH)
#define OUTPUT_BITS
#endif
#if defined(OUTPUT_BOTH) || !defined(OUTPUT_BITS)
#define OUTPUT_SUMS
#endif
#if defined(OUTPUT_BITS) && (defined(OUTPUT_BOTH) || defined(FAR))
#define COMPARED  // sums, with thresholds
#endif

enum : unsigned {
    filters_of_block = 64,
    column_tiles = filters_of_block / 8,
    words_across = filters_of_block / 32,  // of bits; a piece of filters has those of a word
    lanes_of_quad = 4,
    step_numbers = 16,
};
#if defined(UNSIGNED)
enum : bool { highest_is_signed = false };
#else
enum : bool { highest_is_signed = true };
#endif

// What sums become, and where they go.
struct Output {
#if defined(OUTPUT_BITS)
    int limits[words_across][8];  // of the lane's filters: -threshold, or the threshold if it is compared
    unsigned not_flipped;         // a bit for each of them, bytes as in store_bits()
    unsigned* bits;
#endif
#if defined(OUTPUT_SUMS)
    Made* sums;
#endif
    unsigned pixels, filters;

    // What a sum of a column tile starts at.
    __device__ unsigned start(unsigned column_tile, unsigned i) const
    {
#if defined(OUTPUT_BITS) && !defined(COMPARED)
        return (unsigned)limits[column_tile / 4][2 * (column_tile % 4) + i % 2];
#else
        return 0;
#endif
    }
};

struct Sums {
    int of[row_tiles][column_tiles][4] = {};

    // Makes room for a lower plane; before the lowest one they get what they start at.
    __device__ void shift(const Output& to, bool is_lowest)
    {
#pragma unroll
        for (unsigned i = 0; i < row_tiles * column_tiles * 4; ++i) {
            const unsigned column_tile = i / 4 % column_tiles;
            int& sum = of[i / (4 * column_tiles)][column_tile][i % 4];
            sum = (int)(((unsigned)sum << 8) + (is_lowest ? to.start(column_tile, i % 4) : 0));
        }
    }
};

// The filters of a lane, and where the numbers that they belong to are in a window.
struct Filters {
    const uint4* pieces;
#if defined(REGION)
    const unsigned* groups;  // of four numbers: line << 16 | word
    unsigned words_of_line;
#endif
#if defined(HELD)
    uint4 held[STEPS][words_across];
    unsigned held_places[STEPS];

    __device__ void hold()
    {
#pragma unroll
        for (unsigned step = 0; step < STEPS; ++step) {
            held_places[step] = place_in_memory(step);
#pragma unroll
            for (unsigned w = 0; w < words_across; ++w) held[step][w] = pieces[(step * words_across + w) * warp_size];
        }
    }
    __device__ uint4 piece(unsigned step, unsigned w) const { return held[step][w]; }
    __device__ unsigned place(unsigned step) const { return held_places[step]; }
#else
    __device__ uint4 piece(unsigned step, unsigned w) const { return pieces[(step * words_across + w) * warp_size]; }
    __device__ unsigned place(unsigned step) const { return place_in_memory(step); }
#endif

    __device__ unsigned place_in_memory(unsigned step) const
    {
        const unsigned group = step * lanes_of_quad + lane_of_this_thread() % lanes_of_quad;
#if defined(REGION)
        return (groups[group] >> 16) * words_of_line + (groups[group] & 0xffff);
#else
        return group;
#endif
    }
};

// Of a window that begins at a byte, the four numbers of a place in words.
__device__ inline unsigned four_numbers(const unsigned* words, unsigned window, unsigned place)
{
    const unsigned* const from = words + window / 4 + place;
#if defined(ALIGNED)
    return from[0];
#else
    return __funnelshift_r(from[0], from[1], 8 * window);  // by its last five bits
#endif
}

// Where the windows of a lane's pixels begin in a plane.
typedef unsigned Windows[row_tiles][2];
#define FOR_EACH_PIXEL(r, half)                                        \
    _Pragma("unroll") for (unsigned r = 0; r < row_tiles; ++r)         \
        _Pragma("unroll") for (unsigned half = 0; half < 2; ++half)

template <bool is_signed, unsigned steps>
__device__ inline void add_steps(Sums& sums, const unsigned* words, const Windows& windows, const Filters& filters,
                                 unsigned first_place, unsigned first)
{
    unsigned numbers[row_tiles][2 * steps];
#pragma unroll
    for (unsigned i = 0; i < steps; ++i) {
        const unsigned place = filters.place(first_place + i);
#pragma unroll
        for (unsigned r = 0; r < row_tiles; ++r)
#pragma unroll
            for (unsigned half = 0; half < 2; ++half)
                numbers[r][2 * i + half] = four_numbers(words, windows[r][half], place);
    }
#pragma unroll
    for (unsigned w = 0; w < words_across; ++w) {
        unsigned signs[4][steps];
#pragma unroll
        for (unsigned i = 0; i < steps; ++i) {
            const uint4 piece = filters.piece(first + i, w);
            signs[0][i] = piece.x, signs[1][i] = piece.y, signs[2][i] = piece.z, signs[3][i] = piece.w;
        }
#pragma unroll
        for (unsigned c = 0; c < 4; ++c)
#pragma unroll
            for (unsigned r = 0; r < row_tiles; ++r)
                multiply_add<is_signed>(sums.of[r][4 * w + c], numbers[r], signs[c]);
    }
}

// Adds the products of a plane and `count` steps of the filters, from `first` on.
template <bool is_signed>
__device__ inline void add_plane(Sums& sums, const unsigned* words, const Windows& windows, const Filters& filters,
                                 unsigned first, unsigned count)
{
#if defined(HELD)
#pragma unroll
#else
#pragma unroll 2
#endif
    for (unsigned step = 0; step < count / 2 * 2; step += 2)
        add_steps<is_signed, 2>(sums, words, windows, filters, step, first + step);
    if (count % 2 != 0) add_steps<is_signed, 1>(sums, words, windows, filters, count - 1, first + count - 1);
}

#if defined(OUTPUT_BITS)

// Lane q of a quad has byte q of four words: it gets word q.
__device__ inline unsigned word_of_bytes(unsigned bytes, unsigned q)
{
    const unsigned other = __shfl_xor_sync(all_lanes, bytes, 1);
    const unsigned halves = q & 1 ? __byte_perm(other, bytes, 0x7351) : __byte_perm(bytes, other, 0x6240);
    const unsigned rest = __shfl_xor_sync(all_lanes, halves, 2);
    return q & 2 ? __byte_perm(rest, halves, 0x7632) : __byte_perm(halves, rest, 0x5410);
}

// Stores the bits of 16 pixels, of which the lane has two, pixel_of(0) and pixel_of(1). Byte 2 * half + w is of eight
// filters.
template <class PixelOf>
__device__ inline void store_bits(const int (&sums)[column_tiles][4], const Output& to, const PixelOf& pixel_of)
{
    const unsigned q = lane_of_this_thread() % lanes_of_quad;
    unsigned signs = 0;
#pragma unroll
    for (int bit = 31; bit >= 0; --bit) {
        const unsigned half = bit / 16, w = bit / 8 % words_across, i = bit % 8;
        int distance = sums[4 * w + i / 2][2 * half + i % 2];
#if defined(COMPARED)
        distance = distance >= to.limits[w][i] ? 0 : -1;
#endif
        signs = __funnelshift_l((unsigned)distance, signs, 1);
    }
    const unsigned mine = word_of_bytes(signs ^ to.not_flipped, q), pixel = pixel_of(q / words_across);
    const unsigned word = blockIdx.y * words_across + q % words_across, words = divide_up(to.filters, 32);
    if (pixel < to.pixels && word < words) to.bits[index_of({pixel, word}, to.pixels, words)] = mine;
}

__device__ inline void read_rule(Output& to, const int* thresholds, const unsigned char* flip)
{
    const unsigned first = blockIdx.y * filters_of_block + 8 * (lane_of_this_thread() % lanes_of_quad);
    to.not_flipped = 0;
#pragma unroll
    for (unsigned w = 0; w < words_across; ++w) {
#pragma unroll
        for (unsigned i = 0; i < 8; ++i) {
            const int threshold = thresholds[first + 32 * w + i];
#if defined(COMPARED)
            to.limits[w][i] = threshold;
#else
            to.limits[w][i] = -threshold;
#endif
        }
        to.not_flipped |= (flip[(first + 32 * w) / 8] ^ 0xffu) * 0x00010001u << 8 * w;
    }
}

#endif
#if defined(OUTPUT_SUMS)

__device__ inline unsigned two_shorts(int low, int high) { return __byte_perm(low, high, 0x5410); }

// Stores the sums of 16 pixels, of which the lane has two, pixel_of(0) and pixel_of(1); eight that follow one another as
// pieces of 16 bytes.
template <class PixelOf>
__device__ inline void store_sums(const int (&sums)[column_tiles][4], const Output& to, const PixelOf& pixel_of)
{
    const unsigned q = lane_of_this_thread() % lanes_of_quad;
#pragma unroll
    for (unsigned w = 0; w < words_across; ++w)
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned filter = blockIdx.y * filters_of_block + 32 * w + 8 * q, pixel = pixel_of(half);
            if (pixel >= to.pixels || filter >= to.filters) continue;
            Made* const y = to.sums + pixel * to.filters + filter;
            int eight[8];
#pragma unroll
            for (unsigned i = 0; i < 8; ++i) eight[i] = sums[4 * w + i / 2][2 * half + i % 2];
            if (to.filters % 8 != 0) {
#pragma unroll
                for (unsigned i = 0; i < 8; ++i)
                    if (filter + i < to.filters) y[i] = (Made)eight[i];
                continue;
            }
#if defined(MADE_INT16)
            *reinterpret_cast<uint4*>(y) = make_uint4(two_shorts(eight[0], eight[1]), two_shorts(eight[2], eight[3]),
                                                      two_shorts(eight[4], eight[5]), two_shorts(eight[6], eight[7]));
#else
            reinterpret_cast<int4*>(y)[0] = make_int4(eight[0], eight[1], eight[2], eight[3]);
            reinterpret_cast<int4*>(y)[1] = make_int4(eight[4], eight[5], eight[6], eight[7]);
#endif
        }
}

#endif

template <class PixelOf>
__device__ inline void store(const int (&sums)[column_tiles][4], const Output& to, const PixelOf& pixel_of)
{
#if defined(OUTPUT_BITS)
    store_bits(sums, to, pixel_of);
#endif
#if defined(OUTPUT_SUMS)
    store_sums(sums, to, pixel_of);
#endif
}

// A pixel of the tile: of a pass, the row tile r of this warp, and half 0 or 1 of it.
__device__ inline unsigned pixel_of_lane(unsigned pass, unsigned r, unsigned half)
{
    const unsigned row_tile = (pass * warps + threadIdx.x / warp_size) * row_tiles + r;
    return (row_tile * 2 + half) * 8 + lane_of_this_thread() / lanes_of_quad;
}

#if defined(REGION)

// Where a window of the tile begins in a plane.
__device__ inline unsigned window_at(const ConvShape& shape, const Region& region, unsigned i)
{
    const unsigned row = i >> region.column_bits, column = i - (row << region.column_bits);
    return row * shape.stride_h * region.line_bytes + column * shape.stride_w * region.pixel_bytes;
}

// The number of a tile's pixel in the output; past the edge, the number of all pixels.
__device__ inline unsigned pixel_of_tile(const ConvShape& shape, const Region& region, const Tile& tile, unsigned i)
{
    const unsigned line = i >> region.column_bits, row = tile.row + line;
    const unsigned column = tile.column + i - (line << region.column_bits);
    if (row >= shape.out_height || column >= shape.out_width) return number_of_pixels(shape);
    return (tile.image * shape.out_height + row) * shape.out_width + column;
}

// A tile: all planes are staged at once.
__device__ inline void compute(unsigned* words, SOURCE, const Filters& filters, const Output& to, const ConvShape& shape,
                               const Region& region, unsigned index)
{
    const Tile tile = tile_at(region, index);
    __syncthreads();
    stage(words, SOURCE_NAMES, shape, region, tile);
    __syncthreads();
    for (unsigned pass = 0; pass < passes; ++pass) {
        Sums sums;
        if (planes == 1) sums.shift(to, true);
        Windows windows;
        FOR_EACH_PIXEL(r, half) windows[r][half] = window_at(shape, region, pixel_of_lane(pass, r, half));
#pragma unroll
        for (unsigned p = 0; p < planes; ++p) {
            if (p > 0) sums.shift(to, p == planes - 1);
            const unsigned* const plane = words + p * region.lines * (region.line_bytes / 4);
            if (p == 0)
                add_plane<highest_is_signed>(sums, plane, windows, filters, 0, STEPS);
            else
                add_plane<false>(sums, plane, windows, filters, 0, STEPS);
        }
#pragma unroll
        for (unsigned r = 0; r < row_tiles; ++r)
            store(sums.of[r], to, [&](unsigned half) {
                return pixel_of_tile(shape, region, tile, pixel_of_lane(pass, r, half));
            });
    }
}

#else

// A tile: planes are staged one after another, each in chunks of k.
__device__ inline void compute(unsigned* words, SOURCE, const Filters& filters, const Output& to, const ConvShape& shape,
                               unsigned steps, unsigned index)
{
    __shared__ Pixel places[pixels_of_tile];
    Sums sums;
    if (planes == 1) sums.shift(to, true);
    Windows windows;
    FOR_EACH_PIXEL(r, half) windows[r][half] = pixel_of_lane(0, r, half) * window_bytes;
    __syncthreads();
    if (threadIdx.x < pixels_of_tile) places[threadIdx.x] = pixel_at(shape, index * pixels_of_tile + threadIdx.x);
    for (unsigned p = 0; p < planes; ++p) {
        if (p > 0) sums.shift(to, p == planes - 1);
        for (unsigned first = 0; first < steps; first += chunk / step_numbers) {
            __syncthreads();
            stage(words, SOURCE_NAMES, shape, places, first * step_numbers, steps * step_numbers, planes - 1 - p);
            __syncthreads();
            const unsigned count = min(steps - first, chunk / step_numbers);
            if (p == 0)
                add_plane<highest_is_signed>(sums, words, windows, filters, first, count);
            else
                add_plane<false>(sums, words, windows, filters, first, count);
        }
    }
#pragma unroll
    for (unsigned r = 0; r < row_tiles; ++r)
        store(sums.of[r], to, [&](unsigned half) { return index * pixels_of_tile + pixel_of_lane(0, r, half); });
}

#endif

extern "C" __global__ void __launch_bounds__(threads, BLOCKS)
dots(SOURCE, const uint4* pieces,
#if defined(REGION)
     const unsigned* groups, const Region region,
#endif
#if defined(OUTPUT_BITS)
     const int* thresholds, const unsigned char* flip, unsigned* bits,
#endif
#if defined(OUTPUT_SUMS)
     Made* sums,
#endif
     const ConvShape shape)
{
    extern __shared__ unsigned words[];
    let_later_launches_begin();
    const unsigned count = number_of_pixels(shape);
    Output to;
    to.pixels = count, to.filters = shape.filters;
#if defined(OUTPUT_BITS)
    to.bits = bits;
    read_rule(to, thresholds, flip);
#endif
#if defined(OUTPUT_SUMS)
    to.sums = sums;
#endif
    Filters filters;
#if defined(REGION)
    const unsigned steps = STEPS, tiles = shape.batch * region.tiles_down * region.tiles_across;
    filters.groups = groups, filters.words_of_line = region.line_bytes / 4;
#else
    const unsigned steps = divide_up(shape.filter_height * shape.filter_width * shape.channels, step_numbers);
    const unsigned tiles = divide_up(count, pixels_of_tile);
#endif
    filters.pieces = pieces + blockIdx.y * steps * words_across * warp_size + lane_of_this_thread();
#if defined(HELD)
    filters.hold();
#endif
    wait_for_earlier_launches();
    for (unsigned index = blockIdx.x; index < tiles; index += gridDim.x)
#if defined(REGION)
        compute(words, SOURCE_NAMES, filters, to, shape, region, index);
#else
        compute(words, SOURCE_NAMES, filters, to, shape, steps, index);
#endif
}
