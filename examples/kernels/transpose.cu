// The transpose of a matrix through shared memory.
//
// A warp that read a row and wrote a column would touch 32 distant places. Here a block brings a tile of
// 32 x 32 into shared memory row by row and takes it out column by column, so that on both sides the lanes
// of a warp touch neighbours in global memory.

enum : unsigned { tile = 32, rows_at_a_time = 8 };  // the block is (tile, rows_at_a_time)

extern "C" __global__ void transpose(const float* __restrict__ in, float* __restrict__ out, unsigned rows,
                                     unsigned columns)
{
    // Shared memory has 32 banks. The column of padding puts the elements of a column into different ones.
    __shared__ float elements[tile][tile + 1];
    const unsigned first_row = blockIdx.y * tile, first_column = blockIdx.x * tile;
    for (unsigned y = threadIdx.y; y < tile; y += rows_at_a_time) {
        const unsigned row = first_row + y, column = first_column + threadIdx.x;
        if (row < rows && column < columns) elements[y][threadIdx.x] = in[row * columns + column];
    }
    __syncthreads();
    for (unsigned y = threadIdx.y; y < tile; y += rows_at_a_time) {
        const unsigned row = first_row + threadIdx.x, column = first_column + y;
        if (row < rows && column < columns) out[column * rows + row] = elements[threadIdx.x][y];
    }
}
