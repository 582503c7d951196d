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
//   -DTABLES           how many tables of the columns' constants a note has, of which each row names one. 1 if not given
//   -DOWN_COLUMNS      a row may have numbers of its own in global memory, which its columns add
//
// A warpgroup has its sums in two halves if they are many: of its rows if it has 128, else of its 256 columns. The first
// half runs some steps ahead of the second one into the next tile: while tensor cores multiply for one half, the other
// one's sums leave.

#pragma once

#include "bmm/warp.cuh"
#include "warpgroup.cuh"

#if !defined(SPAN)
#define SPAN 128
#endif
#if !defined(TABLES)
#define TABLES 1
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
    halves = parts == 2 || columns == 256 ? 2 : 1,
    half_columns = parts == 2 ? columns : columns / halves,
    sums_of_half = half_columns / 2,
    leading = halves == 2 ? 2 : 0,  // steps by which the first half is ahead
};
static_assert(rows % (consumers * part_rows) == 0, "every warpgroup multiplies as many rows, 64 at a time");
static_assert(parts <= 2, "a part is a half of the rows");

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
    const int* of_columns;
#if defined(OWN_COLUMNS)
    const int* own_columns;  // null: those of all rows are enough
#endif
};

// The place of a tile, and what its sums need. For bits the columns' constants are less by the thresholds. Tables lie apart
// by banks, so that neighbouring rows can read several at once.
enum : unsigned { table_pitch = columns + (TABLES > 1 ? 8 : 0) };
struct Notes {
    unsigned row, column;
    int of_rows[rows], of_columns[TABLES][table_pitch];
#if defined(SCALED)
    float scales[columns];
#elif defined(OUTPUT_BITS)
    unsigned flips[columns / 32];
#endif
#if defined(OWN_COLUMNS)
    const int* own_columns[rows];
#elif TABLES > 1
    unsigned table_of_row[rows];
#endif

    __device__ Row at(unsigned r) const
    {
#if defined(OWN_COLUMNS)
        return {of_rows[r], of_columns[0], own_columns[r]};
#elif TABLES > 1
        return {of_rows[r], of_columns[table_of_row[r]]};
#else
        return {of_rows[r], of_columns[0]};
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

// The sums of a half, or with `add` more of them, from one stage.
__device__ inline void multiply_half(int (&sums)[sums_of_half], const Stage& stage, unsigned half, bool add)
{
    const unsigned row = threadIdx.x / warpgroup_size * parts * part_rows + (parts == 2 ? half * part_rows : 0);
    const unsigned column = parts == 2 ? 0 : half * half_columns;
    const unsigned long long a = describe<span>(&stage.a[row * span], rows * span);
    const unsigned long long b = describe<span>(&stage.b[column * span], columns * span);
    fence_registers();
#pragma unroll
    for (unsigned i = 0; i < step_bytes / product_bytes; ++i)
        multiply_add(sums, a + start_of_product(i, rows) / 16, b + start_of_product(i, columns) / 16, add || i > 0);
}

// The same of all halves.
__device__ inline void multiply(int (&sums)[halves][sums_of_half], const Stage& stage, bool add)
{
    if constexpr (halves == 1) {
        multiply_half(sums[0], stage, 0, add);
    } else {
        const unsigned first_row = threadIdx.x / warpgroup_size * parts * part_rows;
        const unsigned long long a = describe<span>(&stage.a[first_row * span], rows * span);
        const unsigned long long b = describe<span>(stage.b, columns * span);
        fence_registers();
#pragma unroll
        for (unsigned i = 0; i < step_bytes / product_bytes; ++i) {
            const unsigned long long of_a = a + start_of_product(i, rows) / 16, of_b = b + start_of_product(i, columns) / 16;
            multiply_add(sums[0], of_a, of_b, true);
            multiply_add(sums[halves - 1], of_a + (parts == 2 ? part_rows * span / 16 : 0),
                         of_b + (parts == 2 ? 0 : half_columns * span / 16), true);
        }
    }
}

// A multiplying warpgroup on its way through the stages of a block's tiles.
struct Multiplier {
    Shared& shared;
    const unsigned steps, lead = min((unsigned)leading, steps);
    int sums[halves][sums_of_half];
    Turn<stages> turn;
    Turn<noted> note;
    unsigned before = 0;  // the stage of the step before

    __device__ Multiplier(Shared& shared, unsigned steps) : shared(shared), steps(steps) {}

    __device__ void wait_for_stage(const Turn<stages>& at) const { wait(shared.full[at.at], at.parity); }

    __device__ void release() const
    {
        if (threadIdx.x % warpgroup_size == 0) arrive(shared.empty[before]);
    }

    // All products of the step are asked for, and those of the one before have read their stage.
    __device__ void advance(bool is_first)
    {
        commit_products();
        wait_for_products<1>();
        if (!is_first) release();
        before = turn.at, turn.advance();
    }

    // The first steps of the first half.
    __device__ void begin()
    {
        Turn<stages> ahead = turn;
        for (unsigned step = 0; step < lead; ++step, ahead.advance()) {
            wait_for_stage(ahead);
            multiply_half(sums[0], shared.stages[ahead.at], 0, step > 0);
        }
        commit_products();
    }

    // All else; the first half's sums are complete then.
    __device__ void go_on()
    {
        for (unsigned step = 0; step < lead; ++step) {
            multiply_half(sums[halves - 1], shared.stages[turn.at], 1, step > 0);
            advance(step == 0);
        }
        for (unsigned step = lead; step + halves - 1 < steps; ++step) {
            wait_for_stage(turn);
            multiply(sums, shared.stages[turn.at], step > 0);
            advance(step == 0);
        }
        if (halves == 2 && steps > lead) {
            wait_for_stage(turn);
            multiply_half(sums[0], shared.stages[turn.at], 0, true);
            commit_products();
            multiply_half(sums[halves - 1], shared.stages[turn.at], 1, true);
            commit_products();
            wait_for_products<2>();
            release();
            before = turn.at, turn.advance();
        }
        wait_for_products<halves - 1>();
    }

    template <class Store> __device__ void finish(unsigned half, Store& store)
    {
        if (half == 0) wait(shared.written[note.at], note.parity);
        if (half == halves - 1) release();
        hold(sums[half]);
        store(half, sums[half], note.at);
        if (half < halves - 1) return;
        __syncwarp();
        if (threadIdx.x % warp_size == 0) arrive(shared.read[note.at]);
        note.advance();
    }
};

// The tiles of this block. store(half, sums, note) takes the sums of a half, with the number of their note.
template <class Store> __device__ inline void compute_tiles(Shared& shared, const Tiles& tiles, Store store)
{
    Multiplier multiplier(shared, tiles.steps);
    if constexpr (halves == 1) {
        for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
            multiplier.go_on();
            multiplier.finish(0, store);
        }
    } else {
        multiplier.begin();
        for (unsigned i = blockIdx.x + gridDim.x; i < tiles.count(); i += gridDim.x) {
            multiplier.go_on();
            multiplier.finish(0, store);
            multiplier.begin();  // the next tile
            wait_for_products<1>();
            multiplier.finish(1, store);
        }
        multiplier.go_on();
        multiplier.finish(0, store);
        wait_for_products<0>();
        multiplier.finish(1, store);
    }
}

// ---- what leaves ----------------------------------------------------------------------------------------------------

// Where the sums of a thread lie in the rows of its part: the first pair, in the row 8 below the other half of them.
struct Place {
    unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    unsigned first_row = warp / 4 * parts * part_rows + warp % 4 * 16 + lane / 4, pair = lane % 4 * 2;

    // The first row and column of a half.
    __device__ unsigned row(unsigned half) const { return first_row + (parts == 2 ? half * part_rows : 0); }
    __device__ static unsigned column(unsigned half) { return parts == 2 ? 0 : half * half_columns; }
};

// The constants of a pair of columns, c and c + 1 of the tile, in a row.
__device__ inline int2 constants_of_pair(const Row& row, unsigned c)
{
    int2 of_pair = *reinterpret_cast<const int2*>(&row.of_columns[c]);
#if defined(OWN_COLUMNS)
    if (row.own_columns) {
        const int2 own = __ldg(reinterpret_cast<const int2*>(row.own_columns + c));
        of_pair.x += own.x;
        of_pair.y += own.y;
    }
#endif
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

enum : unsigned { words_of_half = half_columns / 32 };
static_assert(words_of_half <= 4, "a quad of lanes has a half's words of a row");

// The words of a half in two rows, one for each lane of a quad; 0 past the half. A sign is copied with six more bits of
// its number, which differ from the sign in no dot product of fewer than 2^24 elements, and are cleared.
__device__ inline void make_words(unsigned (&made)[2], const int (&sums)[sums_of_half], const Notes& notes,
                                  const Place& place, unsigned half)
{
    const Row of_rows[2] = {notes.at(place.row(half)), notes.at(place.row(half) + 8)};
    unsigned words[2][4] = {};
#pragma unroll
    for (unsigned w = 0; w < words_of_half; ++w)
#pragma unroll
        for (unsigned j = 4; j-- > 0;)  // eight columns, of which this lane has a pair
#pragma unroll
            for (unsigned r = 0; r < 2; ++r) {
                const int2 of_pair = constants_of_pair(of_rows[r], place.column(half) + 32 * w + 8 * j + place.pair);
                const unsigned sum = 16 * w + 4 * j + 2 * r;
                const unsigned x = total(sums[sum], of_rows[r].constant, of_pair.x);
                const unsigned y = total(sums[sum + 1], of_rows[r].constant, of_pair.y);
                words[r][w] = __funnelshift_l(x, __funnelshift_l(y, words[r][w], 7), 1);
            }
    const unsigned q = place.lane % 4;
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
#pragma unroll
        for (unsigned w = 0; w < words_of_half; ++w) words[r][w] = (words[r][w] & 0x03030303) << place.pair;
        made[r] = word_of_quad(words[r], q);
        if (q < words_of_half) made[r] = ~(made[r] ^ notes.flips[place.column(half) / 32 + q]);
    }
}
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
    const int2 of_pair = constants_of_pair(row, c);
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
// Store a half's rows of this warp, box after box: 16 rows of 128 bytes, swizzled as the map of C says.
__device__ inline void store_boxes(const int (&sums)[sums_of_half], Box (&boxes)[BOXES], unsigned& turn,
                                   const Notes& notes, const Place& place, unsigned half, const TensorMap& c)
{
    const unsigned row = place.row(half);
    const Row of_rows[2] = {notes.at(row), notes.at(row + 8)};
#pragma unroll
    for (unsigned first = 0; first < half_columns; first += box_columns) {
        Box& box = boxes[turn++ % BOXES];
        const unsigned column = place.column(half) + first;
        if (place.lane == 0) wait_for_reads<BOXES - 1>();
        __syncwarp();
#pragma unroll
        for (unsigned j = 0; j < box_columns / 8; ++j)
#pragma unroll
            for (unsigned r = 0; r < 2; ++r) {
                const unsigned sum = first / 2 + 4 * j + 2 * r, at = (8 * j + place.pair) * sizeof(Output);
                const unsigned box_row = place.lane / 4 + 8 * r;
                Output pair[2];
                finish(pair, sums[sum], sums[sum + 1], of_rows[r], notes, column + 8 * j + place.pair);
                unsigned char* const line = &box.rows[box_row * atom_bytes];
                *reinterpret_cast<Pair*>(line + ((at / chunk ^ box_row % atom_rows) * chunk | at % chunk)) =
                    Pair{pair[0], pair[1]};
            }
        show_to_copies();
        __syncwarp();
        if (place.lane == 0) store_box(c, box.rows, notes.column + column, notes.row + row - place.lane / 4);
    }
}
#else
// Store a half's rows of this warp, pair by pair: a quad of lanes fills a sector of 32 bytes.
__device__ inline void store_pairs(const int (&sums)[sums_of_half], const Notes& notes, const Place& place, unsigned half,
                                   Output* __restrict__ c, unsigned m, unsigned n)
{
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
        const unsigned row = place.row(half) + 8 * r;
        if (notes.row + row >= m) continue;
        const Row of_row = notes.at(row);
        Output* const line = c + (Index)(notes.row + row) * n;
#pragma unroll
        for (unsigned j = 0; j < half_columns / 8; ++j) {
            const unsigned of_tile = place.column(half) + 8 * j + place.pair, column = notes.column + of_tile;
            Output pair[2];
            finish(pair, sums[4 * j + 2 * r], sums[4 * j + 2 * r + 1], of_row, notes, of_tile);
            if (n % 2 == 0 && column < n) *reinterpret_cast<Pair*>(line + column) = Pair{pair[0], pair[1]};
            if (n % 2 != 0 && column < n) line[column] = pair[0];
            if (n % 2 != 0 && column + 1 < n) line[column + 1] = pair[1];
        }
    }
}
#endif
#endif
