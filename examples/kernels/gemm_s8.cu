// The matrix product c = a b of a (m, k) and b (k, n), s8 row by row in memory, on tensor cores: c in s32.
//
// A warp computes a tile of 16 x 16 with the WMMA API. Which lane holds which element of a fragment is the
// hardware's own business: elements are loaded, multiplied and stored a tile at a time. Tiles that lie whole
// in a matrix are taken straight from global memory, if its rows are aligned; others go through a tile of
// shared memory, with zeros past the edge.

#include <mma.h>

using namespace nvcuda;

enum : unsigned { tile = 16, warp_size = 32, warps = 4 };

template <typename Element> struct Matrix {
    Element* elements;
    unsigned rows, columns;

    // WMMA reads and writes rows in pieces: of s8 elements 16 bytes, of s32 ones 32 bytes.
    __device__ bool holds_tile(unsigned row, unsigned column) const
    {
        const unsigned piece = sizeof(Element) == 1 ? 16 : 8;
        return row + tile <= rows && column + tile <= columns && columns % piece == 0;
    }

    __device__ bool holds(unsigned row, unsigned column) const { return row < rows && column < columns; }

    __device__ Element& at(unsigned row, unsigned column) const { return elements[row * columns + column]; }
};

template <typename Fragment>
__device__ inline void load(Fragment& fragment, Matrix<const signed char> matrix, unsigned row,
                            unsigned column, signed char* stage)
{
    if (matrix.holds_tile(row, column)) {
        wmma::load_matrix_sync(fragment, &matrix.at(row, column), matrix.columns);
        return;
    }
    __syncwarp();  // the tile that was here before has been read
    for (unsigned i = threadIdx.x; i < tile * tile; i += warp_size) {
        const unsigned y = row + i / tile, x = column + i % tile;
        stage[i] = matrix.holds(y, x) ? matrix.at(y, x) : 0;
    }
    __syncwarp();
    wmma::load_matrix_sync(fragment, stage, tile);
}

template <typename Fragment>
__device__ inline void store(Matrix<int> matrix, unsigned row, unsigned column, const Fragment& fragment,
                             int* stage)
{
    if (matrix.holds_tile(row, column)) {
        wmma::store_matrix_sync(&matrix.at(row, column), fragment, matrix.columns, wmma::mem_row_major);
        return;
    }
    wmma::store_matrix_sync(stage, fragment, tile, wmma::mem_row_major);
    __syncwarp();
    for (unsigned i = threadIdx.x; i < tile * tile; i += warp_size) {
        const unsigned y = row + i / tile, x = column + i % tile;
        if (matrix.holds(y, x)) matrix.at(y, x) = stage[i];
    }
}

// The block is (warp_size, warps).
extern "C" __global__ void __launch_bounds__(warp_size* warps)
gemm_s8(const signed char* __restrict__ a, const signed char* __restrict__ b, int* __restrict__ c,
        unsigned m, unsigned n, unsigned k)
{
    __shared__ alignas(32) signed char stages[warps][2][tile * tile];
    __shared__ alignas(32) int results[warps][tile * tile];
    const unsigned warp = threadIdx.y;
    const unsigned row = blockIdx.y * tile, column = (blockIdx.x * warps + warp) * tile;
    if (column >= n) return;

    wmma::fragment<wmma::matrix_a, tile, tile, tile, signed char, wmma::row_major> of_a;
    wmma::fragment<wmma::matrix_b, tile, tile, tile, signed char, wmma::row_major> of_b;
    wmma::fragment<wmma::accumulator, tile, tile, tile, int> sums;
    wmma::fill_fragment(sums, 0);
    for (unsigned first = 0; first < k; first += tile) {
        load(of_a, {a, m, k}, row, first, stages[warp][0]);
        load(of_b, {b, k, n}, first, column, stages[warp][1]);
        wmma::mma_sync(sums, of_a, of_b, sums);
    }
    store({c, m, n}, row, column, sums, results[warp]);
}
