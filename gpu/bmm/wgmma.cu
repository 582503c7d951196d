// The +-1 matrix product of lines of bits by the warpgroups of sm_90a: dot = k - 2 ones(row) - 2 ones(column) +
// 4 popc(row & column).
//
// A block computes tiles of C, every gridDim.x-th (warpgroup_tile.cuh, which has the macros). One thread copies the lines
// of A and B, which to the copies are matrices of bytes. What lies outside arrives as zeros, adds nothing to popc(a & b),
// and so m, n and k are free.
//
// Lines of bits are the next product's A: each is padded with zeros to 128 bits, and the tiles beside one another each
// give the ones of their part of it. Such an A's product adds them (-DPARTS).
//
// With few tiles and a long k, blocks share k (-DSPLIT_K): one adds the constants, too.
//
// Stacks of matrices are multiplied matrix by matrix (-DSTACK), one of A or B may be a single matrix. Their maps have one
// more dimension. Tiles lie as if matrices lay below one another, each filled up to whole tiles.
//
// What no launch makes but the host's preparation, B and what the output takes, is read before earlier launches end, if
// those did not let this one begin before their own work.

#include "bmm/warpgroup_tile.cuh"

struct Operands {
    const unsigned* ones_of_a, *ones_of_b;
    unsigned m, n, k, parts_of_ones, matrices_of_a, matrices_of_b;

    __device__ unsigned ones_of_row(unsigned row) const
    {
#if defined(PARTS)
        unsigned ones = 0;
#pragma unroll 8
        for (unsigned part = 0; part < parts_of_ones; ++part) ones += ones_of_a[(Index)row * parts_of_ones + part];
        return ones;
#else
        return ones_of_a[row];
#endif
    }

    // The rows of all tiles that lie below one another.
    __device__ unsigned rows_of_tiles() const
    {
#if defined(STACK)
        return max(matrices_of_a, matrices_of_b) * rows_of_matrix();
#else
        return m;
#endif
    }
    __device__ unsigned rows_of_matrix() const { return ((m - 1) / rows + 1) * rows; }

    // Which matrix a row of tiles lies in, and `row` as one of that matrix.
    __device__ unsigned matrix_of(unsigned& row) const
    {
#if defined(STACK)
        const unsigned matrix = row / rows_of_matrix();
        row -= matrix * rows_of_matrix();
        return matrix;
#else
        return 0;
#endif
    }
    __device__ unsigned of_a(unsigned matrix) const { return min(matrix, matrices_of_a - 1); }
    __device__ unsigned of_b(unsigned matrix) const { return min(matrix, matrices_of_b - 1); }
};

#if defined(STACK)
// The matrix of a note, behind all notes. The note's row is counted through the matrices of C.
__device__ inline unsigned& matrix_of(Shared& shared, unsigned note)
{
    return reinterpret_cast<unsigned*>(&shared.notes[noted])[note];
}
#endif

// Lines of C are whole pieces of 128 bits, which the last tiles fill.
__device__ inline unsigned words_of_line(const Operands& x) { return ((x.n - 1) / 128 + 1) * 4; }

// ---- the serving warps ----------------------------------------------------------------------------------------------

__device__ inline void load_lines(void* to, const TensorMap& map, unsigned byte, unsigned line, unsigned matrix, Barrier& full)
{
#if defined(STACK)
    load_box(to, map, byte, line, matrix, full);
#else
    load_box(to, map, byte, line, full);
#endif
}

__device__ inline void copy_stages(Shared& shared, const Tiles& tiles, const Operands& x, const TensorMap& a,
                                   const TensorMap& b)
{
    Turn<stages> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
        unsigned row, column;
        tiles.find(i, row, column);
        const unsigned matrix = x.matrix_of(row);
        for (unsigned step = 0; step < tiles.steps; ++step, turn.advance()) {
            Stage& stage = shared.stages[turn.at];
            wait(shared.empty[turn.at], turn.parity ^ 1);  // the first turn passes
            arrive_and_expect(shared.full[turn.at], sizeof(Stage));  // bytes outside of A and B count, too
            const unsigned at = (tiles.first_step(i) + step) * step_bytes;
            load_lines(stage.b, b, at, column, x.of_b(matrix), shared.full[turn.at]);
            if (i == blockIdx.x && step == 0) wait_for_earlier_launches();  // stores of C come behind products of A
            load_lines(stage.a, a, at, row, x.of_a(matrix), shared.full[turn.at]);
        }
    }
}

__device__ inline void write_notes(Shared& shared, const Tiles& tiles, const Operands& x
#if defined(OUTPUT_BITS)
                                   , const int* thresholds, const unsigned char* flip
#elif defined(SCALED)
                                   , const float* scales
#endif
)
{
    const unsigned lane = threadIdx.x % warp_size;
    Turn<noted> turn;
    for (unsigned i = blockIdx.x; i < tiles.count(); i += gridDim.x, turn.advance()) {
        Notes& notes = shared.notes[turn.at];
        unsigned row, column;
        tiles.find(i, row, column);
        const unsigned matrix = x.matrix_of(row);
        const unsigned of_a = x.of_a(matrix) * x.m, of_b = x.of_b(matrix) * x.n;
        wait(shared.read[turn.at], turn.parity ^ 1);
        if (lane == 0) notes.row = matrix * x.m + row, notes.column = column;
#if defined(STACK)
        if (lane == 0) matrix_of(shared, turn.at) = matrix;
#endif
#pragma unroll
        for (unsigned c = lane; c < columns; c += warp_size) {
            const unsigned at = min(column + c, x.n - 1), ones = of_signs ? x.ones_of_b[of_b + at] : 0;
#if defined(OUTPUT_BITS)
            const bool inside = column + c < x.n;  // no dot product reaches k + 1
            notes.of_columns[0][c] = inside ? -2 * (int)ones - limit_of(thresholds[at], x.k) : -1 - (int)x.k;
            const unsigned flips = __ballot_sync(all_lanes, inside && flip[at] != 0);
            if (lane == 0) notes.flips[c / 32] = flips;
#else
            notes.of_columns[0][c] = tiles.first_step(i) > 0 ? 0 : -2 * (int)ones;
#if defined(SCALED)
            notes.scales[c] = scales[at];
#endif
#endif
        }
        if (i == blockIdx.x) wait_for_earlier_launches();
#pragma unroll
        for (unsigned r = lane; r < rows; r += warp_size)
            notes.of_rows[r] = !of_signs || tiles.first_step(i) > 0 ? 0 : x.k - 2 * x.ones_of_row(of_a + min(row + r, x.m - 1));
        arrive(shared.written[turn.at]);
    }
}

// ---- the multiplying warpgroups -------------------------------------------------------------------------------------

#if defined(OUTPUT_BITS)
__device__ inline void store_bits(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned part,
                                  unsigned matrix, const Operands& x, Output* c, unsigned* ones_of_c)
{
    unsigned ones[2] = {};
    const unsigned end = (matrix + 1) * x.m;
#pragma unroll
    for (unsigned set = 0; set < sets; ++set) {
        unsigned made[2];
        make_words(made, sums, notes, place, part, set);
        const unsigned at = word_of(set, place), word = notes.column / 32 + at;
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
            const unsigned line = notes.row + place.row(part) + 8 * r;
            ones[r] += __popc(made[r]);
            if (line >= end || at >= words_across) continue;
#if defined(OUTPUT_LINES)
            if (word < words_of_line(x)) c[(Index)line * words_of_line(x) + word] = made[r];
#else
            const unsigned last = (x.n - 1) / 32;  // a matrix has m words more than so many times its lines
            if (word <= last) c[((Index)matrix * last + word) * x.m + line] = made[r];
#endif
        }
    }
#if defined(OUTPUT_LINES)
    const unsigned parts_of_line = (32 * words_of_line(x) - 1) / columns + 1;
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
        const unsigned line = notes.row + place.row(part) + 8 * r;
        ones[r] += __shfl_xor_sync(all_lanes, ones[r], 1);
        ones[r] += __shfl_xor_sync(all_lanes, ones[r], 2);
        if (place.lane % 4 == 0 && line < end) ones_of_c[(Index)line * parts_of_line + notes.column / columns] = ones[r];
    }
#endif
}
#endif

#if BOXES
__device__ inline void store_to_map(const int (&sums)[sums_of_part], Box (&boxes)[BOXES], unsigned& turn, const Notes& notes,
                                    const Place& place, unsigned part, const unsigned& matrix, unsigned m, const TensorMap& c)
{
#if defined(STACK)
    store_boxes(sums, boxes, turn, notes, place, part, [&](const Box& box, unsigned first) {
        const unsigned row = notes.row - matrix * m + place.row(part) - place.lane / 4;
#if defined(SPLIT_K)
        add_box(c, box.rows, notes.column + first, row, matrix);
#else
        store_box(c, box.rows, notes.column + first, row, matrix);
#endif
    });
#else
    store_boxes(sums, boxes, turn, notes, place, part, c);
#endif
}
#endif

extern "C" __global__ void __launch_bounds__(threads, 1)
wgmma(const __grid_constant__ TensorMap a, const unsigned* ones_of_a, const __grid_constant__ TensorMap b,
      const unsigned* ones_of_b,
#if BOXES
      const __grid_constant__ TensorMap c,
#else
      Output* c,
#endif
      unsigned m, unsigned n, unsigned k
#if defined(OUTPUT_LINES)
      , unsigned* ones_of_c
#endif
#if defined(OUTPUT_BITS)
      , const int* thresholds, const unsigned char* flip
#elif defined(SCALED)
      , const float* scales
#elif defined(SPLIT_K)
      , unsigned shares
#endif
#if defined(PARTS)
      , unsigned parts_of_ones
#endif
#if defined(STACK)
      , unsigned matrices_of_a, unsigned matrices_of_b
#endif
)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
#if !defined(PARTS)
    const unsigned parts_of_ones = 1;
#endif
#if !defined(STACK)
    const unsigned matrices_of_a = 1, matrices_of_b = 1;
#endif
    const Operands x = {ones_of_a, ones_of_b, m, n, k, parts_of_ones, matrices_of_a, matrices_of_b};
#if defined(OUTPUT_LINES)
    Tiles tiles(x.rows_of_tiles(), 32 * words_of_line(x), (k - 1) / 8 + 1);
#else
    Tiles tiles(x.rows_of_tiles(), n, (k - 1) / 8 + 1);
#endif
#if defined(SPLIT_K)
    tiles.split(shares);
#endif

    shared.begin(warp_size);
    let_later_launches_begin();

    const unsigned serving = threadIdx.x - multiplying;  // number of a serving thread
    if (threadIdx.x >= multiplying) {
#if defined(SETMAXNREG)
        give_registers<40>();
#endif
        if (serving == 0) copy_stages(shared, tiles, x, a, b);
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
#if BOXES
    unsigned box = 0;
#endif
    compute_tiles(shared, tiles, [&](unsigned part, const int (&sums)[sums_of_part], unsigned note) {
        const Notes& notes = shared.notes[note];
#if defined(STACK)
        const unsigned& matrix = matrix_of(shared, note);
#else
        const unsigned matrix = 0;
#endif
#if defined(OUTPUT_BITS)
        store_bits(sums, notes, place, part, matrix, x, c, ones_of_c);
#elif BOXES
        store_to_map(sums, shared.boxes[place.warp], box, notes, place, part, matrix, m, c);
#else
        store_pairs(sums, notes, place, part, c, (matrix + 1) * m, n);
#endif
    });
#if BOXES
    if (place.lane == 0) wait_for_copies();
#endif
}
