// The factor with columns of norm 1, and its Gram matrix A^T A (MM-CSF, algorithm 1), in one pass over the rows.

#include "cpd/tile.cuh"

enum : unsigned { groups = threads / (across * across), tile_rows = 2048 / tile };

// Tiles of the Gram matrix on and below its diagonal are numbered row by row.
__device__ inline void tile_at(unsigned number, unsigned& row, unsigned& column)
{
    for (row = 0; number > row; ++row) number -= row + 1;
    column = number;
}

// factor[i, r] = unscaled[i, r] * scale[r], and of each block's rows the partial sums of one tile of the Gram matrix:
//
//   partial[blockIdx.y][block][i][j] = sum of factor[row, first + i] * factor[row, other_first + j]
//
// blockIdx.y is the tile; those on the diagonal store the factor. A group of threads takes every groups-th row.
extern "C" __global__ void __launch_bounds__(threads)
normalise(const Element* __restrict__ unscaled, const double* __restrict__ scale, Element* __restrict__ factor,
          double* __restrict__ partial, Index rows, unsigned rank)
{
    __shared__ __align__(16) double memory[2][tile_rows][tile];
    unsigned tile_row, tile_column;
    tile_at(blockIdx.y, tile_row, tile_column);
    const bool on_diagonal = tile_row == tile_column;
    const double(*const left)[tile] = memory[0];
    const double(*const right)[tile] = memory[on_diagonal ? 0 : 1];
    const unsigned group = threadIdx.x / (across * across);
    const unsigned line = threadIdx.x / across % across, place = threadIdx.x % across;

    // Rows from `first_row` on, normalised, into one of the two tiles.
    const auto stage = [&](unsigned which, unsigned tile_number, Index first_row) {
        const unsigned first_column = tile_number * tile, column = first_column + threadIdx.x % tile;
        const double factor_of_column = column < rank ? scale[column] : 0;
        const Loaded<tile_rows> loaded(unscaled, first_row, rows, first_column, rank);
#pragma unroll
        for (unsigned i = 0; i < loaded.count; ++i) {
            const unsigned row = (threadIdx.x + i * threads) / tile;
            const Element rounded = loaded.of[i] * factor_of_column;
            memory[which][row][threadIdx.x % tile] = rounded;
            if (on_diagonal && first_row + row < rows && column < rank)
                factor[(first_row + row) * rank + column] = rounded;
        }
    };

    double sum[4][4] = {};
    for (Index first_row = (Index)blockIdx.x * tile_rows; first_row < rows; first_row += (Index)gridDim.x * tile_rows) {
        __syncthreads();
        stage(0, tile_row, first_row);
        if (!on_diagonal) stage(1, tile_column, first_row);
        __syncthreads();
#pragma unroll 4
        for (unsigned k = group; k < tile_rows; k += groups) {
            const Quad x(left[k], line), y(right[k], place);
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
#pragma unroll
                for (unsigned j = 0; j < 4; ++j) sum[i][j] = fma(x.of[i], y.of[j], sum[i][j]);
        }
    }
    // The sum over the groups, in their order.
    __syncthreads();
    double(*const parts)[tile][tile] = reinterpret_cast<double(*)[tile][tile]>(memory);
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) parts[group][column_of(line, i)][column_of(place, j)] = sum[i][j];
    __syncthreads();
    double* const mine = partial + ((Index)blockIdx.y * gridDim.x + blockIdx.x) * (tile * tile);
    for (unsigned i = threadIdx.x; i < tile * tile; i += threads) {
        double all = 0;
        for (unsigned g = 0; g < groups; ++g) all += parts[g][i / tile][i % tile];
        mine[i] = all;
    }
}

// Adds the blocks' partial sums up: 32 neighbouring elements of a tile for a block of 32 x 32 threads, each of
// which sums every 32nd part; then both triangles of the Gram matrix are stored.
extern "C" __global__ void __launch_bounds__(1024)
sum_gram(const double* __restrict__ partial, double* __restrict__ grams, unsigned blocks, unsigned rank, unsigned mode)
{
    __shared__ double parts[32][33];
    const unsigned element = blockIdx.x * 32 + threadIdx.x;
    const double* const mine = partial + (Index)blockIdx.y * blocks * (tile * tile) + element;
    double sum = 0;
#pragma unroll 4
    for (unsigned block = threadIdx.y; block < blocks; block += 32) sum += mine[(Index)block * (tile * tile)];
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = parts[threadIdx.x][threadIdx.y];  // a warp has the 32 parts of one element now
    for (unsigned distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x) return;
    unsigned tile_row, tile_column;
    tile_at(blockIdx.y, tile_row, tile_column);
    const unsigned of_warp = blockIdx.x * 32 + threadIdx.y;
    const unsigned row = tile_row * tile + of_warp / tile, column = tile_column * tile + of_warp % tile;
    if (row >= rank || column >= rank) return;
    double* const gram = grams + (Index)mode * rank * rank;
    gram[row * rank + column] = sum;
    if (tile_row != tile_column) gram[column * rank + row] = sum;
}
