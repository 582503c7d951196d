// The new factor before normalisation (MM-CSF, algorithm 1): A = Y * V^-1, with what norms and fit need of it.
//
// Products and sums are double, in a fixed order; A is rounded to its element once, and the sums are of what
// was stored.

#include "cpd/tile.cuh"

enum : unsigned { down = threads / across, tile_rows = 4 * down };

struct alignas(2 * sizeof(Element)) Pair {
    Element first, second;
};

// Stores two neighbours of a row of `columns`, the first in an even column; at once, where rows begin at pairs.
__device__ inline void store_pair(Element* row, unsigned column, unsigned columns, Element first, Element second)
{
    if (columns % 2 == 0) {
        if (column < columns) *reinterpret_cast<Pair*>(row + column) = {first, second};
    } else {
        if (column < columns) row[column] = first;
        if (column + 1 < columns) row[column + 1] = second;
    }
}

// a (rows, rank) = y (rows, rank) * inverse (rank, rank), and for each of the gridDim.x blocks that share the rows
//
//   sums[block][0][r] = sum of a[i, r] ** 2        sums[block][1][r] = sum of y[i, r] * a[i, r]
//
// blockIdx.y is the tile of columns. A thread has the rows `down` apart from one another.
extern "C" __global__ void __launch_bounds__(threads)
apply(const Element* __restrict__ y, const double* __restrict__ inverse, Element* __restrict__ a,
      double* __restrict__ sums, Index rows, unsigned rank)
{
    __shared__ __align__(16) double left[tile_rows][pitch], right[tile][tile];
    const unsigned place = threadIdx.x % across, line = threadIdx.x / across;
    const unsigned chunks = divide_up(rank, tile), first_column = blockIdx.y * tile;
    double squares[4] = {}, products[4] = {};
    for (Index first_row = (Index)blockIdx.x * tile_rows; first_row < rows; first_row += (Index)gridDim.x * tile_rows) {
        double sum[4][4] = {};
        for (unsigned chunk = 0; chunk < chunks; ++chunk) {
            const unsigned from = (blockIdx.y + 1 + chunk) % chunks * tile;  // the block's own columns last
            const Loaded<tile_rows> loaded(y, first_row, rows, from, rank);
            __syncthreads();
#pragma unroll
            for (unsigned i = 0; i < loaded.count; ++i)
                left[(threadIdx.x + i * threads) / tile][threadIdx.x % tile] = loaded.of[i];
            for (unsigned i = threadIdx.x; i < tile * tile; i += threads) {
                const unsigned row = from + i / tile, column = first_column + i % tile;
                right[i / tile][i % tile] = row < rank && column < rank ? inverse[row * rank + column] : 0;
            }
            __syncthreads();
#pragma unroll 4
            for (unsigned k = 0; k < tile; k += 2) {
                const Quad even(right[k], place), odd(right[k + 1], place);
#pragma unroll
                for (unsigned i = 0; i < 4; ++i) {
                    const double2 x = *reinterpret_cast<const double2*>(&left[line + i * down][k]);
#pragma unroll
                    for (unsigned j = 0; j < 4; ++j) sum[i][j] = fma(x.y, odd.of[j], fma(x.x, even.of[j], sum[i][j]));
                }
            }
        }
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            const double* const own = left[line + i * down];
            const Index row = first_row + line + i * down;
            Element rounded[4];
#pragma unroll
            for (unsigned j = 0; j < 4; ++j) {
                rounded[j] = sum[i][j];  // 0 past an edge
                squares[j] = fma((double)rounded[j], (double)rounded[j], squares[j]);
                products[j] = fma(own[column_of(place, j)], (double)rounded[j], products[j]);
            }
            if (row >= rows) continue;
            store_pair(a + row * rank, first_column + column_of(place, 0), rank, rounded[0], rounded[1]);
            store_pair(a + row * rank, first_column + column_of(place, 2), rank, rounded[2], rounded[3]);
        }
    }
    // The block's sums, over the threads that share a column, in the order of their lines.
    __syncthreads();
    double(*const parts)[2][tile] = reinterpret_cast<double(*)[2][tile]>(left);
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
        parts[line][0][column_of(place, j)] = squares[j];
        parts[line][1][column_of(place, j)] = products[j];
    }
    __syncthreads();
    const unsigned which = threadIdx.x / tile, column = threadIdx.x % tile;
    if (which > 1 || first_column + column >= rank) return;
    double sum = 0;
    for (unsigned i = 0; i < down; ++i) sum += parts[i][which][column];
    sums[((Index)blockIdx.x * 2 + which) * rank + first_column + column] = sum;
}

// A column's norm, what to multiply it with, and its share of <X, model>: from the blocks' sums, a warp for each.
// A column of zeros keeps them: its weight is 0, and so is what it is multiplied with.
extern "C" __global__ void __launch_bounds__(threads)
weigh(const double* __restrict__ sums, double* __restrict__ weights, double* __restrict__ scale,
      double* __restrict__ products, unsigned blocks, unsigned rank)
{
    const unsigned column = (blockIdx.x * threads + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (column >= rank) return;
    double square = 0, product = 0;
    for (unsigned block = lane; block < blocks; block += 32) {
        square += sums[(Index)block * 2 * rank + column];
        product += sums[((Index)block * 2 + 1) * rank + column];
    }
    for (unsigned distance = 16; distance; distance /= 2) {
        square += __shfl_xor_sync(0xffffffffu, square, distance);
        product += __shfl_xor_sync(0xffffffffu, product, distance);
    }
    if (lane) return;
    const double norm = sqrt(square);
    weights[column] = norm;
    scale[column] = norm == 0 ? 0 : 1 / norm;
    products[column] = product;
}
