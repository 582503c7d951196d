// A tile of C that warpgroups of sm_90a compute from lines of bits, whatever brings the lines: dot = of its row + of its
// column + 4 popc(row & column).
//
// A block computes tiles of ROWS x COLUMNS in steps of 128 bytes along k. Its last warpgroup serves: it copies the lines
// of A and B for a step to the next free stage of a ring, up to STAGES steps ahead, also into the next tile, and notes
// the tile's place and what its sums need. The other warpgroups, CONSUMERS of them in TEAMS, multiply. Teams take turns
// at tiles: while one multiplies, the sums of the other one leave. In a team each warpgroup has its share of the rows.
//
//   -DROWS -DCOLUMNS -DSTAGES -DCONSUMERS -DTEAMS
//   -DGROUP            how many tiles lie below one another before the next column of tiles begins
//   -DOUTPUT_INT32 | -DOUTPUT_INT16 | -DOUTPUT_FLOAT16 | -DOUTPUT_FLOAT32
//                      c[i, j] = dot
//   -DSCALED           c[i, j] = scales[j] * dot, for floats
//   -DBOXES            how many boxes of C a warp has on their way through the map of C; 0: it stores by itself,
//                      which any n allows
//   -DSPLIT_K          c[i, j] += the part of dot that a share of k has, int32; C was set to 0 before
//   -DOUTPUT_WORDS     bit (i, j) = (dot >= thresholds[j]) != flip[j]: bit j % 32 of c[j / 32, i]
//   -DOUTPUT_LINES     the same bits line by line: bit j % 32 of c[i, j / 32]
//   -DSETMAXNREG       the sums need registers of the serving warpgroup
//   -DGATHERED         threads copy lines of A, and not the copy engine
//   -DPIECE            bytes of a line of A that lie together, before those of the next line: 128, 64 or 32. 128 if not given
//   -DTABLES           how many tables of the columns' constants a note has, of which each row names one. 1 if not given
//   -DOWN_COLUMNS      a row may have numbers of its own in global memory, which its columns add
//   -DADDED_BITS       beside int16 there are bits of sums, whose thresholds a note has

#pragma once

#include "bmm/sums.cuh"
#include "warpgroup.cuh"

#if !defined(TABLES)
#define TABLES 1
#endif
#if !defined(PIECE)
#define PIECE 128
#endif

enum : unsigned {
    rows = ROWS,
    columns = COLUMNS,
    stages = STAGES,
    consumers = CONSUMERS,
    teams = TEAMS,
    members = consumers / teams,  // warpgroups of a team
    step_bytes = 128,
    part_rows = 64,  // of a product
    parts = rows / (members * part_rows),
    multiplying = consumers * warpgroup_size,
    threads = multiplying + warpgroup_size,
    product_bytes = 32,  // of a line, 256 bits
    products_of_step = step_bytes / product_bytes,
    piece_bytes = PIECE,
    sums_of_part = columns / 2,
};
static_assert(consumers % teams == 0 && rows % (members * part_rows) == 0, "warpgroups multiply 64 rows at a time");

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
#elif defined(ADDED_BITS)
    int thresholds[columns];
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
    Barrier full[STAGES], empty[STAGES], written[noted], read[noted], turns[TEAMS];
    Notes notes[noted];

    // Make the barriers; so many threads write a note, and so many arrive when a stage is full.
    __device__ void begin(unsigned writers, unsigned fillers = 1)
    {
        if (threadIdx.x == 0) {
            for (unsigned i = 0; i < STAGES; ++i) {
                make_barrier(full[i], fillers);
                make_barrier(empty[i], members);
            }
            for (unsigned i = 0; i < noted; ++i) {
                make_barrier(written[i], writers);
                make_barrier(read[i], members * 4);
            }
            for (unsigned i = 0; i < TEAMS; ++i) make_barrier(turns[i], members);
            publish_barriers();
        }
        __syncthreads();
    }
};

// The tiles of C, GROUP below one another and then the next column of tiles, so that blocks share lines in L2; and the
// steps of each, the last of them with fewer products.
struct Tiles {
    unsigned down, across, steps, last, shares = 1;

    // C is m x n, and lines have so many bytes.
    __device__ Tiles(unsigned m, unsigned n, unsigned bytes)
        : down((m - 1) / rows + 1), across((n - 1) / columns + 1), steps((bytes - 1) / step_bytes + 1),
          last((bytes - 1) % step_bytes / product_bytes + 1)
    {
    }
    // Make tiles of so many shares of k each; the last one may reach past its end.
    __device__ void split(unsigned into) { shares = into, steps = (steps - 1) / into + 1, last = products_of_step; }

    __device__ unsigned count() const { return down * across * shares; }
    __device__ unsigned first_step(unsigned i) const
    {
#if defined(SPLIT_K)
        return i / (down * across) * steps;
#else
        return 0;
#endif
    }
    __device__ void find(unsigned i, unsigned& row, unsigned& column) const
    {
#if defined(SPLIT_K)
        i %= down * across;
#endif
        const unsigned group = i / (GROUP * across), above = group * GROUP, in_group = i - above * across;
        const unsigned height = GROUP == 1 ? 1 : min((unsigned)GROUP, down - above);
        row = (above + in_group % height) * rows;
        column = in_group / height * columns;
    }
};

#if defined(OUTPUT_BITS)
// Within +-k, where dot products are: what a threshold is compared as, so that no difference leaves 32 bits.
__device__ inline int limit_of(int threshold, unsigned k) { return max(-(int)k, min(threshold, (int)k + 1)); }
#endif

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

// Ask for product i of a step, of 256 bits along k.
__device__ inline void multiply_bits(int (&sums)[parts][sums_of_part], const Stage& stage, unsigned i, bool add)
{
    const unsigned first_row = threadIdx.x / warpgroup_size % members * parts * part_rows;
    const unsigned before = i * product_bytes / piece_bytes * rows * piece_bytes + i * product_bytes % piece_bytes;
    const unsigned long long a = describe<piece_bytes>(&stage.a[first_row * piece_bytes]) + before / chunk;
    const unsigned long long b = describe<step_bytes>(stage.b) + i * product_bytes / chunk;
#pragma unroll
    for (unsigned part = 0; part < parts; ++part) multiply_add(sums[part], a + part * part_rows * piece_bytes / chunk, b, add);
}

// Wait until the lines of a step have come. What threads have copied is not yet in order before products.
__device__ inline void wait_for_lines(Barrier& full, unsigned parity)
{
    wait(full, parity);
#if defined(GATHERED)
    show_to_copies();
#endif
}

// The sums of a tile's rows of this warpgroup. It lets the next team begin when its own stages are all full: a barrier
// says no more than whether the last phase is complete, so that no team may wait for stages before it is their turn.
__device__ inline void multiply(int (&sums)[parts][sums_of_part], Shared& shared, Turn<stages>& turn, const Tiles& tiles,
                                Barrier& next)
{
    Turn<stages> oldest = turn;  // of the stages that are not free again
    const auto release = [&] {
        if (threadIdx.x % warpgroup_size == 0) arrive(shared.empty[oldest.at]);
        oldest.advance();
    };
    for (unsigned step = 0; step + 1 < tiles.steps; ++step, turn.advance()) {
        wait_for_lines(shared.full[turn.at], turn.parity);
        fence_registers();
#pragma unroll
        for (unsigned i = 0; i < products_of_step; ++i) multiply_bits(sums, shared.stages[turn.at], i, step > 0 || i > 0);
        commit_products();
        wait_for_products<1>();  // those of the step before have read their stage
        if (step > 0) release();
    }
    wait_for_lines(shared.full[turn.at], turn.parity);
    fence_registers();
    multiply_bits(sums, shared.stages[turn.at], 0, tiles.steps > 1);
    commit_products();
    wait_for_products<1>();
    if (tiles.steps > 1) release();
#pragma unroll
    for (unsigned i = 1; i < products_of_step; ++i)
        if (i < tiles.last) multiply_bits(sums, shared.stages[turn.at], i, true);
    commit_products();
    if (teams > 1 && threadIdx.x % warpgroup_size == 0) arrive(next);
    wait_for_products<0>();
    release();
    turn.advance();
#pragma unroll
    for (unsigned part = 0; part < parts; ++part) hold(sums[part]);
}

// The tiles of this team. store(part, sums, note) takes the sums of 64 rows, with the number of their note.
template <class Store> __device__ inline void compute_tiles(Shared& shared, const Tiles& tiles, Store store)
{
    const unsigned team = threadIdx.x / (members * warpgroup_size);
    Turn<stages> turn;
    Turn<noted> note;
    turn.advance(team * tiles.steps), note.advance(team);
    unsigned parity = team == 0;  // the first team begins at once
    for (unsigned i = blockIdx.x + team * gridDim.x; i < tiles.count(); i += teams * gridDim.x) {
        int sums[parts][sums_of_part];
        if (teams > 1) wait(shared.turns[team], parity), parity ^= 1;
        multiply(sums, shared, turn, tiles, shared.turns[(team + 1) % teams]);
        wait(shared.written[note.at], note.parity);
#pragma unroll
        for (unsigned part = 0; part < parts; ++part) store(part, sums[part], note.at);
        __syncwarp();
        if (threadIdx.x % warp_size == 0) arrive(shared.read[note.at]);
        turn.advance((teams - 1) * tiles.steps), note.advance(teams);
    }
}

// ---- what leaves ----------------------------------------------------------------------------------------------------

// Where the sums of a thread lie in the rows of its part: the first pair, in the row 8 below the other half of them.
struct Place {
    unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size, pair = lane % 4 * 2;
    unsigned first_row = warp / 4 % members * parts * part_rows + warp % 4 * 16 + lane / 4;

    __device__ unsigned row(unsigned part) const { return first_row + part * part_rows; }
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
__device__ inline int total(int sum, int of_row, int of_column) { return (int)(per_common * sum + (unsigned)of_row + of_column); }

#if defined(OUTPUT_BITS) || defined(ADDED_BITS)
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

// A thread makes words of its two rows in sets of four, one for each lane of a quad.
enum : unsigned { set_words = 4, words_across = columns / 32, sets = (words_across + set_words - 1) / set_words };

// Which word of the tile is this lane's of a set; past the tile there is none.
__device__ inline unsigned word_of(unsigned set, const Place& place) { return set * set_words + place.lane % 4; }

// Put the signs of a pair of differences below the bits of eight columns after theirs. A sign comes with six more bits of
// its number, which differ from the sign in no difference below 2^25, and are cleared later.
__device__ inline void add_signs(unsigned& word, unsigned x, unsigned y)
{
    word = __funnelshift_l(x, __funnelshift_l(y, word, 7), 1);
}

// The words of a set in two rows, one for each lane of a quad, of the signs that each lane has; 0 past the tile.
__device__ inline void exchange_words(unsigned (&made)[2], unsigned (&words)[2][set_words], const Notes& notes,
                                      const Place& place, unsigned set)
{
    const unsigned at = word_of(set, place);
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
#pragma unroll
        for (unsigned w = 0; w < set_words; ++w) words[r][w] = (words[r][w] & 0x03030303) << place.pair;
        made[r] = word_of_quad(words[r], place.lane % 4);
        if (at < words_across) made[r] = ~(made[r] ^ notes.flips[at]);
    }
}
#endif

#if defined(OUTPUT_BITS)
// The words of a set in two rows, one for each lane of a quad; 0 past the tile.
__device__ inline void make_words(unsigned (&made)[2], const int (&sums)[sums_of_part], const Notes& notes,
                                  const Place& place, unsigned part, unsigned set)
{
    const Row of_rows[2] = {notes.at(place.row(part)), notes.at(place.row(part) + 8)};
    unsigned words[2][set_words] = {};
#pragma unroll
    for (unsigned w = 0; w < min(set_words, words_across - set * set_words); ++w) {
#pragma unroll
        for (unsigned j = 4; j-- > 0;)  // eight columns, of which this lane has a pair
#pragma unroll
            for (unsigned r = 0; r < 2; ++r) {
                const unsigned column = 32 * (set * set_words + w) + 8 * j;
                const int2 of_pair = constants_of_pair(of_rows[r], column + place.pair);
                const unsigned x = total(sums[column / 2 + 2 * r], of_rows[r].constant, of_pair.x);
                const unsigned y = total(sums[column / 2 + 2 * r + 1], of_rows[r].constant, of_pair.y);
                add_signs(words[r][w], x, y);
            }
        if (parts * sums_of_part > 128) __syncwarp();  // keeps constants of later words out of registers, which are few
    }
    exchange_words(made, words, notes, place, set);
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
// Store a part's rows of this warp, box after box: 16 rows of 128 bytes, swizzled as the map of C says. send(box, column)
// begins the copy of columns of the tile, by one thread.
template <class Send>
__device__ inline void store_boxes(const int (&sums)[sums_of_part], Box (&boxes)[BOXES], unsigned& turn,
                                   const Notes& notes, const Place& place, unsigned part, Send send)
{
    const unsigned row = place.row(part);
    const Row of_rows[2] = {notes.at(row), notes.at(row + 8)};
#pragma unroll
    for (unsigned first = 0; first < columns; first += box_columns) {
        Box& box = boxes[turn++ % BOXES];
        if (place.lane == 0) wait_for_reads<BOXES - 1>();
        __syncwarp();
#pragma unroll
        for (unsigned j = 0; j < box_columns / 8; ++j)
#pragma unroll
            for (unsigned r = 0; r < 2; ++r) {
                const unsigned sum = first / 2 + 4 * j + 2 * r, at = (8 * j + place.pair) * sizeof(Output);
                const unsigned box_row = place.lane / 4 + 8 * r;
                Output pair[2];
                finish(pair, sums[sum], sums[sum + 1], of_rows[r], notes, first + 8 * j + place.pair);
                unsigned char* const line = &box.rows[box_row * atom_bytes];
                *reinterpret_cast<Pair*>(line + ((at / chunk ^ box_row % atom_rows) * chunk | at % chunk)) =
                    Pair{pair[0], pair[1]};
            }
        show_to_copies();
        __syncwarp();
        if (place.lane == 0) send(box, first);
    }
}

// The same for a matrix C.
__device__ inline void store_boxes(const int (&sums)[sums_of_part], Box (&boxes)[BOXES], unsigned& turn,
                                   const Notes& notes, const Place& place, unsigned part, const TensorMap& c)
{
    store_boxes(sums, boxes, turn, notes, place, part, [&](const Box& box, unsigned first) {
#if defined(SPLIT_K)
        add_box(c, box.rows, notes.column + first, notes.row + place.row(part) - place.lane / 4);
#else
        store_box(c, box.rows, notes.column + first, notes.row + place.row(part) - place.lane / 4);
#endif
    });
}
#else
// Store a row of this thread, of a line of C: a quad of lanes fills a sector of 32 bytes.
__device__ inline void store_line(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                                  unsigned r, Output* line, unsigned n)
{
    const Row of_row = notes.at(place.row(part) + 8 * r);
#pragma unroll
    for (unsigned j = 0; j < columns / 8; ++j) {
        const unsigned of_tile = 8 * j + place.pair, column = notes.column + of_tile;
        Output pair[2];
        finish(pair, sums[4 * j + 2 * r], sums[4 * j + 2 * r + 1], of_row, notes, of_tile);
#if defined(SPLIT_K)
        if (column < n) atomicAdd(&line[column], pair[0]);
        if (column + 1 < n) atomicAdd(&line[column + 1], pair[1]);
#else
        if (n % 2 == 0 && column < n) *reinterpret_cast<Pair*>(line + column) = Pair{pair[0], pair[1]};
        if (n % 2 != 0 && column < n) line[column] = pair[0];
        if (n % 2 != 0 && column + 1 < n) line[column + 1] = pair[1];
#endif
    }
}

// Store a part's rows of this warp.
__device__ inline void store_pairs(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                                   Output* __restrict__ c, unsigned m, unsigned n)
{
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
        const unsigned row = notes.row + place.row(part) + 8 * r;
        if (row < m) store_line(sums, notes, place, part, r, c + (Index)row * n, n);
    }
}
#endif
#endif
