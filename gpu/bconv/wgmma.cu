// Bit convolution on the warpgroups of sm_90a, for any geometry that tensor maps can describe.
//
// It is a product of matrices that are never built: a row is a pixel of the output, a column a filter, and k runs over
// boxes of SPAN bytes: the taps of the window and, in each, its pieces of channels (bmm/warpgroup_tile.cuh, which has
// the macros of tiles). One copy through an im2col map brings such a box for all pixels of a tile, one through a tiled map
// the same of all its filters. A tap outside the image arrives as zeros. With `a` the window and `b` the filter, their taps
// inside counted as `taps`, and the filter's ones there as pb (of all taps: `all`), the dot product is
//
//   C * taps - 2 pb - 2 ones(a) + 4 popc(a & b)
//
// For windows inside the image, the first two terms are the filter's constant, row `inside` of `addends`. Windows along
// the border add what their taps differ by: a row of addends for each kind (btc_operands.cu).
//
//   -DOUTPUT_INT32           int32 (N, P, Q, O)
//   -DOUTPUT_LINES           bit = (dot >= thresholds[o]) != flip[o], words (N, P, Q, O / 32), first channel lowest
//   -DPOOL_OR | -DPOOL_AND   the bits of 2 x 2 pixels become one: words (N, P / 2, Q / 2, O / 32). A tile has a box for each
//                            of the four pixels, one after another, whose steps are those of windows

//   -DTABLES=n               the kinds of windows, whose addends a note has
//   -DOWN_COLUMNS            or too many of them: rows along the border read theirs

#include "bconv/borders.cuh"
#include "bmm/warpgroup_tile.cuh"

enum : unsigned { windows = rows / window, writers = threads - multiplying - warp_size };

struct Operands {
    const unsigned *__restrict__ ones;  // of each pixel
    const int* __restrict__ addends;
    unsigned pitch;  // of addends: they fill the columns of tiles
    const ConvShape& shape;
    const Borders& borders;
};

// ---- the serving warps ----------------------------------------------------------------------------------------------

// A box along k: a piece of the channels of a tap, and past the last tap one that is nowhere.
struct BoxOfTap {
    unsigned piece = 0, tap = 0, r = 0, s = 0;

    __device__ void advance(const ConvShape& shape, unsigned bytes)
    {
        if ((piece += span) < bytes) return;
        piece = 0, ++tap;
        if (++s < shape.filter_width) return;
        s = 0, ++r;
    }
};

__device__ inline void copy_boxes(Stage& stage, unsigned box, const BoxOfTap& at, const TensorMap& images,
                                  const TensorMap& filters, const ConvShape& shape, const Pixel& first, unsigned column,
                                  unsigned bytes, Barrier& full)
{
    const bool is_tap = at.r < shape.filter_height;
    const unsigned piece = is_tap ? at.piece : bytes;
    const unsigned down = is_tap ? at.r * shape.dilation_h : 0, across = is_tap ? at.s * shape.dilation_w : 0;
    const int w = column_of_tap(shape, first.column, 0), h = row_of_tap(shape, first.row, 0);
#pragma unroll
    for (unsigned corner = 0; corner < window; ++corner)
        load_pixels(&stage.a[(box * rows + corner * windows) * span], images, piece, w, h, first.image,
                    across + corner % 2 * shape.stride_w, down + corner / 2 * shape.stride_h, full);
    load_box(&stage.b[box * columns * span], filters, piece, column, at.tap, full);
}

__device__ inline void copy_stages(Shared& shared, const Tiles& tiles, const TensorMap& images, const TensorMap& filters,
                                   const ConvShape& shape)
{
    const unsigned bytes = divide_up(shape.channels, 128) * 16;  // of a pixel
    Turn<stages> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
        unsigned row, column;
        tiles.find(i, row, column);
        const Pixel first = pixel_at(shape, row);
        BoxOfTap at;
        for (unsigned step = 0; step < tiles.steps; ++step, turn.advance()) {
            Stage& stage = shared.stages[turn.at];
            wait(shared.empty[turn.at], turn.parity ^ 1);  // the first turn passes
            arrive_and_expect(shared.full[turn.at], sizeof(Stage));  // bytes outside of the tensors count, too
#pragma unroll 1
            for (unsigned box = 0; box < boxes_of_step; ++box, at.advance(shape, bytes))
                copy_boxes(stage, box, at, images, filters, shape, first, column, bytes, shared.full[turn.at]);
        }
    }
}

// The ones of the window of a pixel.
__device__ inline unsigned ones_of_window(const Operands& x, const Pixel& pixel)
{
    const ConvShape& shape = x.shape;
    const unsigned* const image = x.ones + pixel.image * shape.height * shape.width;
    const unsigned taps = shape.filter_height * shape.filter_width;
    unsigned row = row_of_tap(shape, pixel.row, 0), column = column_of_tap(shape, pixel.column, 0);
    unsigned sum = 0, s = 0;
#pragma unroll 4  // whose loads are on their way together
    for (unsigned tap = 0; tap < taps; ++tap) {
        if (is_inside(shape, row, column)) sum += image[row * shape.width + column];
        column += shape.dilation_w;
        if (++s == shape.filter_width) {
            s = 0;
            row += shape.dilation_h;
            column = column_of_tap(shape, pixel.column, 0);
        }
    }
    return sum;
}

__device__ inline void write_notes(Shared& shared, const Tiles& tiles, const Operands& x
#if defined(OUTPUT_BITS)
                                   , const int* __restrict__ thresholds, const unsigned char* __restrict__ flip
#endif
)
{
    const unsigned writer = threadIdx.x - multiplying - warp_size;
    const unsigned inside = x.borders.top * x.borders.across(x.shape) + x.borders.left;
    const int* const of_inside = x.addends + (Index)inside * x.pitch;
    unsigned filled[noted] = {~0u, ~0u};  // the column of whose filters a note has the constants
    Turn<noted> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x, turn.advance()) {
        Notes& notes = shared.notes[turn.at];
        unsigned row, column;
        tiles.find(i, row, column);
        wait(shared.read[turn.at], turn.parity ^ 1);
        if (writer == 0) notes.row = row, notes.column = column;
        for (unsigned r = writer; r < rows; r += writers) {
            const Pixel pixel = pixel_at(x.shape, row + r % windows * window + r / windows);
            const unsigned kind = x.borders.of_pixel(x.shape, pixel);
            notes.of_rows[r] = -2 * (int)ones_of_window(x, pixel);
#if defined(OWN_COLUMNS)
            notes.own_columns[r] = kind == inside ? nullptr : x.addends + (Index)kind * x.pitch + column;
#elif TABLES > 1
            notes.table_of_row[r] = kind;
#endif
        }
        unsigned& known = turn.at == 0 ? filled[0] : filled[1];
        for (unsigned c = writer; c < columns && known != column; c += writers) {
            int addend = of_inside[column + c];
#if defined(OUTPUT_BITS)
            const ConvShape& shape = x.shape;
            const unsigned at = min(column + c, shape.filters - 1);
            const unsigned k = shape.filter_height * shape.filter_width * shape.channels;
            const bool is_filter = column + c < shape.filters;  // no dot product reaches k + 1
            addend -= is_filter ? limit_of(thresholds[at], k) : (int)k + 1;
            const unsigned flips = __ballot_sync(all_lanes, is_filter && flip[at] != 0);
            if (c % 32 == 0) notes.flips[c / 32] = flips;
#endif
#pragma unroll
            for (unsigned table = 0; table < TABLES; ++table)
                notes.of_columns[table][c] =
                    addend + (TABLES == 1 || table == inside ? 0 : x.addends[(Index)table * x.pitch + column + c]);
        }
        known = column;
        arrive(shared.written[turn.at]);
    }
}

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

#if defined(OUTPUT_BITS)
#if defined(POOL_NONE)
struct Pooling {};

__device__ inline void store_bits(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                                  const ConvShape& shape, Output* __restrict__ y, Pooling&, unsigned)
{
    const unsigned words_of_pixel = divide_up(shape.filters, 32);
#pragma unroll
    for (unsigned set = 0; set < sets; ++set) {
        unsigned made[2];
        make_words(made, sums, notes, place, part, set);
        const unsigned at = word_of(set, place), word = notes.column / 32 + at;
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
            const unsigned pixel = notes.row + place.row(part) + 8 * r;
            if (pixel < number_of_pixels(shape) && at < words_across && word < words_of_pixel)
                y[(Index)pixel * words_of_pixel + word] = made[r];
        }
    }
}
#else
// The words of a tile, which meet in shared memory. Two tiles take turns: who writes the next one has read this.
struct Pooling {
    unsigned words[noted][rows][words_across];
};

__device__ inline void store_bits(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                                  const ConvShape& shape, Output* __restrict__ y, Pooling& pooling, unsigned turn)
{
    unsigned(&words)[rows][words_across] = pooling.words[turn];
#pragma unroll
    for (unsigned set = 0; set < sets; ++set) {
        unsigned made[2];
        make_words(made, sums, notes, place, part, set);
        const unsigned at = word_of(set, place);
#pragma unroll
        for (unsigned r = 0; r < 2; ++r)
            if (at < words_across) words[place.row(part) + 8 * r][at] = made[r];
    }
    if (part + 1 < parts) return;
    wait_for_warps<multiplying / teams>(1 + turn);
    const unsigned words_of_place = divide_up(shape.filters, 32), places = number_of_pixels(shape) / window;
    for (unsigned i = threadIdx.x % (multiplying / teams); i < windows * words_across; i += multiplying / teams) {
        const unsigned at = i / words_across, word = i % words_across;
        unsigned all = words[at][word];
#pragma unroll
        for (unsigned corner = 1; corner < window; ++corner)
#if defined(POOL_AND)
            all &= words[corner * windows + at][word];
#else
            all |= words[corner * windows + at][word];
#endif
        const unsigned place_of_output = notes.row / window + at, of_output = notes.column / 32 + word;
        if (place_of_output < places && of_output < words_of_place)
            y[(Index)place_of_output * words_of_place + of_output] = all;
    }
}
#endif
#endif

struct SharedOfConvolution : Shared {
#if defined(OUTPUT_BITS)
    Pooling pooling;
#endif
};

extern "C" __global__ void __launch_bounds__(threads, 1)
wgmma(const __grid_constant__ TensorMap images, const unsigned* __restrict__ ones, const __grid_constant__ TensorMap filters,
      const int* __restrict__ addends,
#if BOXES
      const __grid_constant__ TensorMap y,
#else
      Output* __restrict__ y,
#endif
      const __grid_constant__ ConvShape shape, const __grid_constant__ Borders borders, unsigned pitch
#if defined(OUTPUT_BITS)
      , const int* __restrict__ thresholds, const unsigned char* __restrict__ flip
#endif
)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    SharedOfConvolution& shared = *reinterpret_cast<SharedOfConvolution*>(memory);
    const Operands x = {ones, addends, pitch, shape, borders};
    const unsigned boxes = shape.filter_height * shape.filter_width * divide_up(divide_up(shape.channels, 128) * 16, span);
    const Tiles tiles(number_of_pixels(shape), shape.filters, boxes * span);

    shared.begin(writers);
    let_later_launches_begin();
    wait_for_earlier_launches();

    const unsigned serving = threadIdx.x - multiplying;  // number of a serving thread
    if (threadIdx.x >= multiplying) {
#if defined(SETMAXNREG)
        give_registers<40>();
#endif
        if (serving == 0) copy_stages(shared, tiles, images, filters, shape);
        if (serving >= warp_size)
            write_notes(shared, tiles, x
#if defined(OUTPUT_BITS)
                        , thresholds, flip
#endif
            );
        return;
    }
#if defined(SETMAXNREG)
    take_registers<232>();
#endif
    const Place place;
#if BOXES
    unsigned box = 0;
#endif
    compute_tiles(shared, tiles, [&](unsigned part, const int (&sums)[sums_of_part], unsigned note) {
        const Notes& notes = shared.notes[note];
#if defined(OUTPUT_BITS)
        store_bits(sums, notes, place, part, shape, y, shared.pooling, note);
#elif BOXES
        store_boxes(sums, shared.boxes[place.warp], box, notes, place, part, y);
#else
        store_pairs(sums, notes, place, part, y, number_of_pixels(shape), shape.filters);
#endif
    });
#if BOXES
    if (place.lane == 0) wait_for_copies();
#endif
}
