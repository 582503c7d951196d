// Shared by the pipelines of clusters: a wait for an mbarrier, and tiles of a product of bits.
//
// The product c = a b of 0s and 1s in int32 counts, for each row of a and column of b, the ones of (row & column).
// A word holds 32 elements along k, and both operands lie as (words, lines): the words of 64 neighbouring rows of a,
// or columns of b, are 256 contiguous bytes, which a bulk copy takes as they are. A block's first four warps compute
// a tile of 64 x 64, each a quarter of it as 2 x 4 products of 16 x 8 with k = 256, eight words.

#include <cooperative_groups.h>
#include <cuda/ptx>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

enum : unsigned { tile = 64, warp_tile = 32, warp_size = 32, warps = 4, words = 8 };

using Barrier = uint64_t;
using Sums = int[2][4][4];

// Wait for the phase of this parity, and see what threads of the cluster did before they arrived.
__device__ inline void wait(Barrier& barrier, unsigned parity)
{
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &barrier, parity)) {}
}

// PTX ISA 9.7.14.5.13: a word is 32 of a fragment's 256 bits of k.
__device__ inline void multiply_add(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Add the product of eight words of 64 lines each to a warp's quarter of the sums. From one word of a line to the
// next it is a pitch.
__device__ inline void multiply(Sums& sums, const unsigned* a, unsigned pitch_a, const unsigned* b, unsigned pitch_b)
{
    const unsigned warp = threadIdx.x / warp_size, group = threadIdx.x % warp_size / 4, within = threadIdx.x % 4;
    unsigned of_a[2][4], of_b[4][2];
    for (unsigned i = 0; i < 2; ++i)
        for (unsigned at = 0; at < 4; ++at)
            of_a[i][at] = a[(within + at / 2 * 4) * pitch_a + warp / 2 * warp_tile + 16 * i + group + at % 2 * 8];
    for (unsigned j = 0; j < 4; ++j)
        for (unsigned at = 0; at < 2; ++at)
            of_b[j][at] = b[(within + at * 4) * pitch_b + warp % 2 * warp_tile + 8 * j + group];
    for (unsigned i = 0; i < 2; ++i)
        for (unsigned j = 0; j < 4; ++j) multiply_add(sums[i][j], of_a[i], of_b[j]);
}

// Call use(row, column, sum) for each element of the tile whose sum this thread has.
template <class Use>
__device__ inline void for_each(const Sums& sums, Use use)
{
    const unsigned warp = threadIdx.x / warp_size, group = threadIdx.x % warp_size / 4, within = threadIdx.x % 4;
#pragma unroll  // sums are registers: they have no index
    for (unsigned i = 0; i < 2; ++i)
#pragma unroll
        for (unsigned j = 0; j < 4; ++j)
#pragma unroll
            for (unsigned at = 0; at < 4; ++at)
                use(warp / 2 * warp_tile + 16 * i + group + at / 2 * 8,
                    warp % 2 * warp_tile + 8 * j + within * 2 + at % 2, sums[i][j][at]);
}
