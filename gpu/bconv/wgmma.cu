// Bit convolution on the warpgroups of sm_90a, for any geometry.
//
// It is a product of matrices (bmm/warpgroup_tile.cuh, which has the macros of tiles): a row is a pixel of the output, a
// column a filter, and k runs over chunks of 16 bytes, which are 128 channels of a tap: taps one after another, and in each
// its pieces of channels. Filters are lines of such chunks, and come through a tensor map. The matrix of windows is never
// built: two warps gather its chunks from the images, each lane the same chunk of a step for some of the rows, and zeros for
// taps outside the image. With `a` the window and `b` the filter, their taps inside counted as `taps`, and the filter's
// ones there as pb (of all taps: `all`), the dot product is
//
//   C * taps - 2 pb - 2 ones(a) + 4 popc(a & b)
//
// For windows inside the image, the first two terms are the filter's constant, row `inside` of `addends`. Windows along
// the border add what their taps differ by: a row of addends for each kind (btc_operands.cu).
//
//   -DOUTPUT_INT32 | -DOUTPUT_INT16
//                            (N, P, Q, O)
//   -DOUTPUT_LINES           bit = (dot >= thresholds[o]) != flip[o], words (N, P, Q, O / 32), first channel lowest
//   -DPOOL_OR | -DPOOL_AND   the bits of 2 x 2 pixels become one: words (N, P / 2, Q / 2, O / 32)
//   -DTABLES=n               at least as many as there are kinds of windows, whose addends a note has
//   -DOWN_COLUMNS            or too many of them: rows along the border read theirs

#include "bconv/borders.cuh"
#include "bmm/warpgroup_tile.cuh"

enum : unsigned {
    gathering = 2 * warp_size,
    noting = warpgroup_size - gathering,
    rows_of_warp = rows / (gathering / warp_size),  // that gathers
    rows_of_writer = rows / noting,
    chunks_of_step = step_bytes / chunk,
    chunks_of_product = product_bytes / chunk,
    fillers = 1 + gathering / warp_size,  // who arrives when a stage is full: who expects the filters' bytes, too
    rows_at_once = warp_size / chunks_of_step,
    rows_of_lane = rows_of_warp / rows_at_once,
    given = parts * sums_of_part > 128 ? 56 : 104,  // registers of a serving thread, of the 504 that three threads have
    taken = (504 - given) / 2,
    late = 2,  // stages that a warp may be gathering beside the next one
};

struct Operands {
    const unsigned *__restrict__ ones;  // of each pixel
    const int* __restrict__ addends;
    unsigned pitch;  // of addends: they fill the columns of tiles
    const ConvShape& shape;
    const Borders& borders;
};

// A tap, from the first one of its window.
struct Tap {
    unsigned down, across, pixels;

    __device__ Tap(const ConvShape& shape, unsigned r, unsigned s)
        : down(r * shape.dilation_h), across(s * shape.dilation_w), pixels(down * shape.width + across)
    {
    }
};

// The place of a window's first tap, in its image and among all pixels of images. Outside of the image these numbers wrap
// around, and back for taps inside.
struct Window {
    unsigned row, column, pixel;

    Window() = default;
    __device__ Window(const ConvShape& shape, const Pixel& of)
        : row(row_of_tap(shape, of.row, 0)), column(column_of_tap(shape, of.column, 0)),
          pixel((of.image * shape.height + row) * shape.width + column)
    {
    }
    __device__ bool has(const Tap& tap, const ConvShape& shape) const
    {
        return is_inside(shape, row + tap.down, column + tap.across);
    }

    // Bit r: row r of its taps is inside the image; bit 16 + s: column s is.
    __device__ unsigned inside(const ConvShape& shape) const
    {
        unsigned found = 0;
        for (unsigned r = 0; r < shape.filter_height; ++r) found |= (row + r * shape.dilation_h < shape.height) << r;
        for (unsigned s = 0; s < shape.filter_width; ++s) found |= (column + s * shape.dilation_w < shape.width) << 16 << s;
        return found;
    }
};

// ---- the serving warps ----------------------------------------------------------------------------------------------

// A chunk of k: a piece of the channels of the tap in row r and column s of the filter.
struct Chunk {
    unsigned piece, s, r;

    __device__ void advance(const Chunk& by, const ConvShape& shape, unsigned pieces)
    {
        piece += by.piece, s += by.s, r += by.r;
        if (piece >= pieces) piece -= pieces, ++s;
        if (s >= shape.filter_width) s -= shape.filter_width, ++r;
    }
};

// The first chunks of k: those of a step, and as the last one the way from each to the same of the next step.
struct Chunks {
    Chunk first[chunks_of_step + 1];
};

// A gathering warp on its way through the stages. A lane has chunk lane % 8 of each step, of every fourth of the warp's rows.
// It shows a stage to products when later ones are on their way, too, or when it has to wait for one: products may need
// all that it has.
struct Gatherer {
    Shared& shared;
    const unsigned lane = lane_of_this_thread(), first = (threadIdx.x - multiplying) / warp_size * rows_of_warp;
    const unsigned chunk_of_lane = lane % chunks_of_step, row_of_lane = lane / chunks_of_step;
    unsigned first_chunks[rows_of_lane], inside[rows_of_lane];  // of the windows of its rows
    Turn<stages> turn, oldest;
    unsigned on_their_way = 0;

    // Find the windows of a tile, one for each lane, and hand them out.
    __device__ void find_windows(const ConvShape& shape, unsigned row, unsigned pieces)
    {
#pragma unroll
        for (unsigned i = 0; i < rows_of_warp; i += warp_size) {
            const Window window(shape, pixel_at(shape, row + first + i + lane));
            const unsigned chunk_of_window = window.pixel * pieces, taps = window.inside(shape);
#pragma unroll
            for (unsigned j = 0; j < warp_size / rows_at_once; ++j) {
                const unsigned from = j * rows_at_once + row_of_lane;
                first_chunks[i / rows_at_once + j] = __shfl_sync(all_lanes, chunk_of_window, from);
                inside[i / rows_at_once + j] = __shfl_sync(all_lanes, taps, from);
            }
        }
    }

    // Show all but the last `left` of the stages.
    template <unsigned left> __device__ void show()
    {
        if (on_their_way <= left) return;
        wait_for_chunks<left>();
        show_to_copies();
        __syncwarp();
#pragma unroll 1
        for (; on_their_way > left; --on_their_way, oldest.advance())
            if (lane == 0) arrive(shared.full[oldest.at]);
    }

    // The next stage, when it is free.
    __device__ Stage& next()
    {
        Barrier& empty = shared.empty[turn.at];
        if (!__all_sync(all_lanes, is_complete(empty, turn.parity ^ 1))) {  // the first turn passes
            show<0>();
            wait(empty, turn.parity ^ 1);
        }
        return shared.stages[turn.at];
    }

    // Begin the copies of a step, or so many of its chunks; those past the last tap are zeros.
    __device__ void gather(Stage& stage, const uint4* __restrict__ images, const Chunk& at, const ConvShape& shape,
                           unsigned pieces, unsigned needed)
    {
        if (chunk_of_lane >= needed) return;
        const bool is_tap = at.r < shape.filter_height;
        const unsigned taps = is_tap ? 1u << at.r | 0x10000u << at.s : ~0u;  // no window has all of these
        const unsigned chunk_of_tap = Tap(shape, at.r, at.s).pixels * pieces + at.piece;
        unsigned char* const line = &stage.a[(first + row_of_lane) * step_bytes];
#pragma unroll
        for (unsigned i = 0; i < rows_of_lane; ++i) {
            const unsigned swizzled = chunk_of_lane ^ (row_of_lane + i * rows_at_once) % atom_rows;
            copy_chunk(line + swizzled * chunk + i * rows_at_once * step_bytes, images + (first_chunks[i] + chunk_of_tap),
                       (inside[i] & taps) == taps);
        }
    }

    // All copies of the step have begun.
    __device__ void advance()
    {
        commit_chunks();
        ++on_their_way, turn.advance();
        show<late>();
    }
};

__device__ inline void fill_stages(Shared& shared, const Tiles& tiles, const uint4* __restrict__ images,
                                   const TensorMap& filters, const ConvShape& shape, const Chunks& chunks)
{
    const unsigned pieces = divide_up(shape.channels, 128);
    Gatherer gatherer{shared};
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
        unsigned row, column;
        tiles.find(i, row, column);
        gatherer.find_windows(shape, row, pieces);
        Chunk at = chunks.first[gatherer.chunk_of_lane];
        for (unsigned step = 0; step < tiles.steps; ++step, at.advance(chunks.first[chunks_of_step], shape, pieces)) {
            Stage& stage = gatherer.next();
            if (threadIdx.x == multiplying) {
                Barrier& full = shared.full[gatherer.turn.at];
                arrive_and_expect(full, sizeof(stage.b));  // bytes outside of the filters count, too
                load_box(stage.b, filters, step * step_bytes, column, full);
            }
            const unsigned needed = step + 1 < tiles.steps ? chunks_of_step : tiles.last * chunks_of_product;
            gatherer.gather(stage, images, at, shape, pieces, needed);
            gatherer.advance();
        }
    }
    gatherer.show<0>();
}

// The ones of windows.
__device__ inline void count_ones(unsigned (&ones)[rows_of_writer], const Window (&windows)[rows_of_writer],
                                  const Operands& x)
{
    for (unsigned r = 0; r < x.shape.filter_height; ++r)
#pragma unroll 3  // whose loads are on their way together
        for (unsigned s = 0; s < x.shape.filter_width; ++s) {
            const Tap tap(x.shape, r, s);
#pragma unroll
            for (unsigned i = 0; i < rows_of_writer; ++i)
                if (windows[i].has(tap, x.shape)) ones[i] += x.ones[windows[i].pixel + tap.pixels];
        }
}

__device__ inline void write_notes(Shared& shared, const Tiles& tiles, const Operands& x
#if defined(OUTPUT_BITS)
                                   , const int* __restrict__ thresholds, const unsigned char* __restrict__ flip
#endif
)
{
    const unsigned writer = threadIdx.x - multiplying - gathering;
    const unsigned inside = x.borders.top * x.borders.across(x.shape) + x.borders.left;
    const unsigned kinds = x.borders.down(x.shape) * x.borders.across(x.shape);
    const int* const of_inside = x.addends + (Index)inside * x.pitch;
    static_assert(noted == 2, "the other note has the constants of the tile before");
    unsigned before = ~0u, known = ~0u;  // columns of whose filters the other note and this one have the constants
    Turn<noted> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x, turn.advance()) {
        Notes& notes = shared.notes[turn.at];
        unsigned row, column;
        tiles.find(i, row, column);
        wait(shared.read[turn.at], turn.parity ^ 1);
        if (writer == 0) notes.row = row, notes.column = column;
        Window windows[rows_of_writer];
        unsigned ones[rows_of_writer] = {};
#pragma unroll
        for (unsigned j = 0; j < rows_of_writer; ++j) {
            const unsigned r = writer + j * noting;
            const Pixel pixel = pixel_at(x.shape, row + r);
            windows[j] = Window(x.shape, pixel);
            const unsigned kind = x.borders.of_pixel(x.shape, pixel);
#if defined(OWN_COLUMNS)
            notes.own_columns[r] = kind == inside ? nullptr : x.addends + (Index)kind * x.pitch + column;
#elif TABLES > 1
            notes.table_of_row[r] = kind;
#endif
        }
        count_ones(ones, windows, x);
#pragma unroll
        for (unsigned j = 0; j < rows_of_writer; ++j) notes.of_rows[writer + j * noting] = -2 * (int)ones[j];
        for (unsigned c = writer; c < columns && known != column; c += noting) {
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
#pragma unroll 9
            for (unsigned table = 0; table < min((unsigned)TABLES, kinds); ++table)
                notes.of_columns[table][c] =
                    addend + (TABLES == 1 || table == inside ? 0 : x.addends[(Index)table * x.pitch + column + c]);
        }
        known = before, before = column;
        arrive(shared.written[turn.at]);
    }
}

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

#if defined(OUTPUT_BITS)
// The four pixels of a window of the pooling are neighbouring rows, whose words neighbouring quads of lanes have.
__device__ inline unsigned pooled(unsigned word)
{
#if defined(POOL_AND)
    word &= __shfl_xor_sync(all_lanes, word, 4);
    word &= __shfl_xor_sync(all_lanes, word, 8);
#elif defined(POOL_OR)
    word |= __shfl_xor_sync(all_lanes, word, 4);
    word |= __shfl_xor_sync(all_lanes, word, 8);
#endif
    return word;
}

__device__ inline void store_bits(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                                  const ConvShape& shape, Output* __restrict__ y)
{
    const unsigned words_of_pixel = divide_up(shape.filters, 32);
#pragma unroll
    for (unsigned set = 0; set < sets; ++set) {
        unsigned made[2];
        make_words(made, sums, notes, place, part, set);
        const unsigned at = word_of(set, place), word = notes.column / 32 + at;
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
            const unsigned pixel = notes.row + place.row(part) + 8 * r, of_pixel = pooled(made[r]);
            if (pixel < number_of_pixels(shape) && pixel % window == 0 && at < words_across && word < words_of_pixel)
                y[(Index)(pixel / window) * words_of_pixel + word] = of_pixel;
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(threads, 1)
wgmma(const uint4* __restrict__ images, const unsigned* __restrict__ ones, const __grid_constant__ TensorMap filters,
      const int* __restrict__ addends,
#if BOXES
      const __grid_constant__ TensorMap y,
#else
      Output* __restrict__ y,
#endif
      const __grid_constant__ ConvShape shape, const __grid_constant__ Borders borders,
      const __grid_constant__ Chunks chunks, unsigned bytes, unsigned pitch  // of a filter and of addends
#if defined(OUTPUT_BITS)
      , const int* __restrict__ thresholds, const unsigned char* __restrict__ flip
#endif
)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Operands x = {ones, addends, pitch, shape, borders};
    const Tiles tiles(number_of_pixels(shape), shape.filters, bytes);

    shared.begin(noting, fillers);
    let_later_launches_begin();
    wait_for_earlier_launches();

    const unsigned serving = threadIdx.x - multiplying;  // number of a serving thread
    if (threadIdx.x >= multiplying) {
#if defined(SETMAXNREG)
        give_registers<given>();
#endif
        if (serving < gathering)
            fill_stages(shared, tiles, images, filters, shape, chunks);
        else
            write_notes(shared, tiles, x
#if defined(OUTPUT_BITS)
                        , thresholds, flip
#endif
            );
        return;
    }
#if defined(SETMAXNREG)
    take_registers<taken>();
#endif
    const Place place;
#if BOXES
    unsigned box = 0;
#endif
    compute_tiles(shared, tiles, [&](unsigned part, const int (&sums)[sums_of_part], unsigned note) {
        const Notes& notes = shared.notes[note];
#if defined(OUTPUT_BITS)
        store_bits(sums, notes, place, part, shape, y);
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
