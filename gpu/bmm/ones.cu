// The ones of lines, a warp for each: for products that do not count them, of lines that came without.

#include "bmm/warp.cuh"

extern "C" __global__ void __launch_bounds__(128)
count_ones(const uint4* __restrict__ pieces, unsigned* __restrict__ ones, unsigned lines, unsigned k_pieces)
{
    const unsigned line = number_of_this_warp(), lane = lane_of_this_thread();
    if (line >= lines) return;
    unsigned mine = 0;
    for (unsigned i = lane; i < k_pieces; i += warp_size) {
        const uint4 piece = pieces[(Index)line * k_pieces + i];
        mine += __popc(piece.x) + __popc(piece.y) + __popc(piece.z) + __popc(piece.w);
    }
#pragma unroll
    for (unsigned distance = 1; distance < warp_size; distance *= 2)
        mine += __shfl_xor_sync(all_lanes, mine, distance);
    if (lane == 0) ones[line] = mine;
}
