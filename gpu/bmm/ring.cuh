// The products of a block of btc.cu through a ring of stages in shared memory, which cp.async fills: from sm_80 on.
//
//   -DSTAGES   how many stages the ring has, each of `step` pieces of the block's lines of A and of B
//
// While a stage is multiplied, copies of the others are on their way, each stage a group of its own, so that a wait is
// for the oldest alone. A warp loads the fragments of the next product before it multiplies those that it holds, also
// from one stage to the next. What lies past an edge of A or B, or past k, is filled with zeros by src-size
// (PTX ISA 9.0, 9.7.9.25.3): it counts nothing, and no size is special.

#pragma once
#include "bmm/fsb.cuh"

enum : unsigned {
    stages = STAGES,
    pieces_of_stage = (rows + columns) * step,
    products_of_stage = step / product_k_tiles,
};
static_assert(step % tile_lines == 0, "the eight pieces that a line of the banks holds change places");
static_assert(products_of_stage % 2 == 0, "two sets of fragments take turns");

extern __shared__ __align__(128) uint4 ring[];

// Where a piece of a line lies in a stage. ldmatrix takes the same piece of eight lines at once, from different banks.
__device__ inline unsigned place_of(unsigned line, unsigned piece) { return line * step + (piece ^ line % tile_lines); }

// Start the copies of the pieces of a step, from a line on.
template <unsigned lines>
__device__ inline void fetch(uint4* to, Operand x, unsigned first_line, unsigned first_piece)
{
    static_assert(lines * step % threads == 0, "every thread must bring as much");
#pragma unroll
    for (unsigned n = 0; n < lines * step / threads; ++n) {
        const unsigned i = threadIdx.x + n * threads, line = first_line + i / step, piece = first_piece + i % step;
        const bool inside = line < x.lines && piece < x.k_pieces;
        const uint4* const from = x.pieces + (inside ? piece_at(line, piece, x.k_pieces) : 0);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"((unsigned)__cvta_generic_to_shared(to + place_of(i / step, i % step))), "l"(from),
                        "r"(inside ? 16 : 0)
                     : "memory");
    }
}

__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait for the oldest stage on its way: this thread's copies of it have ended, then those of all.
__device__ inline void await_stage()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(stages - 2) : "memory");
    __syncthreads();
}

// This lane's words of fragments that begin at a line and a piece of a stage.
template <unsigned tiles_of_lines, unsigned count>
__device__ inline void load(unsigned (&words)[count], const uint4* stage, unsigned first_line, unsigned first_piece)
{
    const unsigned lane = lane_of_this_thread(), word = lane / tile_lines;
    const unsigned line = first_line + line_tile_of<tiles_of_lines>(word) * tile_lines + lane % tile_lines;
    const uint4* const from = stage + place_of(line, first_piece + k_tile_of<tiles_of_lines>(word));
#pragma unroll
    for (unsigned i = 0; i < count; i += 4) load_four_tiles(words + i, from + i / product_k_tiles * tile_lines * step);
}

__device__ void multiply(Counts& counts, Operand a, Operand b, unsigned block_row, unsigned block_column,
                         unsigned warp_row, unsigned warp_column)
{
    const unsigned steps = divide_up(a.k_pieces, step);
    unsigned of_a[2][words_of_a], of_b[2][words_of_b];
    const auto stage_of = [](unsigned s) { return ring + s % stages * pieces_of_stage; };
    const auto fetch_step = [&](unsigned s) {
        if (s < steps) {
            fetch<rows>(stage_of(s), a, block_row, s * step);
            fetch<columns>(stage_of(s) + rows * step, b, block_column, s * step);
        }
        commit();  // past the last step, too, so that the groups count the steps
    };
    const auto load_product = [&](unsigned turn, unsigned s, unsigned product) {
        load<product_row_tiles>(of_a[turn], stage_of(s), warp_row, product * product_k_tiles);
        load<1>(of_b[turn], stage_of(s), rows + warp_column, product * product_k_tiles);
    };

    for (unsigned s = 0; s < stages - 1; ++s) fetch_step(s);
    await_stage();
    load_product(0, 0, 0);
    for (unsigned s = 0; s < steps; ++s) {
        fetch_step(s + stages - 1);  // to the stage before, which all have read
#pragma unroll
        for (unsigned i = 0; i < products_of_stage; ++i) {
            if (i + 1 < products_of_stage) load_product((i + 1) % 2, s, i + 1);
            else if (s + 1 < steps) {
                await_stage();
                load_product(0, s + 1, 0);
            }
            counts.add(of_a[i % 2], of_b[i % 2]);
        }
    }
}
