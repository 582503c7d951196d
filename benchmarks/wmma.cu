// The matrix product c = a b of a (m, k) and b (k, n), f16 row by row in memory, by the WMMA API: c in f32.
//
// A warp computes a tile of 16 x 16 straight from global memory; m, n and k are multiples of 16.

#include <mma.h>

using namespace nvcuda;

enum : unsigned { tile = 16, warp_size = 32, warps = 4 };

// The block is (warp_size, warps), and its warps' tiles are neighbours in a row of c.
extern "C" __global__ void __launch_bounds__(warp_size* warps)
wmma_f16(const __half* __restrict__ a, const __half* __restrict__ b, float* __restrict__ c, unsigned n, unsigned k)
{
    const unsigned row = blockIdx.y * tile, column = (blockIdx.x * warps + threadIdx.y) * tile;
    wmma::fragment<wmma::matrix_a, tile, tile, tile, __half, wmma::row_major> of_a;
    wmma::fragment<wmma::matrix_b, tile, tile, tile, __half, wmma::row_major> of_b;
    wmma::fragment<wmma::accumulator, tile, tile, tile, float> sums;
    wmma::fill_fragment(sums, 0.0f);
    for (unsigned first = 0; first < k; first += tile) {
        wmma::load_matrix_sync(of_a, a + row * k + first, k);
        wmma::load_matrix_sync(of_b, b + first * n + column, n);
        wmma::mma_sync(sums, of_a, of_b, sums);
    }
    wmma::store_matrix_sync(c + row * n + column, sums, n, wmma::mem_row_major);
}
