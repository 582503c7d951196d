// Bit convolution on bit tensor cores (BTC, section 5.3 and listing 6), for any geometry.
//
// It is a product of matrices that are never built: a row is a pixel of the output, a column an output
// channel, and K runs over the taps of the window and the units, 128 bits, of their channels. A tap outside
// the image is zeros. With `a` the window and `b` the filter, their taps inside counted as `taps`, and the
// filter's ones there as pb (of all taps: `all`), the dot product is
//
//   and:  C * taps - 2 pb             - 2 popc(a) + 4 popc(a & b)      where a is 0, so is a & b
//   xor:  C * taps + 2 (all - pb)                 - 2 popc(a ^ b)      where a is 0, a ^ b is b
//
// The first terms depend on the filter and on the taps inside: `addends` has them (btc_operands.cu), one row
// for all windows inside the image and one for each of the others along the border. popc(a) is counted while
// the window passes by. Channels past C are 0 on both sides.
//
//   -DSCHEME=btc1              images (N, H, W, units), filters (R, S, O, units)                (design 1)
//   -DSCHEME=btc2 -DFSB        images (H, W, N / 8, units, 8), filters (R, S, O / 8, units, 8)  (design 2)
//   -DTILE=32 | 64 | 128       pixels, and channels, of a block's tile
//   -DOUTPUT_INT               int32 (N, P, Q, O)
//   -DOUTPUT_BITS              bit = (dot >= thresholds[o]) != flip[o], words (N, P, Q, O / 32), first channel lowest
//   -DPOOL_OR | -DPOOL_AND     the bits of 2 x 2 pixels become one: words (N, P / 2, Q / 2, O / 32)

#include "bconv/borders.cuh"
#include "bconv/output.cuh"
#include "bmm/tensor_core.cuh"

// A warp's tile is 32 channels wide, one word of the output, and made of products of 16 x 8.
enum : unsigned { warps_across = TILE / 32, warps_down = 2, warp_rows = TILE / warps_down };
enum : unsigned { row_products = warp_rows / 16, column_products = 4 };
enum : unsigned { threads = warps_across * warps_down * warp_size, blocks_per_multiprocessor = 2 };

// A stage is what a block brings at a time: some units of every line, a line being a row or a column.
enum : unsigned { units = 4, lines_at_once = threads / units, passes = TILE / lines_at_once };
typedef uint4 Unit;
typedef Unit Stage[TILE * units];

enum : unsigned { outside = 1u << 31 };  // past every image, whatever the tap adds
enum : unsigned { no_place = 0xffffffffu };

// Where a stage holds a unit: neither the 8 lanes that store 16 bytes each at once nor the 8 lines that
// ldmatrix reads at once meet in a bank. Eight lines on it is just as much farther.
__device__ inline unsigned place_in_stage(unsigned line, unsigned unit)
{
    return line * units + (unit ^ line / 2 % units);
}

// How far the units of an operand lie apart. An image has places at its pixels, a filter at its taps; offsets
// fit 32 bits, also between what lies outside.
struct Operand {
    unsigned line, place, unit;

    __device__ static Operand images(const ConvShape& shape)
    {
        const unsigned of_place = divide_up(shape.channels, tile_bits);
#if defined(FSB)
        return {of_place * tile_lines, divide_up(shape.batch, tile_lines) * of_place * tile_lines, tile_lines};
#else
        return {shape.height * shape.width * of_place, of_place, 1};
#endif
    }

    __device__ static Operand filters(const ConvShape& shape)
    {
        const unsigned of_place = divide_up(shape.channels, tile_bits);
#if defined(FSB)
        return {of_place * tile_lines, divide_up(shape.filters, tile_lines) * of_place * tile_lines, tile_lines};
#else
        return {of_place, shape.filters * of_place, 1};
#endif
    }

    __device__ unsigned start_of(unsigned number) const
    {
#if defined(FSB)
        return number / tile_lines * line + number % tile_lines;
#else
        return number * line;
#endif
    }
};

// The rows of a block's tile.
struct Rows {
    unsigned start[TILE];                           // the unit under the window's first tap
    unsigned first_row[TILE], first_column[TILE];   // where that is in the image
    unsigned border[TILE], place[TILE], ones[TILE]; // the row of addends, the place in the output, popc(a)

    // Row `index` of the product is row `line` of the tile. With FSB the images of a tile are neighbours.
    __device__ void find(const ConvShape& shape, const Borders& borders, unsigned line, unsigned index)
    {
        const bool is_row = index < number_of_pixels(shape);
#if defined(FSB)
        const unsigned number = min(index, number_of_pixels(shape) - 1) / window;
        const unsigned pixels = rows_of_output(shape) * columns_of_output(shape);
        index = (number % shape.batch * pixels + number / shape.batch) * window + index % window;
#endif
        const Pixel pixel = pixel_at(shape, index);
        const unsigned row = row_of_tap(shape, pixel.row, 0), column = column_of_tap(shape, pixel.column, 0);
        const Operand images = Operand::images(shape);
        start[line] = images.start_of(pixel.image) + (row * shape.width + column) * images.place;
        first_row[line] = is_row ? row : outside;
        first_column[line] = column;
        border[line] = borders.of_pixel(shape, pixel);
        place[line] = is_row ? index / window : no_place;
    }
};

// What a thread brings: of each stage one unit of some rows and of as many columns.
struct Loader {
    const ConvShape& shape;
    const Unit *const image_units, *const filter_units;
    const Operand images, filters;
    const unsigned units_of_tap, taps;
    unsigned tap = 0, s = 0, unit, down = 0, across = 0;  // the position in K, and the tap in the image
    unsigned row_start[passes], first_row[passes], first_column[passes], ones[passes] = {};
    unsigned column_start[passes], place;
    bool is_filter[passes];
    Unit a[passes], b[passes];

    __device__ Loader(const Unit* image_units, const Unit* filter_units, const ConvShape& shape, const Rows& rows,
                      unsigned tile_column)
        : shape(shape), image_units(image_units), filter_units(filter_units), images(Operand::images(shape)),
          filters(Operand::filters(shape)), units_of_tap(divide_up(shape.channels, tile_bits)),
          taps(shape.filter_height * shape.filter_width), unit(threadIdx.x % units),
          place(place_in_stage(line(0), threadIdx.x % units))
    {
        find_tap();
#pragma unroll
        for (unsigned i = 0; i < passes; ++i) {
            row_start[i] = rows.start[line(i)];
            first_row[i] = rows.first_row[line(i)];
            first_column[i] = rows.first_column[line(i)];
            is_filter[i] = tile_column + line(i) < shape.filters;
            column_start[i] = filters.start_of(tile_column + line(i));
        }
    }

    __device__ static unsigned line(unsigned pass) { return pass * lines_at_once + threadIdx.x / units; }

    __device__ void find_tap()
    {
        while (unit >= units_of_tap) {
            unit -= units_of_tap;
            ++tap;
            across += shape.dilation_w;
            if (++s == shape.filter_width) {
                s = across = 0;
                down += shape.dilation_h;
            }
        }
    }

    // The next stage is on its way; after the last one, zeros.
    __device__ void load()
    {
        const unsigned of_image = (down * shape.width + across) * images.place + unit * images.unit;
        const unsigned of_filter = tap * filters.place + unit * filters.unit;
        const bool is_tap = tap < taps;
#pragma unroll
        for (unsigned i = 0; i < passes; ++i) {
            a[i] = b[i] = Unit{};
            if (is_tap && is_inside(shape, first_row[i] + down, first_column[i] + across))
                a[i] = image_units[row_start[i] + of_image];
            if (is_tap && is_filter[i]) b[i] = filter_units[column_start[i] + of_filter];
        }
        unit += units;
        find_tap();
    }

    // It has arrived: pass it on, and count the ones of the rows.
    __device__ void store(Stage& rows, Stage& columns)
    {
#pragma unroll
        for (unsigned i = 0; i < passes; ++i) {
            rows[place + i * lines_at_once * units] = a[i];
            columns[place + i * lines_at_once * units] = b[i];
            if (counts_common_ones) ones[i] += __popc(a[i].x) + __popc(a[i].y) + __popc(a[i].z) + __popc(a[i].w);
        }
    }

    // The ones of whole rows, of which the threads of a line have a part each.
    __device__ void sum_ones(Rows& rows)
    {
#pragma unroll
        for (unsigned i = 0; i < passes; ++i) {
#pragma unroll
            for (unsigned distance = 1; distance < units; distance *= 2)
                ones[i] += __shfl_xor_sync(all_lanes, ones[i], distance);
            if (threadIdx.x % units == 0) rows.ones[line(i)] = ones[i];
        }
    }
};

// A warp and its tile: of each product a lane has two neighbouring columns of two rows, 8 apart.
struct Warp {
    unsigned lane = lane_of_this_thread();
    unsigned first_row = threadIdx.x / warp_size % warps_down * warp_rows;
    unsigned first_column = threadIdx.x / warp_size / warps_down * 32;
    // What the lane shows ldmatrix of 16 lines and two units, in the order of mma's registers: of a product's
    // rows one unit after the other, of two products' columns one product after the other. Else they are moved.
    unsigned row_place = place_in_stage(first_row + lane % 16, lane / 16);
    unsigned column_place = place_in_stage(first_column + lane / 16 * 8 + lane % 8, lane / 8 % 2);
    int counts[row_products][column_products][4] = {};

    __device__ static void multiply_16_lines(int (&counts)[4], const unsigned (&a)[4], const unsigned* b)
    {
        const unsigned units_first[4] = {a[0], a[2], a[1], a[3]};
#pragma unroll
        for (unsigned t = 0; t < 2; t += product_row_tiles)
#pragma unroll
            for (unsigned s = 0; s < 2; s += product_k_tiles)
                multiply_add(reinterpret_cast<int(&)[product_counts]>(counts[2 * t]), units_first + 2 * t + s, b + s);
    }

    __device__ void add(const Stage& rows, const Stage& columns)
    {
#pragma unroll
        for (unsigned unit = 0; unit < units; unit += 2) {
            unsigned a[row_products][4], b[column_products / 2][4];
#pragma unroll
            for (unsigned j = 0; j < column_products / 2; ++j)
                load_four_tiles(b[j], &columns[(column_place ^ unit) + 16 * units * j]);
#pragma unroll
            for (unsigned i = 0; i < row_products; ++i)
                load_four_tiles(a[i], &rows[(row_place ^ unit) + 16 * units * i]);
#pragma unroll
            for (unsigned i = 0; i < row_products; ++i)
#pragma unroll
                for (unsigned j = 0; j < column_products; ++j)
                    multiply_16_lines(counts[i][j], a[i], b[j / 2] + j % 2 * 2);
        }
    }
};

// The eight columns of a lane: pairs, eight columns apart.
struct Columns {
    unsigned first, count, pitch;
    const int* addends;

    __device__ Columns(const ConvShape& shape, const int* addends, unsigned first)
        : first(first), count(shape.filters), pitch(pitch_of_addends(shape)), addends(addends)
    {
    }

    __device__ unsigned at(unsigned j) const { return first + 8 * j; }

    // The dot products of a row; `half` 0 or 1 is the first or second of its product.
    __device__ void find_dots(int (&dots)[column_products][2], const int (&counts)[column_products][4],
                              unsigned half, unsigned border, unsigned ones) const
    {
        const int* const row = addends + (Index)border * pitch;
#pragma unroll
        for (unsigned j = 0; j < column_products; ++j) {
            const int2 addend = at(j) < count ? *reinterpret_cast<const int2*>(row + at(j)) : int2{};
#pragma unroll
            for (unsigned e = 0; e < 2; ++e) {
                const unsigned common = (unsigned)counts[j][2 * half + e] * (counts_common_ones ? 4u : -2u);
                dots[j][e] = (int)((e ? addend.y : addend.x) + common - 2 * ones);
            }
        }
    }
};

#if defined(OUTPUT_BITS)
// What makes a word of 32 channels, of which a lane has four pairs of bits: its own are put together first.
struct Rule {
    int threshold[column_products][2];
    unsigned flips = 0, filters = 0;

    __device__ Rule(const Columns& columns THRESHOLDS)
    {
#pragma unroll
        for (unsigned j = 0; j < column_products; ++j)
#pragma unroll
            for (unsigned e = 0; e < 2; ++e) {
                const bool is_filter = columns.at(j) + e < columns.count;
                threshold[j][e] = is_filter ? thresholds[columns.at(j) + e] : 0;
                if (is_filter) filters |= 1u << (8 * j + e);
                if (is_filter && flip[columns.at(j) + e]) flips |= 1u << (8 * j + e);
            }
    }

    // With pooling, of four rows.
    __device__ unsigned word(const int (&dots)[column_products][2], unsigned lane) const
    {
        unsigned word = 0;
#pragma unroll
        for (unsigned j = 0; j < column_products; ++j)
#pragma unroll
            for (unsigned e = 0; e < 2; ++e)
                if (dots[j][e] >= threshold[j][e]) word |= 1u << (8 * j + e);
        word = ((word ^ flips) & filters) << lane % 4 * 2;
        word |= __shfl_xor_sync(all_lanes, word, 1);
        word |= __shfl_xor_sync(all_lanes, word, 2);
#pragma unroll
        for (unsigned distance = 4; distance < 4 * window; distance *= 2)
            word = pooled(word, __shfl_xor_sync(all_lanes, word, distance));
        return word;
    }
};
#else
// Pairs are stored at once where the output's rows begin at multiples of 8 bytes.
__device__ inline void store_row(int* row, const int (&dots)[column_products][2], const Columns& columns)
{
    if (columns.count % 2 == 0) {
#pragma unroll
        for (unsigned j = 0; j < column_products; ++j)
            if (columns.at(j) < columns.count)
                *reinterpret_cast<int2*>(row + columns.at(j)) = {dots[j][0], dots[j][1]};
    } else {
#pragma unroll
        for (unsigned j = 0; j < column_products; ++j)
#pragma unroll
            for (unsigned e = 0; e < 2; ++e)
                if (columns.at(j) + e < columns.count) row[columns.at(j) + e] = dots[j][e];
    }
}
#endif

__device__ inline void store_products(const Warp& warp, const Rows& rows, const ConvShape& shape, const int* addends,
                                      unsigned tile_column, Output* output THRESHOLDS)
{
    const unsigned first_column = tile_column + warp.first_column;
    if (first_column >= shape.filters) return;
    const Columns columns(shape, addends, first_column + 2 * (warp.lane % 4));
#if defined(OUTPUT_BITS)
    const Rule rule(columns WITH_THRESHOLDS);
    const unsigned words_of_pixel = divide_up(shape.filters, 32);
#endif
#pragma unroll
    for (unsigned i = 0; i < row_products; ++i)
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned line = warp.first_row + 16 * i + 8 * half + warp.lane / 4, place = rows.place[line];
            int dots[column_products][2];
            columns.find_dots(dots, warp.counts[i], half, rows.border[line], rows.ones[line]);
#if defined(OUTPUT_BITS)
            const unsigned word = rule.word(dots, warp.lane);
            if (place != no_place && warp.lane % (4 * window) == 0)
                output[place * words_of_pixel + first_column / 32] = word;
#else
            if (place != no_place) store_row(output + place * shape.filters, dots, columns);
#endif
        }
}

extern "C" __global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
SCHEME(const Unit* __restrict__ images, const Unit* __restrict__ filters, const int* __restrict__ addends,
       const Borders borders, Output* __restrict__ output, const ConvShape shape THRESHOLDS)
{
    __shared__ Stage row_stages[2], column_stages[2];
    __shared__ Rows rows;
    const unsigned tiles_across = divide_up(shape.filters, TILE);
    const unsigned tile_row = blockIdx.x / tiles_across * TILE, tile_column = blockIdx.x % tiles_across * TILE;

    if (threadIdx.x < TILE) rows.find(shape, borders, threadIdx.x, tile_row + threadIdx.x);
    __syncthreads();
    Loader loader(images, filters, shape, rows, tile_column);
    Warp warp;
    loader.load();
    const unsigned all_units = loader.taps * loader.units_of_tap;
    for (unsigned done = 0, buffer = 0; done < all_units; done += units, buffer ^= 1) {
        loader.store(row_stages[buffer], column_stages[buffer]);
        __syncthreads();
        loader.load();
        warp.add(row_stages[buffer], column_stages[buffer]);
    }
    loader.sum_ones(rows);
    __syncthreads();
    store_products(warp, rows, shape, addends, tile_column, output WITH_THRESHOLDS);
}
