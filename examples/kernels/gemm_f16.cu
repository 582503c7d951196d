// The matrix product c = a b of a (m, k) and b (k, n), f16 row by row in memory, on tensor cores: c in f32.
//
// A block of four warps computes a tile of 64 x 64, a warp a quarter of it as 2 x 4 products of 16 x 8. In
// steps of 64 along k, tiles of a and b come into shared memory, zeros past the edge; ldmatrix deals them
// out to the lanes as mma.sync takes them (PTX ISA 9.7.14.5.8), b transposed, for it lies there row by row.

#include <cuda_fp16.h>

enum : unsigned { tile = 64, warp_tile = 32, warp_size = 32, threads = 128, piece = 8 };

// Where an element of a tile lies. ldmatrix fetches pieces of eight elements, 16 bytes, from eight rows at
// once. A row is as long as all 32 banks, so in every row the pieces lie in another order.
__device__ inline unsigned place(unsigned row, unsigned column)
{
    return row * tile + (column / piece ^ row % piece) * piece + column % piece;
}

__device__ inline void copy_tile(__half* to, const __half* __restrict__ from, unsigned first_row,
                                 unsigned first_column, unsigned rows, unsigned columns)
{
    const unsigned column = first_column + threadIdx.x % tile;
    for (unsigned y = threadIdx.x / tile; y < tile; y += threads / tile) {
        const unsigned row = first_row + y;
        const bool inside = row < rows && column < columns;
        to[place(y, threadIdx.x % tile)] = inside ? from[row * columns + column] : __half{};
    }
}

__device__ inline void load(unsigned (&x)[4], const __half* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

__device__ inline void load_transposed(unsigned (&x)[4], const __half* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(threads)
gemm_f16(const __half* __restrict__ a, const __half* __restrict__ b, float* __restrict__ c, unsigned m,
         unsigned n, unsigned k)
{
    __shared__ alignas(16) __half of_a[tile * tile], of_b[tile * tile];
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const unsigned warp_row = warp / 2 * warp_tile, warp_column = warp % 2 * warp_tile;
    const unsigned block_row = blockIdx.y * tile, block_column = blockIdx.x * tile;
    float sums[2][4][4] = {};

    for (unsigned first = 0; first < k; first += tile) {
        copy_tile(of_a, a, block_row, first, m, k);
        copy_tile(of_b, b, first, block_column, k, n);
        __syncthreads();
        for (unsigned depth = 0; depth < tile; depth += 16) {
            unsigned fragment_a[2][4], fragment_b[2][4];
            for (unsigned i = 0; i < 2; ++i) {
                // Lanes 0-15 name the rows of the left half, lanes 16-31 those of the right one.
                const unsigned row = warp_row + 16 * i + lane % 16, column = depth + lane / 16 * piece;
                load(fragment_a[i], &of_a[place(row, column)]);
            }
            for (unsigned i = 0; i < 2; ++i) {
                const unsigned row = depth + lane % 16, column = warp_column + 16 * i + lane / 16 * piece;
                load_transposed(fragment_b[i], &of_b[place(row, column)]);
            }
            for (unsigned i = 0; i < 2; ++i)
                for (unsigned j = 0; j < 4; ++j) {
                    const unsigned (&b_of_two)[4] = fragment_b[j / 2];
                    multiply_add(sums[i][j], fragment_a[i], b_of_two[j % 2 * 2], b_of_two[j % 2 * 2 + 1]);
                }
        }
        __syncthreads();
    }

    // Of an accumulator a lane has two neighbours in row lane / 4, and two in the row eight below.
    for (unsigned i = 0; i < 2; ++i)
        for (unsigned j = 0; j < 4; ++j)
            for (unsigned at = 0; at < 4; ++at) {
                const unsigned row = block_row + warp_row + 16 * i + lane / 4 + at / 2 * 8;
                const unsigned column = block_column + warp_column + 8 * j + lane % 4 * 2 + at % 2;
                if (row < m && column < n) c[row * n + column] = sums[i][j][at];
            }
}
