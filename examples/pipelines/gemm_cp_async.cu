// The matrix product c = a b of a (m, k) and b (k, n), f16 row by row in memory, on tensor cores of sm_80: c in
// f32. A pipeline of STAGES tiles in shared memory hides the way from global memory.
//
// A block of four warps computes a tile of 64 x 64, a warp a quarter of it as 2 x 4 products of 16 x 8. While
// it multiplies the tiles of one step along k, cp.async brings those of the next STAGES - 1. Each thread copies
// pieces of eight elements, 16 bytes; what lies past an edge of a matrix is filled with zeros by src-size
// (PTX ISA 9.7.9.25.3), so the edges may be anywhere. Only the rows must start at multiples of 16 bytes:
// pitch_a and pitch_b are the elements from one row to the next, multiples of eight.

#include <cuda_fp16.h>

#ifndef STAGES
#define STAGES 3
#endif

enum : unsigned { tile = 64, depth = 32, warp_tile = 32, warp_size = 32, threads = 128, piece = 8 };

struct Matrix {
    const __half* elements;
    unsigned rows, columns, pitch;
};

struct Stage {
    alignas(16) __half a[tile * depth], b[depth * tile];
};

// Where an element of a tile lies. ldmatrix fetches pieces from eight rows at once, and a line of the 32 banks
// holds eight pieces: 64 / width rows of a tile. The pieces of a row are permuted by the number of its line.
template <unsigned width>
__device__ inline unsigned place(unsigned row, unsigned column)
{
    const unsigned line = row / (64 / width), pieces = width / piece;
    return row * width + (column / piece ^ line % pieces) * piece + column % piece;
}

__device__ inline unsigned shared_address(const __half* x)
{
    return (unsigned)__cvta_generic_to_shared(x);
}

// Start the copies of a tile of `height` x `width` elements.
template <unsigned height, unsigned width>
__device__ inline void fetch(__half* to, const Matrix& from, unsigned first_row, unsigned first_column)
{
    for (unsigned i = threadIdx.x; i < height * width / piece; i += threads) {
        const unsigned y = i / (width / piece), x = i % (width / piece) * piece;
        const unsigned row = first_row + y, column = first_column + x;
        const unsigned left = row < from.rows && column < from.columns ? from.columns - column : 0;
        const unsigned bytes = min(left, (unsigned)piece) * sizeof(__half);
        const __half* source = from.elements + (bytes ? (size_t)row * from.pitch + column : 0);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(shared_address(&to[place<width>(y, x)])), "l"(source), "r"(bytes)
                     : "memory");
    }
}

__device__ inline void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until at most `pending` of this thread's last groups have not ended.
template <unsigned pending>
__device__ inline void wait()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
}

__device__ inline void load(unsigned (&x)[4], const __half* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void load_transposed(unsigned (&x)[4], const __half* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Add the product of a stage's tiles to a warp's quarter of the sums.
__device__ inline void multiply(float (&sums)[2][4][4], const Stage& stage, unsigned warp_row, unsigned warp_column)
{
    const unsigned lane = threadIdx.x % warp_size;
    for (unsigned k = 0; k < depth; k += 16) {
        unsigned of_a[2][4], of_b[2][4];
        for (unsigned i = 0; i < 2; ++i) {
            // Lanes 0-15 name the rows of the left half, lanes 16-31 those of the right one.
            const unsigned row = warp_row + 16 * i + lane % 16, column = k + lane / 16 * piece;
            load(of_a[i], &stage.a[place<depth>(row, column)]);
        }
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned row = k + lane % 16, column = warp_column + 16 * i + lane / 16 * piece;
            load_transposed(of_b[i], &stage.b[place<tile>(row, column)]);
        }
        for (unsigned i = 0; i < 2; ++i)
            for (unsigned j = 0; j < 4; ++j)
                multiply_add(sums[i][j], of_a[i], of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(threads)
gemm_cp_async(const __half* __restrict__ a, const __half* __restrict__ b, float* __restrict__ c, unsigned m,
              unsigned n, unsigned k, unsigned pitch_a, unsigned pitch_b)
{
    __shared__ Stage stages[STAGES];
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const unsigned warp_row = warp / 2 * warp_tile, warp_column = warp % 2 * warp_tile;
    const unsigned block_row = blockIdx.y * tile, block_column = blockIdx.x * tile;
    const Matrix of_a = {a, m, k, pitch_a}, of_b = {b, k, n, pitch_b};
    const unsigned steps = (k + depth - 1) / depth;
    float sums[2][4][4] = {};

    // One group for each step, empty past the last one, so that the groups count the steps.
    const auto fetch_step = [&](unsigned step) {
        if (step < steps) {
            fetch<tile, depth>(stages[step % STAGES].a, of_a, block_row, step * depth);
            fetch<depth, tile>(stages[step % STAGES].b, of_b, step * depth, block_column);
        }
        commit();
    };

    for (unsigned step = 0; step < STAGES - 1; ++step) fetch_step(step);
    for (unsigned step = 0; step < steps; ++step) {
        wait<STAGES - 2>();  // this thread's copies of the step have ended,
        __syncthreads();     // those of the others, too; and all have read the stage that comes next
        fetch_step(step + STAGES - 1);
        multiply(sums, stages[step % STAGES], warp_row, warp_column);
    }

    // Of an accumulator a lane has two neighbours in row lane / 4, and two in the row eight below.
    for (unsigned i = 0; i < 2; ++i)
        for (unsigned j = 0; j < 4; ++j)
            for (unsigned at = 0; at < 4; ++at) {
                const unsigned row = block_row + warp_row + 16 * i + lane / 4 + at / 2 * 8;
                const unsigned column = block_column + warp_column + 8 * j + lane % 4 * 2 + at % 2;
                if (row < m && column < n) c[(size_t)row * n + column] = sums[i][j][at];
            }
}
