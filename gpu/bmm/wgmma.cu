// The +-1 matrix product of lines of bits by the warpgroups of sm_90a: dot = k - 2 ones(row) - 2 ones(column) +
// 4 popc(row & column).
//
// A block computes tiles of C, every gridDim.x-th (warpgroup_tile.cuh, which has the macros). One thread copies the lines
// of A and B, which to the copies are matrices of bytes. What lies outside arrives as zeros, adds nothing to popc(a & b),
// and so m, n and k are free.
//
// Lines of bits are the next product's A: each is padded with zeros to 128 bits, and ones_of_c[i] += their ones.

#include "bmm/warpgroup_tile.cuh"

struct Operands {
    const unsigned *__restrict__ ones_of_a, *__restrict__ ones_of_b;
    unsigned m, n, k;
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
            load_box(stage.a, a, step * step_bytes, row, shared.full[turn.at]);
            load_box(stage.b, b, step * step_bytes, column, shared.full[turn.at]);
        }
    }
}

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
        for (unsigned r = lane; r < rows; r += warp_size)
            notes.of_rows[r] = x.k - 2 * x.ones_of_a[min(row + r, x.m - 1)];
#pragma unroll
        for (unsigned c = lane; c < columns; c += warp_size) {
            const unsigned at = min(column + c, x.n - 1), ones = x.ones_of_b[at];
#if defined(OUTPUT_BITS)
            const bool inside = column + c < x.n;  // no dot product reaches k + 1
            notes.of_columns[c] = inside ? -2 * (int)ones - limit_of(thresholds[at], x.k) : -1 - (int)x.k;
            const unsigned flips = __ballot_sync(all_lanes, inside && flip[at] != 0);
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

#if defined(OUTPUT_BITS)
__device__ inline void store_bits(const int (&sums)[sums_of_part], const Notes& notes, const Place& place, unsigned row,
                                  const Operands& x, Output* __restrict__ c, unsigned* __restrict__ ones_of_c)
{
    unsigned made[sets][2];
    make_words(made, sums, notes, place, row);
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
        const unsigned line = notes.row + row + 8 * half;
#if defined(OUTPUT_LINES)
        const unsigned words_of_line = ((x.n - 1) / 128 + 1) * 4;
        if (line < x.m) store_words(made, half, notes, place, c + (Index)line * words_of_line, words_of_line);
        unsigned ones = 0;
#pragma unroll
        for (unsigned set = 0; set < sets; ++set) ones += __popc(made[set][half]);
        ones += __shfl_xor_sync(all_lanes, ones, 1);
        ones += __shfl_xor_sync(all_lanes, ones, 2);
        if (place.lane % 4 == 0 && line < x.m) atomicAdd(&ones_of_c[line], ones);
#else
#pragma unroll
        for (unsigned set = 0; set < sets; ++set) {
            const unsigned at = word_of(set, place.lane % 4), word = notes.column / 32 + at;
            if (line < x.m && at < columns / 32 && word <= (x.n - 1) / 32) c[(Index)word * x.m + line] = made[set][half];
        }
#endif
    }
}
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
    const Tiles tiles(m, n, (k - 1) / step_bits + 1);

    shared.begin(warp_size);
    let_later_launches_begin();
    wait_for_earlier_launches();

    const unsigned serving = threadIdx.x - multiplying;  // number of a serving thread
    if (threadIdx.x >= multiplying) {
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
            store_pairs(sums[part], notes, place, row, c, m, n);
#endif
        }
        __syncwarp();
        if (place.lane == 0) arrive(shared.read[note.at]);
    }
#if BOXES
    if (place.lane == 0) wait_for_copies();
#endif
}
