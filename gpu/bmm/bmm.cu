// The +-1 matrix product of packed operands (BSTC, section 5.1):
//
//   dot[i, j] = k - 2 * sum over w of popc(a[w, i] ^ b[w, j])          (Eq. 2)
//
// a holds words (k / word size rounded up, m), b holds words (…, n): word w of row i of A stands at
// a[w * m + i], word w of column j of B at b[w * n + j]. Both operands carry equal bits past k, so these
// cancel in the xor and the true k is all that corrects the padding.
//
// Compiled once per scheme, output (output.cuh) and bit order (warp.cuh):
//
//   -DSCHEME=bmm32  -DWORD_32 -DROWS=32   a warp computes a tile of 32 x 32        (listing 4)
//   -DSCHEME=bmm64  -DWORD_64 -DROWS=64   a tile of 64 x 64, two 16-bit counters to a register (listing 5)
//   -DSCHEME=bmms32 -DWORD_32 -DROWS=16   the tile of 32 x 32 is spread over two warps
//   -DSCHEME=bmms64 -DWORD_64 -DROWS=16   the tile of 64 x 64 is spread over four warps
//
// The listings give each lane a row of C and broadcast the words of B; here each lane has a column (or
// two) and the words of A are broadcast, so that a warp stores 32 neighbours at once.

#include "bmm/output.cuh"

enum : unsigned { rows = ROWS, columns = word_size, row_halves = (rows + warp_size - 1) / warp_size };

__device__ inline unsigned count_ones(unsigned word) { return __popc(word); }
__device__ inline unsigned count_ones(unsigned long long word) { return __popcll(word); }

// How many bits differ, for each row of the tile and each of the lane's columns.
#if defined(WORD_64) && ROWS > 32
// Two counts of 16 bits to a register, or the registers would not suffice: right up to k = 65,535.
struct Counters {
    unsigned packed[rows] = {};
    __device__ void add(unsigned row, unsigned half, Word x, Word y)
    {
        packed[row] += (count_ones(x) + count_ones(y)) << 16 * half;
    }
    __device__ unsigned operator()(unsigned row, unsigned half) const { return packed[row] >> 16 * half & 0xffffu; }
};
#else
// Carry-save: `ones` is the sum so far modulo 2 at each bit, so that what two words add is one word of
// carries, and the population count, the slowest instruction here, is needed once for both.
struct Counters {
    Word ones[rows][word_halves] = {};
    unsigned twos[rows][word_halves] = {};
    __device__ void add(unsigned row, unsigned half, Word x, Word y)
    {
        Word& sum = ones[row][half];
        twos[row][half] += count_ones((x & y) | (sum & (x ^ y)));
        sum ^= x ^ y;
    }
    __device__ unsigned operator()(unsigned row, unsigned half) const
    {
        return 2 * twos[row][half] + count_ones(ones[row][half]);
    }
};
#endif

struct Words {
    Word a[row_halves], b[word_halves];  // of the lane's rows and columns
};

// Word w of the lane's rows and columns; past the edge of a matrix, of its last one. Past k both are 0.
__device__ inline Words load(const Word* a, const Word* b, unsigned m, unsigned n, unsigned k_words,
                             unsigned first_row, unsigned first_column, unsigned w)
{
    const unsigned lane = lane_of_this_thread();
    Words words = {};
    if (w < k_words) {
#pragma unroll
        for (unsigned half = 0; half < row_halves; ++half)
            words.a[half] = a[(Index)w * m + min(first_row + 32 * half + lane % rows, m - 1)];
#pragma unroll
        for (unsigned half = 0; half < word_halves; ++half)
            words.b[half] = b[(Index)w * n + min(first_column + 32 * half + lane, n - 1)];
    }
    return words;
}

extern "C" __global__ void __launch_bounds__(128)
SCHEME(const Word* __restrict__ a, const Word* __restrict__ b, Output* __restrict__ c, unsigned m, unsigned n,
       unsigned k THRESHOLDS)
{
    const unsigned across = divide_up(n, columns);
    const unsigned warp = number_of_this_warp();
    const unsigned first_row = warp / across * rows, first_column = warp % across * columns;
    if (first_row >= m) return;
    const unsigned k_words = divide_up(k, word_size);
    Counters differing;
    Words next[2];
    next[0] = load(a, b, m, n, k_words, first_row, first_column, 0);
    next[1] = load(a, b, m, n, k_words, first_row, first_column, 1);
    for (unsigned w = 0; w < k_words; w += 2) {
        const Words x = next[0], y = next[1];
        // The next two words are on their way while these are counted.
        next[0] = load(a, b, m, n, k_words, first_row, first_column, w + 2);
        next[1] = load(a, b, m, n, k_words, first_row, first_column, w + 3);
#pragma unroll
        for (unsigned i = 0; i < rows; ++i) {
            const Word x_row = __shfl_sync(all_lanes, x.a[i / warp_size], i % warp_size);
            const Word y_row = __shfl_sync(all_lanes, y.a[i / warp_size], i % warp_size);
#pragma unroll
            for (unsigned half = 0; half < word_halves; ++half)
                differing.add(i, half, PAIRED(x_row, x.b[half]), PAIRED(y_row, y.b[half]));
        }
    }
    store_tile<rows>(differing, c, m, n, k, first_row, first_column WITH_THRESHOLDS);
}
