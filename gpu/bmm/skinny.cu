// The +-1 matrix product of many lines by few, 16 at most, on bit tensor cores from sm_80: as fast as memory gives
// the many lines. Compiled once for each form and output (output.cuh):
//
//   -DFEW=8|16      columns of a block's tile: the lines of A, or with
//   -DSWAPPED       those of B
//   -DWARPS         warps of a block, which share k
//   -DLINES         bits leave line by line, padded with zeros to 128: the A of a next product
//   -DANSWER        sums[i, j] = dot; logits[i, j] = dot * scale[j] + offset[j], rounded twice; classes[i] = the first j
//                   with the largest. For a C of up to 16 columns, which a block has whole
//
// A block takes 16 of the many lines as the rows of a product. In a step a lane has a piece of its lines, so that a
// quad has four that follow one another, and each two words of them are a product: along k any order will do that
// is the same for both operands. The warps' sums meet in shared memory. What lies past the edge is that of the last
// line; it is not stored, and makes no bit.
//
// Where instructions count common ones, the ones of A's lines are products, too, with lines of ones. What no launch makes
// but the host's preparation, B and what the output takes, is read before earlier launches end.

#include "bmm/fsb.cuh"
#include "bmm/largest.cuh"
#include "bmm/output.cuh"
#include "bmm/tensor_core.cuh"
#include "overlap.cuh"

#if defined(ANSWER)
#define RULE , float* logits, long long* classes, const float* scale, \
    const float* offset
#else
#define RULE THRESHOLDS
#endif

enum : unsigned {
    few = FEW,
    tiles = few / product_columns,
#if defined(SWAPPED)
    tiles_of_ones = of_signs && counts_common_ones,
#else
    tiles_of_ones = of_signs && counts_common_ones ? tiles : 0,
#endif
    all_tiles = tiles + tiles_of_ones,
    warps = WARPS,
    threads = warps * warp_size,
    unroll = 4,                // steps whose loads are on their way at once
    pieces_of_step = 4,        // those of a quad of lanes
    outputs = product_rows * few,
    outputs_of_thread = (outputs + threads - 1) / threads,
};

struct Operand {
    const uint4* pieces;
    unsigned lines;
};

// The sums of a warp, and what they are of. Behind those of C are the ones of A.
struct Product {
    int counts[all_tiles][product_counts] = {};

    __device__ void add(const uint4& upper, const uint4& lower, const uint4 (&columns)[tiles])
    {
        const unsigned first[] = {upper.x, lower.x, upper.y, lower.y}, second[] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
        for (unsigned t = 0; t < tiles; ++t) {
            const unsigned b[] = {columns[t].x, columns[t].y, columns[t].z, columns[t].w};
            multiply_fragments(counts[t], first, b);
            multiply_fragments(counts[t], second, b + 2);
        }
        const unsigned ones[] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
        for (unsigned t = 0; t < tiles_of_ones; ++t) {
#if defined(SWAPPED)
            multiply_fragments(counts[tiles], first, ones);
            multiply_fragments(counts[tiles], second, ones);
#else
            const unsigned b[] = {columns[t].x, columns[t].y, columns[t].z, columns[t].w};
            multiply_fragments(counts[tiles + t], ones, b);
            multiply_fragments(counts[tiles + t], ones, b + 2);
#endif
        }
    }
};

__device__ inline const uint4* line_of(Operand x, unsigned line, unsigned k_pieces)
{
    return x.pieces + piece_at(min(line, x.lines - 1), 0, k_pieces);
}

__device__ void multiply(Product& product, Operand rows, Operand columns, unsigned first_row, unsigned k_pieces)
{
    const unsigned lane = lane_of_this_thread(), warp = threadIdx.x / warp_size;
    const unsigned line = lane / pieces_of_step, place = lane % pieces_of_step;
    const uint4* const upper = line_of(rows, first_row + line, k_pieces);
    const uint4* const lower = line_of(rows, first_row + line + product_rows / 2, k_pieces);
    const uint4* of_columns[tiles];
#pragma unroll
    for (unsigned t = 0; t < tiles; ++t) of_columns[t] = line_of(columns, t * product_columns + line, k_pieces);
    unsigned first = warp * pieces_of_step;
    do {
        uint4 u[unroll], l[unroll], c[unroll][tiles];
        const auto piece_of = [&](unsigned i) { return first + i * warps * pieces_of_step + place; };
        const auto load_rows = [&] {
#pragma unroll
            for (unsigned i = 0; i < unroll; ++i) {
                const unsigned piece = piece_of(i);
                u[i] = piece < k_pieces ? upper[piece] : make_uint4(0, 0, 0, 0);
                l[i] = piece < k_pieces ? lower[piece] : make_uint4(0, 0, 0, 0);
            }
        };
        const auto load_columns = [&] {
#pragma unroll
            for (unsigned i = 0; i < unroll; ++i) {
                const unsigned piece = piece_of(i);
#pragma unroll
                for (unsigned t = 0; t < tiles; ++t)
                    c[i][t] = piece < k_pieces ? of_columns[t][piece] : make_uint4(0, 0, 0, 0);
            }
        };
        const bool is_first = first < warps * pieces_of_step;
#if defined(SWAPPED)
        load_columns();
        if (is_first) wait_for_earlier_launches();
        load_rows();
#else
        load_rows();
        if (is_first) wait_for_earlier_launches();
        load_columns();
#endif
#pragma unroll
        for (unsigned i = 0; i < unroll; ++i) product.add(u[i], l[i], c[i]);
        first += unroll * warps * pieces_of_step;
    } while (first < k_pieces);
}

// An output of the block's tile. Neighbouring threads have those that are neighbours in C.
struct Place {
#if defined(SWAPPED)
    enum : unsigned { run = few };
    __device__ static unsigned row(unsigned output) { return output / run; }
    __device__ static unsigned column(unsigned output) { return output % run; }
#else
    enum : unsigned { run = product_rows };
    __device__ static unsigned row(unsigned output) { return output % run; }
    __device__ static unsigned column(unsigned output) { return output / run; }
#endif
};

// The sum of all warps: lanes and registers as in tensor_core.cuh.
__device__ int sum_at(const int (&counts)[warps][all_tiles][product_counts][warp_size], unsigned row, unsigned column)
{
    const unsigned lane = row % 8 * 4 + column % 8 / 2, i = row / 8 * 2 + column % 2;
    int sum = 0;
#pragma unroll
    for (unsigned w = 0; w < warps; ++w) sum += counts[w][column / product_columns][i][lane];
    return sum;
}

// The ones of A's line at a place of the tile.
__device__ unsigned ones_at(const int (&counts)[warps][all_tiles][product_counts][warp_size], unsigned row,
                            unsigned column)
{
    if (tiles_of_ones == 0) return 0;
#if defined(SWAPPED)
    return sum_at(counts, row, tiles * product_columns);
#else
    return sum_at(counts, 0, tiles * product_columns + column);
#endif
}

extern "C" __global__ void __launch_bounds__(threads, (few == 8 ? 768 : 512) / threads)
skinny(const uint4* a, const uint4* b, const unsigned* ones_of_b,
       Output* c, unsigned m, unsigned n, unsigned k RULE)
{
    __shared__ int counts[warps][all_tiles][product_counts][warp_size];
    const Operand of_a = {a, m}, of_b = {b, n};
#if defined(SWAPPED)
    const Operand rows = of_a, columns = of_b;
#else
    const Operand rows = of_b, columns = of_a;
#endif
    const unsigned lane = lane_of_this_thread(), warp = threadIdx.x / warp_size;
    const unsigned first_row = blockIdx.x * product_rows;
    let_later_launches_begin();

    unsigned ones[outputs_of_thread];  // read before the operands, which hide how long that takes
#if defined(OUTPUT_BITS)
    int threshold[outputs_of_thread];
    bool flipped[outputs_of_thread];
#elif defined(ANSWER)
    float factor[outputs_of_thread], addend[outputs_of_thread];
#endif
#pragma unroll
    for (unsigned o = 0; o < outputs_of_thread; ++o) {
        const unsigned output = threadIdx.x + o * threads;
#if defined(SWAPPED)
        const unsigned j = min(Place::column(output), n - 1);
#else
        const unsigned j = min(first_row + Place::row(output), n - 1);
#endif
        ones[o] = ones_of_b[j];
#if defined(OUTPUT_BITS)
        threshold[o] = thresholds[j];
        flipped[o] = flip[j] != 0;
#elif defined(ANSWER)
        factor[o] = scale[j];
        addend[o] = offset[j];
#endif
    }

    Product product;
    multiply(product, rows, columns, first_row, divide_up(k, tile_bits));
#pragma unroll
    for (unsigned t = 0; t < all_tiles; ++t)
#pragma unroll
        for (unsigned i = 0; i < product_counts; ++i) counts[warp][t][i][lane] = product.counts[t][i];
    __syncthreads();

#pragma unroll
    for (unsigned o = 0; o < outputs_of_thread; ++o) {
        const unsigned output = threadIdx.x + o * threads;
        if (output >= outputs) return;
        const unsigned row = Place::row(output), column = Place::column(output);
        const unsigned ones_of_both = ones[o] + ones_at(counts, row, column);
        const int dot = dot_of(sum_at(counts, row, column), k, ones_of_both, 0);
#if defined(SWAPPED)
        const unsigned i = first_row + row, j = column;
#else
        const unsigned i = column, j = first_row + row;
#endif
        const bool inside = i < m && j < n;
        const unsigned run = Place::run;
#if defined(OUTPUT_BITS)
        const unsigned bits = __ballot_sync(all_lanes, inside && (dot >= threshold[o]) != flipped[o]);
        const unsigned mine = bits >> lane / run * run & ((1u << run) - 1);
        if (lane % run != 0 || i >= m) continue;
#if defined(SWAPPED) && defined(LINES)
        reinterpret_cast<uint4*>(c)[i] = make_uint4(mine, 0, 0, 0);
#elif defined(SWAPPED)
        c[i] = mine;
#elif defined(LINES)
        reinterpret_cast<unsigned short*>(c)[(Index)i * (gridDim.x * product_rows / 16) + j / 16] = mine;
#else
        reinterpret_cast<unsigned short*>(c)[((Index)(j / word_size) * m + i) * 2 + j / 16 % 2] = mine;
#endif
#else
        if (inside) c[(Index)i * n + j] = dot;
#if defined(ANSWER)
        float largest = __int2float_rn(dot) * factor[o] + addend[o];
        if (inside) logits[(Index)i * n + j] = largest;
        unsigned first = inside ? j : n;
        find_largest<run>(largest, first, n);
        if (lane % run == 0 && i < m) classes[i] = first;
#endif
#endif
    }
}
