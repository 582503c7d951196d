// The +-1 matrix product of many lines by few, 16 at most, on bit tensor cores from sm_80: as fast as memory gives
// the many lines. Compiled once for each form and output (output.cuh):
//
//   -DFEW=8|16      columns of a block's tile: the lines of A, or with
//   -DSWAPPED       those of B
//   -DWARPS         warps of a block, which share k
//
// A block takes 16 of the many lines as the rows of a product. In a step a lane has a piece of its lines, so that a
// quad has four that follow one another, and each two words of them are a product: along k any order will do that
// is the same for both operands. The warps' sums meet in shared memory. What lies past the edge is that of the last
// line; it is not stored, and makes no bit.

#include "bmm/fsb.cuh"
#include "bmm/output.cuh"
#include "bmm/tensor_core.cuh"

enum : unsigned {
    few = FEW,
    tiles = few / product_columns,
    warps = WARPS,
    threads = warps * warp_size,
    unroll = 4,                // steps whose loads are on their way at once
    pieces_of_step = 4,        // those of a quad of lanes
    outputs = product_rows * few,
    outputs_of_thread = (outputs + threads - 1) / threads,
};

struct Operand {
    const uint4* pieces;
    const unsigned* ones;
    unsigned lines;
};

// The sums of a warp, and what they are of.
struct Product {
    int counts[tiles][product_counts] = {};

    __device__ void add(const uint4& upper, const uint4& lower, const uint4 (&columns)[tiles])
    {
        const unsigned first[] = {upper.x, lower.x, upper.y, lower.y}, second[] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
        for (unsigned t = 0; t < tiles; ++t) {
            const unsigned b[] = {columns[t].x, columns[t].y, columns[t].z, columns[t].w};
            multiply_fragments(counts[t], first, b);
            multiply_fragments(counts[t], second, b + 2);
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
    for (unsigned first = warp * pieces_of_step; first < k_pieces; first += unroll * warps * pieces_of_step) {
        uint4 u[unroll], l[unroll], c[unroll][tiles];
#pragma unroll
        for (unsigned i = 0; i < unroll; ++i) {
            const unsigned piece = first + i * warps * pieces_of_step + place;
            const bool inside = piece < k_pieces;
            const uint4 zeros = make_uint4(0, 0, 0, 0);
            u[i] = inside ? upper[piece] : zeros;
            l[i] = inside ? lower[piece] : zeros;
#pragma unroll
            for (unsigned t = 0; t < tiles; ++t) c[i][t] = inside ? of_columns[t][piece] : zeros;
        }
#pragma unroll
        for (unsigned i = 0; i < unroll; ++i) product.add(u[i], l[i], c[i]);
    }
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
__device__ int sum_at(const int (&counts)[warps][tiles][product_counts][warp_size], unsigned row, unsigned column)
{
    const unsigned lane = row % 8 * 4 + column % 8 / 2, i = row / 8 * 2 + column % 2;
    int sum = 0;
#pragma unroll
    for (unsigned w = 0; w < warps; ++w) sum += counts[w][column / product_columns][i][lane];
    return sum;
}

extern "C" __global__ void __launch_bounds__(threads, (few == 8 ? 768 : 512) / threads)
skinny(const uint4* __restrict__ a, const unsigned* __restrict__ ones_of_a, const uint4* __restrict__ b,
       const unsigned* __restrict__ ones_of_b, Output* __restrict__ c, unsigned m, unsigned n, unsigned k THRESHOLDS)
{
    __shared__ int counts[warps][tiles][product_counts][warp_size];
    const Operand of_a = {a, ones_of_a, m}, of_b = {b, ones_of_b, n};
#if defined(SWAPPED)
    const Operand rows = of_a, columns = of_b;
#else
    const Operand rows = of_b, columns = of_a;
#endif
    const unsigned lane = lane_of_this_thread(), warp = threadIdx.x / warp_size;
    const unsigned first_row = blockIdx.x * product_rows;

    unsigned ones[outputs_of_thread];  // read before the operands, which hide how long that takes
#if defined(OUTPUT_BITS)
    int threshold[outputs_of_thread];
    bool flipped[outputs_of_thread];
#endif
#pragma unroll
    for (unsigned o = 0; o < outputs_of_thread; ++o) {
        const unsigned output = threadIdx.x + o * threads;
        const unsigned row = min(first_row + Place::row(output), rows.lines - 1);
        const unsigned column = min(Place::column(output), columns.lines - 1);
        ones[o] = rows.ones[row] + columns.ones[column];
#if defined(OUTPUT_BITS)
#if defined(SWAPPED)
        const unsigned j = column;
#else
        const unsigned j = row;
#endif
        threshold[o] = thresholds[j];
        flipped[o] = flip[j] != 0;
#endif
    }

    Product product;
    multiply(product, rows, columns, first_row, divide_up(k, tile_bits));
#pragma unroll
    for (unsigned t = 0; t < tiles; ++t)
#pragma unroll
        for (unsigned i = 0; i < product_counts; ++i) counts[warp][t][i][lane] = product.counts[t][i];
    __syncthreads();

#pragma unroll
    for (unsigned o = 0; o < outputs_of_thread; ++o) {
        const unsigned output = threadIdx.x + o * threads;
        if (output >= outputs) return;
        const unsigned row = first_row + Place::row(output), column = Place::column(output);
        const bool inside = row < rows.lines && column < columns.lines;
        const int dot = dot_of(sum_at(counts, Place::row(output), column), k, ones[o], 0);
#if defined(SWAPPED)
        const unsigned i = row, j = column;
#else
        const unsigned i = column, j = row;
#endif
#if defined(OUTPUT_BITS)
        const unsigned run = Place::run;
        const unsigned bits = __ballot_sync(all_lanes, inside && (dot >= threshold[o]) != flipped[o]);
        const unsigned mine = bits >> lane / run * run & ((1u << run) - 1);
        if (lane % run != 0 || i >= m) continue;
#if defined(SWAPPED)
        c[i] = mine;
#else
        reinterpret_cast<unsigned short*>(c)[((Index)(j / word_size) * m + i) * 2 + j / 16 % 2] = mine;
#endif
#else
        if (inside) c[(Index)i * n + j] = dot;
#endif
    }
}
