// From packed words to what a bit tensor core multiplies, and back (fsb.cuh).
//
// Words along k, as gpu.pack makes them: word w of line l at words[w * lines + l]. A block takes 32 lines, a
// lane one of them, and its warps take the pieces by turns.

#include "bmm/fsb.cuh"

enum : unsigned { warps = 8 };

extern "C" __global__ void __launch_bounds__(warps * warp_size)
arrange(const unsigned* __restrict__ words, uint4* __restrict__ pieces, unsigned* __restrict__ ones, unsigned lines,
        unsigned padded_lines, unsigned k)
{
    __shared__ unsigned ones_of[warps][warp_size];
    const unsigned lane = lane_of_this_thread(), warp = threadIdx.x / warp_size;
    const unsigned line = blockIdx.x * warp_size + lane;
    const unsigned k_words = divide_up(k, 32), k_pieces = divide_up(k, tile_bits);
    unsigned mine = 0;
    for (unsigned piece = warp; piece < k_pieces; piece += warps) {
        unsigned of_piece[tile_words];
#pragma unroll
        for (unsigned i = 0; i < tile_words; ++i) {
            const unsigned w = piece * tile_words + i;
            of_piece[i] = line < lines && w < k_words ? words[(Index)w * lines + line] : 0;
            mine += __popc(of_piece[i]);
        }
        if (line < padded_lines)
            pieces[piece_at(line, piece, k_pieces)] = make_uint4(of_piece[0], of_piece[1], of_piece[2], of_piece[3]);
    }
    ones_of[warp][lane] = mine;
    __syncthreads();
    if (warp != 0 || line >= lines) return;
    mine = 0;
#pragma unroll
    for (unsigned i = 0; i < warps; ++i) mine += ones_of[i][lane];
    ones[line] = mine;
}

extern "C" __global__ void __launch_bounds__(warps * warp_size)
restore(const uint4* __restrict__ pieces, unsigned* __restrict__ words, unsigned lines, unsigned k)
{
    const unsigned lane = lane_of_this_thread(), warp = threadIdx.x / warp_size;
    const unsigned line = blockIdx.x * warp_size + lane;
    const unsigned k_words = divide_up(k, 32), k_pieces = divide_up(k, tile_bits);
    if (line >= lines) return;
    for (unsigned piece = warp; piece < k_pieces; piece += warps) {
        const uint4 of_piece = pieces[piece_at(line, piece, k_pieces)];
        const unsigned four[tile_words] = {of_piece.x, of_piece.y, of_piece.z, of_piece.w};
#pragma unroll
        for (unsigned i = 0; i < tile_words; ++i) {
            const unsigned w = piece * tile_words + i;
            if (w < k_words) words[(Index)w * lines + line] = four[i];
        }
    }
}
