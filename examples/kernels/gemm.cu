// The matrix product c = a b of a (m, k) and b (k, n), row by row in memory.
//
// A block computes a tile of c, a thread one element of it. Tiles of a and b go through shared memory, so
// that each element is read from global memory once for 16 threads. An element is one chain of fused
// multiply-adds over k in ascending order; zeros past the edge leave it as it is.

enum : unsigned { tile = 16 };  // the block is (tile, tile)

extern "C" __global__ void gemm(const float* __restrict__ a, const float* __restrict__ b,
                                float* __restrict__ c, unsigned m, unsigned n, unsigned k)
{
    __shared__ float of_a[tile][tile], of_b[tile][tile];
    const unsigned x = threadIdx.x, y = threadIdx.y;
    const unsigned row = blockIdx.y * tile + y, column = blockIdx.x * tile + x;
    float sum = 0;
    for (unsigned first = 0; first < k; first += tile) {
        of_a[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0;
        of_b[y][x] = first + y < k && column < n ? b[(first + y) * n + column] : 0;
        __syncthreads();
        for (unsigned i = 0; i < tile; ++i) sum = fmaf(of_a[y][i], of_b[i][x], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}
