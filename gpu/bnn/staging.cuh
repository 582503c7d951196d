// What a tile of pixels reads, in shared memory as bytes. Numbers are split into planes, the highest bytes first.
//
//   -DPLANES=1|2|4     bytes of a number
//   -DROW_TILES        16 pixels of a warp
//   -DPASSES           parts of a tile, computed one after another; 1 without REGION
//   -DREGION           a tile is a rectangle of an image; all that its windows cover is there at once, in lines as in
//                      memory, each pixel in pixel_bytes. Otherwise pixels follow one another, and each has
//                      its own window, in chunks along k, of one plane
//   -DWORDS            images of bytes are whole words
//
// A number outside the image is 0.

#pragma once

#include "bconv/geometry.cuh"
#include "bnn/source.cuh"

enum : unsigned {
    threads = 128,
    warps = threads / warp_size,
    row_tiles = ROW_TILES,
    pixels_of_pass = warps * row_tiles * 16,
    passes = PASSES,
    pixels_of_tile = passes * pixels_of_pass,
    planes = PLANES,
};

// A byte of four numbers; 0 is the lowest.
__device__ inline unsigned bytes_of(const int (&numbers)[4], unsigned byte)
{
    const unsigned pair = byte | (byte + 4) << 4;
    return __byte_perm(__byte_perm(numbers[0], numbers[1], pair), __byte_perm(numbers[2], numbers[3], pair), 0x5410);
}

#if defined(REGION)

// The host's twin is in gpu/bnn/dots.py.
struct Region {
    unsigned lines, line_bytes, pixel_bytes;
    unsigned column_bits, tiles_across, tiles_down;  // a tile has 1 << column_bits columns
};

struct Tile {
    unsigned image, row, column;  // of its first pixel in the output
};

__device__ inline Tile tile_at(const Region& region, unsigned index)
{
    const unsigned line = index / region.tiles_across, image = line / region.tiles_down;
    const unsigned row = line % region.tiles_down * (pixels_of_tile >> region.column_bits);
    return {image, row, index % region.tiles_across << region.column_bits};
}

// Four numbers of a line, the same in every line.
struct Four {
    int first;  // where the first one is in a row of the image
    bool inside[4];
#if defined(SOURCE_PIXELS)
    typedef unsigned Raw;  // bytes, any where the line is not in the image
    int scales[4], offsets[4];
#else
    struct Raw {
        int numbers[4];
    };
#endif

    __device__ Four(SOURCE, const ConvShape& shape, const Region& region, unsigned first_column, unsigned byte)
    {
        unsigned column = first_column + byte / region.pixel_bytes, channel = byte % region.pixel_bytes;
        first = (int)(column * shape.channels + channel);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            inside[i] = column < shape.width && channel < shape.channels;
#if defined(SOURCE_PIXELS)
            scales[i] = inside[i] ? scale[channel] : 0;
            offsets[i] = inside[i] ? offset[channel] : 0;
#endif
            if (++channel == region.pixel_bytes) channel = 0, ++column;
        }
    }

    // Reads them from a row of `count` numbers in all.
    __device__ Raw read(SOURCE, bool is_inside, unsigned row, unsigned count) const
    {
        const unsigned from = row + (unsigned)first;
#if defined(SOURCE_PIXELS) && defined(WORDS)
        const unsigned* const words = reinterpret_cast<const unsigned*>(images);
        const unsigned at = (unsigned)((int)from >> 2), last = count / 4 - 1;
        return __funnelshift_r(words[min(at, last)], words[min(at + 1, last)], 8 * from);  // by its last five bits
#elif defined(SOURCE_PIXELS)
        unsigned word = 0;
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) word |= (unsigned)images[min(from + i, count - 1)] << 8 * i;
        return word;
#else
        Raw made = {};
#pragma unroll
        for (unsigned i = 0; i < 4; ++i)
            if (is_inside && inside[i]) made.numbers[i] = READ(from + i, 0);
        return made;
#endif
    }

    __device__ void make(int (&numbers)[4], const Raw& raw, bool is_inside) const
    {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i)
#if defined(SOURCE_PIXELS)
            numbers[i] = is_inside ? scales[i] * (int)(raw >> 8 * i & 255) + offsets[i] : 0;
#else
            numbers[i] = raw.numbers[i];
#endif
    }
};

// A thread takes the same words of many lines, several at once.
__device__ inline void stage(unsigned* words, SOURCE, const ConvShape& shape, const Region& region, const Tile& tile)
{
    enum : unsigned { at_once = 5 };
    const unsigned words_of_line = region.line_bytes / 4, words_of_plane = region.lines * words_of_line;
    const unsigned first_row = row_of_tap(shape, tile.row, 0), first_column = column_of_tap(shape, tile.column, 0);
    const unsigned row_numbers = shape.width * shape.channels, count = shape.batch * shape.height * row_numbers;
    const unsigned across = words_of_line <= warp_size / 2 ? warp_size / 2 : warp_size, down = threads / across;
    for (unsigned word = threadIdx.x % across; word < words_of_line; word += across) {
        const Four four(SOURCE_NAMES, shape, region, first_column, 4 * word);
        for (unsigned first = threadIdx.x / across; first < region.lines; first += at_once * down) {
            Four::Raw raw[at_once];
#pragma unroll
            for (unsigned i = 0; i < at_once; ++i) {
                const unsigned row = first_row + first + i * down;
                const unsigned start = (tile.image * shape.height + row) * row_numbers;
                raw[i] = four.read(SOURCE_NAMES, row < shape.height, start, count);
            }
#pragma unroll
            for (unsigned i = 0; i < at_once; ++i) {
                const unsigned line = first + i * down;
                int numbers[4];
                four.make(numbers, raw[i], first_row + line < shape.height);
                if (line >= region.lines) break;
#pragma unroll
                for (unsigned p = 0; p < planes; ++p)
                    words[p * words_of_plane + line * words_of_line + word] = bytes_of(numbers, planes - 1 - p);
            }
        }
    }
}

#else

enum : unsigned {
    chunk = 256,           // of k
    window_bytes = chunk + 16,  // eight windows are in different banks
    words_of_chunk = chunk / 4,
};

// A thread takes the same four numbers of many windows.
__device__ inline void stage(unsigned* words, SOURCE, const ConvShape& shape, const Pixel* pixels, unsigned start,
                             unsigned end, unsigned byte)
{
    const unsigned word = threadIdx.x % words_of_chunk, first = start + 4 * word;
    const unsigned length = shape.filter_height * shape.filter_width * shape.channels;
    if (first >= end) return;
#pragma unroll 4
    for (unsigned i = threadIdx.x / words_of_chunk; i < pixels_of_tile; i += threads / words_of_chunk) {
        const Pixel pixel = pixels[i];
        int numbers[4] = {};
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
            const unsigned k = first + j, tap = k / shape.channels, channel = k % shape.channels;
            const unsigned row = row_of_tap(shape, pixel.row, tap / shape.filter_width);
            const unsigned column = column_of_tap(shape, pixel.column, tap % shape.filter_width);
            if (k < length && is_inside(shape, row, column))
                numbers[j] = READ(((pixel.image * shape.height + row) * shape.width + column) * shape.channels + channel,
                                  channel);
        }
        words[i * (window_bytes / 4) + word] = bytes_of(numbers, byte);
    }
}

#endif
