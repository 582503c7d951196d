// Where the bits of a matrix lie that a bit tensor core multiplies: lines (rows of A, columns of B) of k bits,
// padded with zeros to whole pieces of 128 bits.
//
//   -DFORMAT_FSB     tiles of 8 lines x 128 bits, one after another along k (BTC, section 5.1, figure 14)
//   -DFORMAT_LINES   one line after another

#pragma once
#include "bmm/tensor_core.cuh"
#include "bmm/warp.cuh"

// The number of the piece of a line, where a line has `pieces` of them.
__device__ inline Index piece_at(unsigned line, unsigned piece, unsigned pieces)
{
#if defined(FORMAT_FSB)
    return ((Index)(line / tile_lines) * pieces + piece) * tile_lines + line % tile_lines;
#else
    return (Index)line * pieces + piece;
#endif
}
