// A tile of C that warpgroups of sm_90a compute from lines of bits, whatever brings the lines: dot = of its row + of its
// column + 4 popc(row & column).
//
// A block computes tiles of ROWS x COLUMNS in steps of 128 bytes along k. Its last warpgroup serves: it copies the lines
// of A and B for a step to the next free stage of a ring, up to STAGES steps ahead, also into the next tile, and notes
// the tile's place and what its sums need. The other warpgroups, CONSUMERS of them, multiply: each its share of the rows
// of A by all columns of B.
//
//   -DROWS -DCOLUMNS -DSTAGES -DCONSUMERS
//   -DSPAN             bytes of a line in a box of a stage; a step is 128 / SPAN boxes. 128 if not given
//   -DGROUP            how many tiles lie below one another before the next column of tiles begins
//   -DOUTPUT_INT32 | -DOUTPUT_INT16 | -DOUTPUT_FLOAT16 | -DOUTPUT_FLOAT32
//                      c[i, j] = dot
//   -DSCALED           c[i, j] = scales[j] * dot, for floats
//   -DBOXES            how many boxes of C a warp has on their way through the map of C; 0: it stores by itself,
//                      which any n allows
//   -DOUTPUT_WORDS     bit (i, j) = (dot >= thresholds[j]) != flip[j]: bit j % 32 of c[j / 32, i]
//   -DOUTPUT_LINES     the same bits line by line: bit j % 32 of c[i, j / 32]
//   -DSETMAXNREG       the sums need registers of the serving warpgroup
//   -DOWN_COLUMNS      a row may have numbers of its own, which its columns add

#pragma once

#include "bmm/warp.cuh"
#include "warpgroup.cuh"

#if !defined(SPAN)
#define SPAN 128
#endif

enum : unsigned {
    rows = ROWS,
    columns = COLUMNS,
    stages = STAGES,
    consumers = CONSUMERS,
    span = SPAN,
    step_bytes = 128,
    step_bits = 8 * step_bytes,
    boxes_of_step = step_bytes / span,
    part_rows = 64,  // of a product
    parts = rows / (consumers * part_rows),
    multiplying = consumers * warpgroup_size,
    threads = multiplying + warpgroup_size,
    product_bytes = 32,  // of a line, 256 bits
    sums_of_part = columns / 2,
};
static_assert(rows % (consumers * part_rows) == 0, "every warpgroup multiplies as many rows, 64 at a time");

#if defined(OUTPUT_LINES) || defined(OUTPUT_WORDS)
#define OUTPUT_BITS
typedef unsigned Output;
#define BOXES 0
#elif defined(OUTPUT_INT16)
typedef short Output;
#elif defined(OUTPUT_FLOAT16)
typedef unsigned short Output;
#elif defined(OUTPUT_FLOAT32)
typedef float Output;
#else
typedef int Output;
#endif

struct Stage {
    unsigned char a[rows * step_bytes], b[columns * step_bytes];
};

// What the sums of a row need.
struct Row {
    int constant;
    const int* own_columns;  // null: those of all rows are enough
};

// The place of a tile, and what its sums need. For bits the columns' constants are less by the thresholds.
struct Notes {
    unsigned row, column;
    int of_rows[rows], of_columns[columns];
#if defined(SCALED)
    float scales[columns];
#elif defined(OUTPUT_BITS)
    unsigned flips[columns / 32];
#endif
#if defined(OWN_COLUMNS)
    const int* own_columns[rows];
#endif

    __device__ Row at(unsigned r) const
    {
#if defined(OWN_COLUMNS)
        return {of_rows[r], own_columns[r]};
#else
        return {of_rows[r], nullptr};
#endif
    }
};

enum : unsigned { noted = 2, box_rows = 16, box_columns = atom_bytes / sizeof(Output) };

struct alignas(atom) Box {
    unsigned char rows[box_rows * atom_bytes];
};

struct Shared {
    Stage stages[STAGES];
#if BOXES
    Box boxes[consumers * 4][BOXES];
#endif
    Barrier full[STAGES], empty[STAGES], written[noted], read[noted];
    Notes notes[noted];

    // Make the barriers; so many threads write a note.
    __device__ void begin(unsigned writers)
    {
        if (threadIdx.x == 0) {
            for (unsigned i = 0; i < STAGES; ++i) {
                make_barrier(full[i], 1);
                make_barrier(empty[i], consumers);
            }
            for (unsigned i = 0; i < noted; ++i) {
                make_barrier(written[i], writers);
                make_barrier(read[i], consumers * 4);
            }
            publish_barriers();
        }
        __syncthreads();
    }
};

// The tiles of C, GROUP below one another and then the next column of tiles, so that blocks share lines in L2.
struct Tiles {
    unsigned down, across, steps;

    __device__ Tiles(unsigned m, unsigned n, unsigned steps)
        : down((m - 1) / rows + 1), across((n - 1) / columns + 1), steps(steps)
    {
    }
    __device__ unsigned count() const { return down * across; }
    __device__ void find(unsigned i, unsigned& row, unsigned& column) const
    {
        const unsigned group = i / (GROUP * across), above = group * GROUP, in_group = i - above * across;
        const unsigned height = min((unsigned)GROUP, down - above);
        row = (above + in_group % height) * rows;
        column = in_group / height * columns;
    }
};

#if defined(OUTPUT_BITS)
// Within +-k, where dot products are: what a threshold is compared as, so that no difference leaves 32 bits.
__device__ inline int limit_of(int threshold, unsigned k) { return max(-(int)k, min(threshold, (int)k + 1)); }
#endif

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

// Where the bytes of product i of a step begin, in boxes of so many lines.
__device__ constexpr unsigned start_of_product(unsigned i, unsigned lines)
{
    return i * product_bytes / span * lines * span + i * product_bytes % span;
}

// The sums of a tile's rows of this warpgroup.
__device__ inline void multiply(int (&sums)[parts][sums_of_part], Shared& shared, Turn<stages>& turn, unsigned steps)
{
    const unsigned first_row = threadIdx.x / warpgroup_size * parts * part_rows;
    unsigned before = 0;
    for (unsigned step = 0; step < steps; ++step, turn.advance()) {
        const Stage& stage = shared.stages[turn.at];
        wait(shared.full[turn.at], turn.parity);
        const unsigned long long a = describe<span>(&stage.a[first_row * span], rows * span);
        const unsigned long long b = describe<span>(stage.b, columns * span);
        fence_registers();
#pragma unroll
        for (unsigned i = 0; i < step_bytes / product_bytes; ++i)
#pragma unroll
            for (unsigned part = 0; part < parts; ++part)
                multiply_add(sums[part], a + (part * part_rows * span + start_of_product(i, rows)) / 16,
                             b + start_of_product(i, columns) / 16, step > 0 || i > 0);
        commit_products();
        wait_for_products<1>();  // those of the step before have read their stage
        if (step > 0 && threadIdx.x % warpgroup_size == 0) arrive(shared.empty[before]);
        before = turn.at;
    }
    wait_for_products<0>();
    if (threadIdx.x % warpgroup_size == 0) arrive(shared.empty[before]);
}

// Where the sums of a thread lie in the rows of its part: the first pair, in the row 8 below the other half of them.
struct Place {
    unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    unsigned row = warp / 4 * parts * part_rows + warp % 4 * 16 + lane / 4, pair = lane % 4 * 2;
};

// The constants of a pair of columns, c and c + 1 of the tile, in a row.
__device__ inline int2 constants_of_pair(const Row& row, const Notes& notes, unsigned c)
{
    int2 of_pair = *reinterpret_cast<const int2*>(&notes.of_columns[c]);
    if (row.own_columns) {
        const int2 own = __ldg(reinterpret_cast<const int2*>(row.own_columns + c));
        of_pair.x += own.x;
        of_pair.y += own.y;
    }
    return of_pair;
}

// The dot product, or how far it is from the threshold. What lies between may pass the ends of 32 bits.
__device__ inline int total(int sum, int of_row, int of_column) { return (int)(4u * sum + (unsigned)of_row + of_column); }

#if defined(OUTPUT_BITS)
// Exchange four words of partial bits in a quad of lanes: lane q gets the bits of word q.
__device__ inline unsigned word_of_quad(const unsigned (&words)[4], unsigned q)
{
    const bool odd = q & 1, high = q & 2;
    const unsigned even_words = odd ? words[0] : words[1], kept = odd ? words[1] : words[0];
    const unsigned even_high = odd ? words[2] : words[3], kept_high = odd ? words[3] : words[2];
    const unsigned low = kept | __shfl_xor_sync(all_lanes, even_words, 1);
    const unsigned up = kept_high | __shfl_xor_sync(all_lanes, even_high, 1);
    return (high ? up : low) | __shfl_xor_sync(all_lanes, high ? low : up, 2);
}

// A thread makes words of its two rows in sets of four, one for each lane of a quad. In lines the two sets of 256 columns
// interleave: a lane stores two neighbours, and a quad 32 bytes of a row.
enum : unsigned { set_words = 4, sets = (columns / 32 + set_words - 1) / set_words };
#if defined(OUTPUT_LINES)
enum : bool { interleaved = sets == 2 };
#else
enum : bool { interleaved = false };
#endif

__device__ inline unsigned word_of(unsigned set, unsigned member)
{
    return interleaved ? member * sets + set : set * set_words + member;
}

// The words of a set in two rows, which this lane stores; 0 past the tile.
__device__ inline void make_words(unsigned (&made)[2], const int (&sums)[sums_of_part], unsigned set,
                                  const Row (&of_rows)[2], const Notes& notes, const Place& place)
{
    unsigned words[2][set_words] = {};
#pragma unroll
    for (unsigned j = 0; j < 4 * set_words; ++j) {  // eight columns, of which this lane has a pair
        const unsigned first = word_of(set, j / 4) * 32 + j % 4 * 8;
        if (first >= columns) continue;
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            const Row& row = of_rows[half];
            const int2 of_pair = constants_of_pair(row, notes, first + place.pair);
            const int x_margin = total(sums[first / 2 + 2 * half], row.constant, of_pair.x);
            const int y_margin = total(sums[first / 2 + 2 * half + 1], row.constant, of_pair.y);
            words[half][j / 4] |= (~(unsigned)x_margin >> 31 | ~(unsigned)y_margin >> 31 << 1) << j % 4 * 8;
        }
    }
    const unsigned q = place.lane % 4, at = word_of(set, q);
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
#pragma unroll
        for (unsigned w = 0; w < set_words; ++w) words[half][w] <<= place.pair;
        made[half] = word_of_quad(words[half], q) ^ (at < columns / 32 ? notes.flips[at] : 0);
    }
}

// The words of a part's two rows of this thread.
__device__ inline void make_words(unsigned (&made)[sets][2], const int (&sums)[sums_of_part], const Notes& notes,
                                  const Place& place, unsigned row)
{
    const Row of_rows[2] = {notes.at(row), notes.at(row + 8)};
#pragma unroll
    for (unsigned set = 0; set < sets; ++set) make_words(made[set], sums, set, of_rows, notes, place);
}

#if defined(OUTPUT_LINES)
// Store words of a row in a line of C of so many words.
__device__ inline void store_words(const unsigned (&made)[sets][2], unsigned half, const Notes& notes,
                                   const Place& place, Output* __restrict__ line, unsigned words_of_line)
{
    const unsigned first = notes.column / 32, word = first + word_of(0, place.lane % 4);
    if (interleaved && words_of_line % 2 == 0) {
        if (word < words_of_line)
            *reinterpret_cast<uint2*>(&line[word]) = make_uint2(made[0][half], made[sets - 1][half]);
        return;
    }
#pragma unroll
    for (unsigned set = 0; set < sets; ++set) {
        const unsigned at = word_of(set, place.lane % 4);
        if (at < columns / 32 && first + at < words_of_line) line[first + at] = made[set][half];
    }
}
#endif
#else
__device__ inline Output output_of(int dot, float scale)
{
#if defined(SCALED)
    const float value = (float)dot * scale;
#else
    const int value = dot;
#endif
#if defined(OUTPUT_FLOAT16)
    unsigned short rounded;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"((float)value));
    return rounded;
#else
    return (Output)value;
#endif
}

// The outputs of a pair of sums, of columns c and c + 1 of the tile.
__device__ inline void finish(Output (&pair)[2], int x, int y, const Row& row, const Notes& notes, unsigned c)
{
    const int2 of_pair = constants_of_pair(row, notes, c);
#if defined(SCALED)
    const float2 scales = *reinterpret_cast<const float2*>(&notes.scales[c]);
#else
    const float2 scales = {};
#endif
    pair[0] = output_of(total(x, row.constant, of_pair.x), scales.x);
    pair[1] = output_of(total(y, row.constant, of_pair.y), scales.y);
}

struct alignas(2 * sizeof(Output)) Pair {
    Output x, y;
};

#if BOXES
// Store a part's rows of this warp, box after box: 16 rows of 128 bytes, swizzled as the map of C says.
__device__ inline void store_boxes(const int (&sums)[sums_of_part], Box (&boxes)[BOXES], unsigned& turn,
                                   const Notes& notes, const Place& place, unsigned row, const TensorMap& c)
{
    const Row of_rows[2] = {notes.at(row), notes.at(row + 8)};
#pragma unroll
    for (unsigned first = 0; first < columns; first += box_columns) {
        Box& box = boxes[turn++ % BOXES];
        if (place.lane == 0) wait_for_reads<BOXES - 1>();
        __syncwarp();
#pragma unroll
        for (unsigned j = 0; j < box_columns / 8; ++j)
#pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const unsigned sum = first / 2 + 4 * j + 2 * half, at = (8 * j + place.pair) * sizeof(Output);
                const unsigned box_row = place.lane / 4 + 8 * half;
                Output pair[2];
                finish(pair, sums[sum], sums[sum + 1], of_rows[half], notes, first + 8 * j + place.pair);
                unsigned char* const line = &box.rows[box_row * atom_bytes];
                *reinterpret_cast<Pair*>(line + ((at / chunk ^ box_row % atom_rows) * chunk | at % chunk)) =
                    Pair{pair[0], pair[1]};
            }
        show_to_copies();
        __syncwarp();
        if (place.lane == 0)
            store_box(c, box.rows, notes.column + first, notes.row + row - place.lane / 4);
    }
}
#else
// Store a part's rows of this warp, pair by pair: a quad of lanes fills a sector of 32 bytes.
__device__ inline void store_pairs(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned row,
                                   Output* __restrict__ c, unsigned m, unsigned n)
{
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
        if (notes.row + row + 8 * half >= m) continue;
        const Row of_row = notes.at(row + 8 * half);
        Output* const line = c + (Index)(notes.row + row + 8 * half) * n;
#pragma unroll
        for (unsigned j = 0; j < columns / 8; ++j) {
            const unsigned column = notes.column + 8 * j + place.pair;
            Output pair[2];
            finish(pair, sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1], of_row, notes, 8 * j + place.pair);
            if (n % 2 == 0 && column < n) *reinterpret_cast<Pair*>(line + column) = Pair{pair[0], pair[1]};
            if (n % 2 != 0 && column < n) line[column] = pair[0];
            if (n % 2 != 0 && column + 1 < n) line[column + 1] = pair[1];
        }
    }
}
#endif
#endif
