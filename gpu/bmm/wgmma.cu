// The +-1 matrix product of lines of bits by the warpgroups of sm_90a: dot = k - 2 ones(row) - 2 ones(column) +
// 4 popc(row & column).
//
// A block computes tiles of C of ROWS x COLUMNS, every gridDim.x-th, in steps of 1024 bits along k. Its last warpgroup
// serves: one thread copies the lines of A and B for a step to the next free stage of a ring, up to STAGES steps ahead,
// also into the next tile; a warp writes down the tile's place and the constants of its rows and columns. The other
// warpgroups, CONSUMERS of them, multiply: each its share of the rows of A by all columns of B. To the copies, A and B
// are matrices of bytes. What lies outside arrives as zeros, adds nothing to popc(a & b), and so m, n and k are free.
//
//   -DROWS -DCOLUMNS -DSTAGES -DCONSUMERS
//   -DGROUP            how many tiles lie below one another before the next column of tiles begins
//   -DOUTPUT_INT32 | -DOUTPUT_INT16 | -DOUTPUT_FLOAT16 | -DOUTPUT_FLOAT32
//                      c[i, j] = dot
//   -DSCALED           c[i, j] = scales[j] * dot, for floats
//   -DBOXES            how many boxes of C a warp has on their way through the map of C; 0: it stores by itself,
//                      which any n allows
//   -DOUTPUT_WORDS     bit (i, j) = (dot >= thresholds[j]) != flip[j]: bit j % 32 of c[j / 32, i]
//   -DOUTPUT_LINES     the same bits in lines, each padded with zeros to 128 bits, as the next product's A: bit j % 32 of
//                      c[i, j / 32]; ones_of_c[i] += their ones


#include "warpgroup.cuh"

enum : unsigned {
    rows = ROWS,
    columns = COLUMNS,
    stages = STAGES,
    consumers = CONSUMERS,
    warp_size = 32,
    part_rows = 64,  // of a product
    parts = rows / (consumers * part_rows),
    threads = (consumers + 1) * warpgroup_size,
    step_bits = 8 * span,
    product_bytes = 32,  // of a row, 256 bits
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

typedef unsigned long long Index;

struct Stage {
    unsigned char a[rows * span], b[columns * span];
};

// The place of a tile, and what its sums need.
struct Notes {
    unsigned row, column;
    int of_rows[rows], of_columns[columns];
#if defined(SCALED)
    float scales[columns];
#elif defined(OUTPUT_BITS)
    unsigned flips[columns / 32];
#endif
};

enum : unsigned { noted = 2, box_rows = 16, box_columns = span / sizeof(Output) };

struct alignas(atom) Box {
    unsigned char rows[box_rows * span];
};

struct Shared {
    Stage stages[STAGES];
#if BOXES
    Box boxes[consumers * 4][BOXES];
#endif
    Barrier full[STAGES], empty[STAGES], written[noted], read[noted];
    Notes notes[noted];
};

struct Operands {
    const unsigned *__restrict__ ones_of_a, *__restrict__ ones_of_b;
    unsigned m, n, k;
};

// The tiles of C, GROUP below one another and then the next column of tiles, so that blocks share lines in L2.
struct Tiles {
    unsigned down, across, steps;

    __device__ Tiles(const Operands& x)
        : down((x.m - 1) / rows + 1), across((x.n - 1) / columns + 1), steps((x.k - 1) / step_bits + 1)
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

// ---- the serving warps ----------------------------------------------------------------------------------------------

__device__ inline void copy_stages(Shared& shared, const Tiles& tiles, const TensorMap& a, const TensorMap& b)
{
    Turn<stages> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
        unsigned row, column;
        tiles.find(i, row, column);
        for (unsigned step = 0; step < tiles.steps; ++step, turn.advance()) {
            Stage& stage = shared.stages[turn.at];
            wait(shared.empty[turn.at], turn.parity ^ 1);  // the first turn passes
            arrive_and_expect(shared.full[turn.at], sizeof(Stage));  // bytes outside of A and B count, too
            load_box(stage.a, a, step * span, row, shared.full[turn.at]);
            load_box(stage.b, b, step * span, column, shared.full[turn.at]);
        }
    }
}

#if defined(OUTPUT_BITS)
// The least 2 popc(a & b) - ones(row) for which the dot product reaches the threshold; beyond n one that none reaches.
// The dot product is within +-k.
__device__ inline int limit_of(int threshold, unsigned ones, unsigned k)
{
    const int least = max(-(int)k, min(threshold, (int)k + 1)) - (int)k;
    return (least + 1 >> 1) + (int)ones;
}
#endif

__device__ inline void write_notes(Shared& shared, const Tiles& tiles, const Operands& x
#if defined(OUTPUT_BITS)
                                   , const int* __restrict__ thresholds, const unsigned char* __restrict__ flip
#elif defined(SCALED)
                                   , const float* __restrict__ scales
#endif
)
{
    const unsigned lane = threadIdx.x % warp_size;
    Turn<noted> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x, turn.advance()) {
        Notes& notes = shared.notes[turn.at];
        unsigned row, column;
        tiles.find(i, row, column);
        wait(shared.read[turn.at], turn.parity ^ 1);
        if (lane == 0) notes.row = row, notes.column = column;
#pragma unroll
        for (unsigned r = lane; r < rows; r += warp_size) {
            const unsigned ones = x.ones_of_a[min(row + r, x.m - 1)];
#if defined(OUTPUT_BITS)
            notes.of_rows[r] = ones;
#else
            notes.of_rows[r] = x.k - 2 * ones;
#endif
        }
#pragma unroll
        for (unsigned c = lane; c < columns; c += warp_size) {
            const unsigned at = min(column + c, x.n - 1), ones = x.ones_of_b[at];
#if defined(OUTPUT_BITS)
            const bool inside = column + c < x.n;
            notes.of_columns[c] = inside ? limit_of(thresholds[at], ones, x.k) : (int)x.k + 1;
            const unsigned flips = __ballot_sync(0xffffffffu, inside && flip[at] != 0);
            if (lane == 0) notes.flips[c / 32] = flips;
#else
            notes.of_columns[c] = -2 * (int)ones;
#if defined(SCALED)
            notes.scales[c] = scales[at];
#endif
#endif
        }
        arrive(shared.written[turn.at]);
    }
}

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

// The sums of a tile's rows of this warpgroup.
__device__ inline void multiply(int (&sums)[parts][sums_of_part], Shared& shared, Turn<stages>& turn, unsigned steps)
{
    const unsigned first_row = threadIdx.x / warpgroup_size * parts * part_rows;
    unsigned before = 0;
    for (unsigned step = 0; step < steps; ++step, turn.advance()) {
        const Stage& stage = shared.stages[turn.at];
        wait(shared.full[turn.at], turn.parity);
        const unsigned long long a = describe(&stage.a[first_row * span]), b = describe(stage.b);
        fence_registers();
#pragma unroll
        for (unsigned at = 0; at < span; at += product_bytes)
#pragma unroll
            for (unsigned part = 0; part < parts; ++part)
                multiply_add(sums[part], a + (part * part_rows * span + at) / 16, b + at / 16, step > 0 || at > 0);
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

#if defined(OUTPUT_BITS)
// Exchange four words of partial bits in a quad of lanes: lane q gets the bits of word q.
__device__ inline unsigned word_of_quad(const unsigned (&words)[4], unsigned q)
{
    const bool odd = q & 1, high = q & 2;
    const unsigned even_words = odd ? words[0] : words[1], kept = odd ? words[1] : words[0];
    const unsigned even_high = odd ? words[2] : words[3], kept_high = odd ? words[3] : words[2];
    const unsigned low = kept | __shfl_xor_sync(0xffffffffu, even_words, 1);
    const unsigned up = kept_high | __shfl_xor_sync(0xffffffffu, even_high, 1);
    return (high ? up : low) | __shfl_xor_sync(0xffffffffu, high ? low : up, 2);
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

// The words of a set in two rows, which this lane stores.
__device__ inline void make_words(unsigned (&made)[2], const int (&sums)[sums_of_part], unsigned set,
                                  const int (&of_rows)[2], const Notes& notes, const Place& place)
{
    unsigned words[2][set_words] = {};
#pragma unroll
    for (unsigned j = 0; j < 4 * set_words; ++j) {  // eight columns, of which this lane has a pair
        const unsigned first = word_of(set, j / 4) * 32 + j % 4 * 8;
        if (first >= columns) continue;
        const int2 of_pair = *reinterpret_cast<const int2*>(&notes.of_columns[first + place.pair]);
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            const int x_margin = 2 * sums[first / 2 + 2 * half] - of_rows[half] - of_pair.x;
            const int y_margin = 2 * sums[first / 2 + 2 * half + 1] - of_rows[half] - of_pair.y;
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

__device__ inline void store_bits(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned row,
                                  const Operands& x, Output* __restrict__ c, unsigned* __restrict__ ones_of_c)
{
    const int of_rows[2] = {notes.of_rows[row], notes.of_rows[row + 8]};
    const unsigned first_word = notes.column / 32, q = place.lane % 4;
#if defined(OUTPUT_LINES)
    const unsigned words_of_line = ((x.n - 1) / 128 + 1) * 4;
#else
    const unsigned words_of_line = (x.n - 1) / 32 + 1;
#endif
    unsigned made[sets][2];
#pragma unroll
    for (unsigned set = 0; set < sets; ++set) {
        make_words(made[set], sums, set, of_rows, notes, place);
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned line = notes.row + row + 8 * half, at = word_of(set, q), word = first_word + at;
            if (line >= x.m || word >= words_of_line || at >= columns / 32) continue;
#if defined(OUTPUT_LINES)
            if (!interleaved) c[(Index)line * words_of_line + word] = made[set][half];
#else
            c[(Index)word * x.m + line] = made[set][half];
#endif
        }
    }
#if defined(OUTPUT_LINES)
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
        const unsigned line = notes.row + row + 8 * half, word = first_word + word_of(0, q);
        if (interleaved && line < x.m && word < words_of_line)
            *reinterpret_cast<uint2*>(&c[(Index)line * words_of_line + word]) =
                make_uint2(made[0][half], made[sets - 1][half]);
        unsigned ones = 0;
#pragma unroll
        for (unsigned set = 0; set < sets; ++set) ones += __popc(made[set][half]);
        ones += __shfl_xor_sync(0xffffffffu, ones, 1);
        ones += __shfl_xor_sync(0xffffffffu, ones, 2);
        if (q != 0 || line >= x.m) continue;
        atomicAdd(&ones_of_c[line], ones);
    }
#endif
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
__device__ inline void finish(Output (&pair)[2], int x, int y, int of_row, const Notes& notes, unsigned c)
{
    const int2 of_pair = *reinterpret_cast<const int2*>(&notes.of_columns[c]);
#if defined(SCALED)
    const float2 scales = *reinterpret_cast<const float2*>(&notes.scales[c]);
#else
    const float2 scales = {};
#endif
    pair[0] = output_of(4 * x + of_row + of_pair.x, scales.x);
    pair[1] = output_of(4 * y + of_row + of_pair.y, scales.y);
}

struct alignas(2 * sizeof(Output)) Pair {
    Output x, y;
};

#if BOXES
// Store a part's rows of this warp, box after box: 16 rows of 128 bytes, swizzled as the map of C says.
__device__ inline void store_boxes(const int (&sums)[sums_of_part], Box (&boxes)[BOXES], unsigned& turn,
                                   const Notes& notes, const Place& place, unsigned row, const TensorMap& c)
{
    const int of_rows[2] = {notes.of_rows[row], notes.of_rows[row + 8]};
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
                unsigned char* const to = &box.rows[box_row * span + ((at / chunk ^ box_row % atom_rows) * chunk | at % chunk)];
                *reinterpret_cast<Pair*>(to) = Pair{pair[0], pair[1]};
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
                                   const Operands& x, Output* __restrict__ c)
{
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
        if (notes.row + row + 8 * half >= x.m) continue;
        const int of_row = notes.of_rows[row + 8 * half];
        Output* const line = c + (Index)(notes.row + row + 8 * half) * x.n;
#pragma unroll
        for (unsigned j = 0; j < columns / 8; ++j) {
            const unsigned column = notes.column + 8 * j + place.pair;
            Output pair[2];
            finish(pair, sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1], of_row, notes, 8 * j + place.pair);
            if (x.n % 2 == 0 && column < x.n) *reinterpret_cast<Pair*>(line + column) = Pair{pair[0], pair[1]};
            if (x.n % 2 != 0 && column < x.n) line[column] = pair[0];
            if (x.n % 2 != 0 && column + 1 < x.n) line[column + 1] = pair[1];
        }
    }
}
#endif
#endif

#if defined(OUTPUT_LINES)
static_assert(columns == 128 || columns == 256, "a tile has all words of the pieces of 128 bits that it begins");
#endif

extern "C" __global__ void __launch_bounds__(threads, 1)
wgmma(const __grid_constant__ TensorMap a, const unsigned* __restrict__ ones_of_a, const __grid_constant__ TensorMap b,
      const unsigned* __restrict__ ones_of_b,
#if BOXES
      const __grid_constant__ TensorMap c,
#else
      Output* __restrict__ c,
#endif
      unsigned m, unsigned n, unsigned k
#if defined(OUTPUT_LINES)
      , unsigned* __restrict__ ones_of_c
#endif
#if defined(OUTPUT_BITS)
      , const int* __restrict__ thresholds, const unsigned char* __restrict__ flip
#elif defined(SCALED)
      , const float* __restrict__ scales
#endif
)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Operands x = {ones_of_a, ones_of_b, m, n, k};
    const Tiles tiles(x);

    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < stages; ++i) {
            make_barrier(shared.full[i], 1);
            make_barrier(shared.empty[i], consumers);
        }
        for (unsigned i = 0; i < noted; ++i) {
            make_barrier(shared.written[i], warp_size);
            make_barrier(shared.read[i], consumers * 4);
        }
        publish_barriers();
    }
    __syncthreads();
    let_later_launches_begin();
    wait_for_earlier_launches();

    const unsigned serving = threadIdx.x - consumers * warpgroup_size;  // number of a serving thread
    if (threadIdx.x >= consumers * warpgroup_size) {
#if defined(SETMAXNREG)
        give_registers<40>();
#endif
        if (serving == 0) copy_stages(shared, tiles, a, b);
        if (serving / warp_size == 1)
            write_notes(shared, tiles, x
#if defined(OUTPUT_BITS)
                        , thresholds, flip
#elif defined(SCALED)
                        , scales
#endif
            );
        return;
    }
#if defined(SETMAXNREG)
    take_registers<232>();
#endif
#if defined(OUTPUT_WORDS)
    unsigned* const ones_of_c = nullptr;
#endif
    const Place place;
    Turn<stages> turn;
    Turn<noted> note;
#if BOXES
    unsigned box = 0;
#endif
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x, note.advance()) {
        int sums[parts][sums_of_part];
        multiply(sums, shared, turn, tiles.steps);
        wait(shared.written[note.at], note.parity);
        const Notes& notes = shared.notes[note.at];
#pragma unroll
        for (unsigned part = 0; part < parts; ++part) {
            const unsigned row = place.row + part * part_rows;
#if defined(OUTPUT_BITS)
            store_bits(sums[part], notes, place, row, x, c, ones_of_c);
#elif BOXES
            store_boxes(sums[part], shared.boxes[place.warp], box, notes, place, row, c);
#else
            store_pairs(sums[part], notes, place, row, x, c);
#endif
        }
        __syncwarp();
        if (place.lane == 0) arrive(shared.read[note.at]);
    }
#if BOXES
    if (place.lane == 0) wait_for_copies();
#endif
}
