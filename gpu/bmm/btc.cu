// The +-1 matrix product of packed operands on bit tensor cores (BTC, section 5.2).
//
// Compiled once per scheme and output (output.cuh):
//
//   -DSCHEME=btc1 -DFORMAT_LINES   design 1: every warp loads its fragments from global memory (listing 3)
//   -DSCHEME=btc2 -DFORMAT_LINES   design 2: a block's lines go through shared memory, 128 bits at a time,
//                                  and serve all of its warps (listing 4)
//   -DSCHEME=btc3 -DFORMAT_FSB     design 3: the same from tiles, which are read as they lie (listing 5)
//   -DSCHEME=mma -DFORMAT_LINES    a block's lines go through a ring of -DSTAGES stages (ring.cuh), from sm_80 on
//
//   -DROWS -DCOLUMNS             the tile of C of a block, multiples of those of a warp
//   -DWARP_ROWS -DWARP_COLUMNS   that of a warp, multiples of 32
//   -DSTEP                       pieces of 128 bits of k in shared memory at once, or in a stage: even; 0 in design 1
//
// A warp has as many products in flight as its tile holds, for a tensor core takes long but never waits: the
// listings' single one of 8 x 8 leaves it idle. Where it counts common ones, `ones` of both operands correct it
// (tensor_core.cuh). What lies past the edge of A or B is that of the last line, or zeros, and is not stored.

#include "bmm/fsb.cuh"
#include "bmm/output.cuh"
#include "bmm/tensor_core.cuh"

enum : unsigned {
    rows = ROWS,
    columns = COLUMNS,
    warp_rows = WARP_ROWS,
    warp_columns = WARP_COLUMNS,
    warps_across = columns / warp_columns,
    threads = rows / warp_rows * warps_across * warp_size,
    step = STEP,
    products_down = warp_rows / product_rows,
    products_across = warp_columns / product_columns,
    words_of_a = warp_rows / tile_lines * product_k_tiles,  // in registers, for one product along k
    words_of_b = warp_columns / tile_lines * product_k_tiles,
};

struct Operand {
    const uint4* pieces;
    unsigned lines, k_pieces;
};

struct Counts {
    int of[products_down][products_across][product_counts] = {};

    __device__ void add(const unsigned (&a)[words_of_a], const unsigned (&b)[words_of_b])
    {
#pragma unroll
        for (unsigned i = 0; i < products_down; ++i)
#pragma unroll
            for (unsigned j = 0; j < products_across; ++j)
                multiply_fragments(of[i][j], a + i * product_words_of_a, b + j * product_words_of_b);
    }
};

#if STEP == 0
// This lane's words of fragments that begin at a line and a piece.
template <unsigned tiles_of_lines, unsigned count>
__device__ void load(unsigned (&words)[count], Operand x, unsigned first_line, unsigned first_piece)
{
    const unsigned lane = lane_of_this_thread();
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
        const unsigned line = first_line + line_tile_of<tiles_of_lines>(i) * tile_lines + lane / tile_words;
        const unsigned piece = first_piece + k_tile_of<tiles_of_lines>(i);
        const uint4* from = x.pieces + piece_at(min(line, x.lines - 1), piece, x.k_pieces);
        words[i] = piece < x.k_pieces ? reinterpret_cast<const unsigned*>(from)[lane % tile_words] : 0;
    }
}

__device__ void multiply(Counts& counts, Operand a, Operand b, unsigned block_row, unsigned block_column,
                         unsigned warp_row, unsigned warp_column)
{
#pragma unroll 2
    for (unsigned piece = 0; piece < a.k_pieces; piece += product_k_tiles) {
        unsigned of_a[words_of_a], of_b[words_of_b];
        load<product_row_tiles>(of_a, a, block_row + warp_row, piece);
        load<1>(of_b, b, block_column + warp_column, piece);
        counts.add(of_a, of_b);
    }
}
#elif defined(STAGES)
#include "bmm/ring.cuh"
#else
// What a thread brings in a step: pieces of `lines` lines. Neighbours take the lines of a tile, whatever the format.
template <unsigned lines> struct Courier {
    enum : unsigned { count = lines * step / threads };
    static_assert(count * threads == lines * step, "every thread must bring as much");
    const uint4* from[count];
    uint4 held[count];
    __device__ static unsigned place(unsigned i) { return threadIdx.x + i * threads; }
    __device__ static unsigned piece_of(unsigned i) { return place(i) / tile_lines % step; }

    __device__ Courier(Operand x, unsigned first_line)
    {
#pragma unroll
        for (unsigned i = 0; i < count; ++i) {
            const unsigned line = first_line + place(i) / (tile_lines * step) * tile_lines + place(i) % tile_lines;
            from[i] = x.pieces + piece_at(min(line, x.lines - 1), piece_of(i), x.k_pieces);
        }
    }
    __device__ void fetch(unsigned first_piece, unsigned k_pieces)
    {
        const unsigned stride = piece_at(0, 1, 1);
#pragma unroll
        for (unsigned i = 0; i < count; ++i)
            if (first_piece + piece_of(i) < k_pieces) held[i] = from[i][(Index)first_piece * stride];
            else held[i] = make_uint4(0, 0, 0, 0);
    }
    __device__ void put(uint4* tiles) const
    {
#pragma unroll
        for (unsigned i = 0; i < count; ++i) tiles[place(i)] = held[i];
    }
};

// The line that this lane points at, in shared memory, for the first four tiles of fragments from a line on.
template <unsigned tiles_of_lines> __device__ const uint4* line_of_this_lane(const uint4* tiles, unsigned first_line)
{
    const unsigned lane = lane_of_this_thread(), word = lane / tile_lines;
    const unsigned tile = first_line / tile_lines + line_tile_of<tiles_of_lines>(word);
    return tiles + (tile * step + k_tile_of<tiles_of_lines>(word)) * tile_lines + lane % tile_lines;
}

// This lane's words of fragments that begin there.
template <unsigned count> __device__ void load(unsigned (&words)[count], const uint4* line)
{
#pragma unroll
    for (unsigned i = 0; i < count; i += 4) load_four_tiles(words + i, line + i / product_k_tiles * step * tile_lines);
}

__device__ void multiply(Counts& counts, Operand a, Operand b, unsigned block_row, unsigned block_column,
                         unsigned warp_row, unsigned warp_column)
{
    __shared__ uint4 tiles_of_a[2][rows * step], tiles_of_b[2][columns * step];
    const uint4* const line_of_a = line_of_this_lane<product_row_tiles>(tiles_of_a[0], warp_row);
    const uint4* const line_of_b = line_of_this_lane<1>(tiles_of_b[0], warp_column);
    Courier<rows> for_a(a, block_row);
    Courier<columns> for_b(b, block_column);
    for_a.fetch(0, a.k_pieces);
    for_b.fetch(0, a.k_pieces);
    for_a.put(tiles_of_a[0]);
    for_b.put(tiles_of_b[0]);
    __syncthreads();
    for (unsigned first = 0, stage = 0; first < a.k_pieces; first += step, stage ^= 1) {
        const bool more = first + step < a.k_pieces;
        if (more) {  // on their way while these are multiplied
            for_a.fetch(first + step, a.k_pieces);
            for_b.fetch(first + step, a.k_pieces);
        }
#pragma unroll
        for (unsigned piece = 0; piece < step; piece += product_k_tiles) {
            unsigned of_a[words_of_a], of_b[words_of_b];
            load(of_a, line_of_a + (stage * rows * step + piece * tile_lines));
            load(of_b, line_of_b + (stage * columns * step + piece * tile_lines));
            counts.add(of_a, of_b);
        }
        if (more) {
            for_a.put(tiles_of_a[stage ^ 1]);
            for_b.put(tiles_of_b[stage ^ 1]);
        }
        __syncthreads();
    }
}
#endif

#if defined(OUTPUT_BITS)
// The words of 32 columns that a row of the warp's tile makes: a quad of lanes has two bits of each eight.
__device__ void store_row(const Counts& counts, unsigned i, unsigned half, unsigned ones_of_row,
                          const unsigned (&ones)[products_across][2], Output* c, unsigned m, unsigned n, unsigned k,
                          unsigned row, unsigned first_column THRESHOLDS)
{
    const unsigned pair = 2 * (lane_of_this_thread() % 4);
#pragma unroll
    for (unsigned w = 0; w < warp_columns / 32; ++w) {
        unsigned word = 0;
#pragma unroll
        for (unsigned j = 0; j < 4; ++j)
#pragma unroll
            for (unsigned at = 0; at < 2; ++at) {
                const unsigned bit = 8 * j + pair + at, column = first_column + 32 * w + bit;
                if (column >= n) continue;
                const int dot = dot_of(counts.of[i][4 * w + j][2 * half + at], k, ones_of_row, ones[4 * w + j][at]);
                word |= (unsigned)((dot >= thresholds[column]) != (flip[column] != 0)) << bit;
            }
        word |= __shfl_xor_sync(all_lanes, word, 1);
        word |= __shfl_xor_sync(all_lanes, word, 2);
        if (pair == 0 && row < m && first_column + 32 * w < n) c[(Index)(first_column / 32 + w) * m + row] = word;
    }
}
#else
// Two neighbours at a time: a quad of lanes fills a sector of 32 bytes.
__device__ void store_row(const Counts& counts, unsigned i, unsigned half, unsigned ones_of_row,
                          const unsigned (&ones)[products_across][2], Output* c, unsigned m, unsigned n, unsigned k,
                          unsigned row, unsigned first_column)
{
    if (row >= m) return;
#pragma unroll
    for (unsigned j = 0; j < products_across; ++j) {
        const unsigned column = first_column + 8 * j + 2 * (lane_of_this_thread() % 4);
        const int x = dot_of(counts.of[i][j][2 * half], k, ones_of_row, ones[j][0]);
        const int y = dot_of(counts.of[i][j][2 * half + 1], k, ones_of_row, ones[j][1]);
        int* const to = c + (Index)row * n + column;
        if (n % 2 == 0 && column < n) *reinterpret_cast<int2*>(to) = make_int2(x, y);
        if (n % 2 != 0 && column < n) to[0] = x;
        if (n % 2 != 0 && column + 1 < n) to[1] = y;
    }
}
#endif

extern "C" __global__ void __launch_bounds__(threads)
SCHEME(const uint4* __restrict__ a, const unsigned* __restrict__ ones_of_a, const uint4* __restrict__ b,
       const unsigned* __restrict__ ones_of_b, Output* __restrict__ c, unsigned m, unsigned n, unsigned k THRESHOLDS)
{
    const unsigned blocks_across = divide_up(n, columns), warp = threadIdx.x / warp_size;
    const unsigned block_row = blockIdx.x / blocks_across * rows, block_column = blockIdx.x % blocks_across * columns;
    const unsigned warp_row = warp / warps_across * warp_rows, warp_column = warp % warps_across * warp_columns;
    const unsigned k_pieces = divide_up(k, tile_bits);
    Counts counts;
    multiply(counts, {a, m, k_pieces}, {b, n, k_pieces}, block_row, block_column, warp_row, warp_column);

    const unsigned lane = lane_of_this_thread();
    const unsigned first_row = block_row + warp_row + lane / 4, first_column = block_column + warp_column;
    unsigned ones[products_across][2];
#pragma unroll
    for (unsigned j = 0; j < products_across; ++j)
#pragma unroll
        for (unsigned at = 0; at < 2; ++at)
            ones[j][at] = ones_of_b[min(first_column + 8 * j + 2 * (lane % 4) + at, n - 1)];
#pragma unroll
    for (unsigned i = 0; i < products_down; ++i)
#pragma unroll
        for (unsigned half = 0; half < product_row_tiles; ++half) {
            const unsigned row = first_row + i * product_rows + half * 8;
            store_row(counts, i, half, ones_of_a[min(row, m - 1)], ones, c, m, n, k, row,
                      first_column WITH_THRESHOLDS);
        }
}
