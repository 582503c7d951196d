// The matrix product of ±1 on tensor cores of sm_90a: c = a b in int32, for a (m, k) and b (k, n) as bits, 1 for +1.
//
// With the ones that a row of a and a column of b have in common, and those that each of them has alone,
//
//     c = k - 2 ones(row) - 2 ones(column) + 4 ones(row & column)
//
// wgmma counts the last ones; the host passes the sum of the others, k - 2 ones(row) and -2 ones(column). To the
// tensor maps both operands are matrices of bytes, the rows of a and the columns of b, k / 8 bytes each. A step
// along k is 128 bytes, 1024 bits. What lies outside is zeros, adds nothing to the count, and so m, n and k are free.

#include "warpgroups.cuh"

enum : unsigned { product_bytes = 32 };  // of a row or column, k = 256

// Add the ones of (row & column), or begin with them.
__device__ inline void multiply_add(int (&d)[64], uint64_t a, uint64_t b, bool add)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc " SUMS ", %64, %65, add;\n"
                 "}"
                 : OPERANDS("+r", d)
                 : "l"(a), "l"(b), "r"((int)add));
}

// Issue the products of a step: a product takes 32 bytes of each row, inside the pattern of the swizzle.
__device__ inline void multiply(int (&sums)[64], const Stage& stage, bool add)
{
    const unsigned rows = threadIdx.x / warpgroup * group_rows;
    const uint64_t a = describe(&stage.a[rows * span], 0, atom), b = describe(stage.b, 0, atom);
#pragma unroll
    for (unsigned at = 0; at < span; at += product_bytes)
        multiply_add(sums, a + at / 16, b + at / 16, add || at > 0);
}

extern "C" __global__ void __launch_bounds__(threads)
gemm_wgmma_b1(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
              const int* __restrict__ of_rows, const int* __restrict__ of_columns, int* __restrict__ c, unsigned m,
              unsigned n, unsigned pitch, unsigned steps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Ring& ring = *reinterpret_cast<Ring*>(memory);
    const Tiles tiles(m, n);

    make_barriers(ring);
    if (threadIdx.x / warpgroup == consumers) {
        if (threadIdx.x % warp_size == 0)
            produce(ring, tiles, steps, [&](Stage& stage, Barrier& full, unsigned i, unsigned step) {
                load(stage.a, a, step * span, tiles.row(i), full);
                load(stage.b, b, step * span, tiles.column(i), full);
            });
        return;
    }

    Turn turn;
    for (unsigned i = blockIdx.x; i < tiles.count; i += gridDim.x) {
        int sums[64];
        consume(ring, turn, steps, [&](const Stage& stage, bool add) { multiply(sums, stage, add); });
        const unsigned column = tiles.column(i) + first_column();
#pragma unroll  // sums are registers: they have no index
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned row = tiles.row(i) + first_row() + 8 * half;
            if (row >= m) continue;
            const int of_row = of_rows[row];
#pragma unroll
            for (unsigned j = 0; j < tile / 8; ++j) {
                const unsigned at = column + 8 * j;
                if (at >= n) continue;
                // Rows of c and of_columns have even pitches, so that a pair may end past the last column.
                const int2 of_pair = *reinterpret_cast<const int2*>(&of_columns[at]);
                *reinterpret_cast<int2*>(&c[(size_t)row * pitch + at]) =
                    make_int2(4 * sums[4 * j + 2 * half] + of_row + of_pair.x,
                              4 * sums[4 * j + 2 * half + 1] + of_row + of_pair.y);
            }
        }
    }
}
