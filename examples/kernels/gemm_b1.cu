// The product of two ±1 matrices whose elements are bits, on tensor cores: c = a b, int32.
//
// Bit 1 is +1, bit 0 is -1. A word holds 32 elements along k, the first in its lowest bit; a's words lie as
// (words, m), b's as (words, n), zeros past the edge. Over their k bits, two lines agree or differ, and
//
//     a . b = k - 2 popc(a ^ b),    popc(a ^ b) = popc(a) + popc(b) - 2 popc(a & b).
//
// What Hopper's tensor cores count is popc(a & b); popc(a) and popc(b) belong to a whole row or column. A block
// computes a tile of 64 x 64, a warp a quarter of it as 2 x 4 products of 16 x 8.

enum : unsigned { tile = 64, warp_tile = 32, warp_size = 32, threads = 2 * tile, words = 8 };

// Eight more than a tile, so that four words of eight neighbouring lines lie in 32 different banks.
enum : unsigned { pitch = tile + 8 };

// PTX ISA 9.7.14.5.13: a word is 32 of a fragment's 256 bits of k.
__device__ inline void multiply_add(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(threads)
gemm_b1(const unsigned* __restrict__ a, const unsigned* __restrict__ b, int* __restrict__ c, unsigned m,
        unsigned n, unsigned k)
{
    __shared__ unsigned of_a[words][pitch], of_b[words][pitch];
    __shared__ int ones_of_a[tile], ones_of_b[tile];
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const unsigned warp_row = warp / 2 * warp_tile, warp_column = warp % 2 * warp_tile;
    const unsigned block_row = blockIdx.y * tile, block_column = blockIdx.x * tile;
    const unsigned all_words = k / 32 + (k % 32 != 0);
    const unsigned group = lane / 4, within = lane % 4;

    // Half of the threads bring a row of a each, the others a column of b, and count its ones.
    const bool brings_a = threadIdx.x < tile;
    const unsigned mine = threadIdx.x % tile, lines = brings_a ? m : n;
    const unsigned line = (brings_a ? block_row : block_column) + mine;
    const unsigned* const from = brings_a ? a : b;
    unsigned (&to)[words][pitch] = brings_a ? of_a : of_b;
    int ones = 0, sums[2][4][4] = {};

    for (unsigned first = 0; first < all_words; first += words) {
        for (unsigned i = 0; i < words; ++i) {
            const bool inside = line < lines && first + i < all_words;
            const unsigned word = inside ? from[(first + i) * lines + line] : 0;
            to[i][mine] = word;
            ones += __popc(word);
        }
        __syncthreads();
        unsigned fragment_a[2][4], fragment_b[4][2];
        for (unsigned i = 0; i < 2; ++i)
            for (unsigned at = 0; at < 4; ++at)
                fragment_a[i][at] = of_a[within + at / 2 * 4][warp_row + 16 * i + group + at % 2 * 8];
        for (unsigned j = 0; j < 4; ++j)
            for (unsigned at = 0; at < 2; ++at)
                fragment_b[j][at] = of_b[within + at * 4][warp_column + 8 * j + group];
        for (unsigned i = 0; i < 2; ++i)
            for (unsigned j = 0; j < 4; ++j) multiply_add(sums[i][j], fragment_a[i], fragment_b[j]);
        __syncthreads();
    }
    (brings_a ? ones_of_a : ones_of_b)[mine] = ones;
    __syncthreads();

#pragma unroll  // accumulators are registers: they have no index
    for (unsigned i = 0; i < 2; ++i)
#pragma unroll
        for (unsigned j = 0; j < 4; ++j)
#pragma unroll
            for (unsigned at = 0; at < 4; ++at) {
                const unsigned y = warp_row + 16 * i + group + at / 2 * 8;
                const unsigned x = warp_column + 8 * j + within * 2 + at % 2;
                const int differing = ones_of_a[y] + ones_of_b[x] - 2 * sums[i][j][at];
                const unsigned row = block_row + y, column = block_column + x;
                if (row < m && column < n) c[row * n + column] = (int)k - 2 * differing;
            }
}
