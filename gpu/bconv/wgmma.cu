// Bit convolution on the warpgroups of sm_90a, for any geometry.
//
// It is a product of matrices (bmm/warpgroup_tile.cuh, which has the macros of tiles): a row is a pixel of the output, a
// column a filter, and k runs over chunks of 16 bytes, which are 128 channels of a tap: taps one after another, and in each
// its pieces of channels. Filters are lines of such chunks, and come through a tensor map. The matrix of windows is never
// built: the copy engine brings its rows from the images, or two warps gather them, and zeros for taps outside the image. With `a` the window and `b` the filter, their taps inside counted as `taps`, and the filter's
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
//   -DIM2COL=n               windows come through an im2col map, n bytes of a tap at a time: 128, 64 or 32; if not given,
//                            threads gather them
//   -DTABLES=n               at least as many as there are kinds of windows, whose addends a note has
//   -DOWN_COLUMNS            or too many of them: rows along the border read theirs

#if defined(IM2COL)
#include "bconv/im2col.cuh"
#else
#include "bconv/gathered.cuh"
#endif
#include "bconv/notes.cuh"

enum : unsigned {
    noting = warpgroup_size - bringing,
    rows_of_writer = (rows - 1) / noting + 1,
    given = parts * sums_of_part > 128 ? 56 : 104,  // registers of a serving thread, of the 504 that three threads have
    taken = (504 - given) / 2,
};

// ---- the serving warps ----------------------------------------------------------------------------------------------

// The ones of windows, whose taps are read several at a time.
__device__ inline void count_ones(unsigned (&ones)[rows_of_writer], const Window (&windows)[rows_of_writer],
                                  const unsigned* of_pixels, const ConvShape& shape)
{
    const unsigned taps = shape.filter_height * shape.filter_width;
    unsigned r = 0, s = 0;
#pragma unroll 1
    for (unsigned first = 0; first < taps; first += at_once) {
        unsigned found[at_once][rows_of_writer];
#pragma unroll
        for (unsigned t = 0; t < at_once; ++t) {
            const Tap tap(shape, r, s);
#pragma unroll
            for (unsigned i = 0; i < rows_of_writer; ++i)
                found[t][i] = first + t < taps && windows[i].has(tap, shape) ? of_pixels[windows[i].pixel + tap.pixels] : 0;
            if (++s == shape.filter_width) s = 0, ++r;
        }
#pragma unroll
        for (unsigned t = 0; t < at_once; ++t)
#pragma unroll
            for (unsigned i = 0; i < rows_of_writer; ++i) ones[i] += found[t][i];
    }
}

__device__ inline void write_notes(Shared& shared, const Tiles& tiles, const Addends& x, const unsigned* ones)
{
    const unsigned writer = threadIdx.x - multiplying - bringing;
    const unsigned inside = x.borders.top * x.borders.across(x.shape) + x.borders.left;
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
        unsigned of_rows[rows_of_writer] = {};
#pragma unroll
        for (unsigned j = 0; j < rows_of_writer; ++j) {
            const unsigned r = writer + j * noting;  // in a tile of few rows perhaps past it
            const Pixel pixel = pixel_at(x.shape, row + r);
            windows[j] = Window(x.shape, pixel);
            const unsigned kind = x.borders.of_pixel(x.shape, pixel);
            if (r >= rows) continue;
#if defined(OWN_COLUMNS)
            notes.own_columns[r] = kind == inside ? nullptr : x.of_kinds + (Index)kind * x.pitch + column;
#elif TABLES > 1
            notes.table_of_row[r] = kind;
#endif
        }
        count_ones(of_rows, windows, ones, x.shape);
#pragma unroll
        for (unsigned j = 0; j < rows_of_writer; ++j)
            if (writer + j * noting < rows) notes.of_rows[writer + j * noting] = -2 * (int)of_rows[j];
        if (known != column) write_columns(notes, x, column, writer, noting);
        known = before, before = column;
        arrive(shared.written[turn.at]);
    }
}

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

#if defined(OUTPUT_BITS)
__device__ inline void store_bits(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                                  const ConvShape& shape, Output* y)
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
wgmma(
#if defined(IM2COL)
      const __grid_constant__ TensorMap images,
#else
      const uint4* images,
#endif
      const unsigned* ones, const __grid_constant__ TensorMap filters, const int* addends,
#if BOXES
      const __grid_constant__ TensorMap y,
#else
      Output* y,
#endif
      const __grid_constant__ ConvShape shape, const __grid_constant__ Borders borders,
#if !defined(IM2COL)
      const __grid_constant__ Chunks chunks,
#endif
      unsigned bytes, unsigned pitch  // of a filter and of addends
#if defined(OUTPUT_BITS)
      , const int* thresholds, const unsigned char* flip
#endif
)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Addends x = {addends, pitch, shape, borders
#if defined(OUTPUT_BITS)
                       , thresholds, flip
#endif
    };
    const Tiles tiles(number_of_pixels(shape), shape.filters, bytes);

    shared.begin(noting, fillers);
    let_later_launches_begin();
    wait_for_earlier_launches();

    const unsigned serving = threadIdx.x - multiplying;  // number of a serving thread
    if (threadIdx.x >= multiplying) {
#if defined(SETMAXNREG)
        give_registers<given>();
#endif
        if (serving < bringing)
            fill_stages(shared, tiles, images, filters, shape
#if !defined(IM2COL)
                        , chunks
#endif
            );
        else
            write_notes(shared, tiles, x, ones);
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
