// BMM-32: the +-1 matrix product of packed operands (BSTC, section 5.1, listing 4).
//
//   c[i, j] = k - 2 * sum over w of popc(a[w, i] ^ b[w, j])          (Eq. 2)
//
// a holds words (k / 32 rounded up, m), b holds words (k / 32 rounded up, n): word w of row i of A
// stands at a[w * m + i], word w of column j of B at b[w * n + j]. Both operands carry equal bits
// past k, so these cancel in the xor and the true k is all that corrects the padding.
//
// A warp computes a tile of 32 x 32. The listing gives each lane a row of C and broadcasts the words
// of B; here each lane has a column and the words of A are broadcast, so that a warp stores 32
// neighbours at once.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

extern "C" __global__ void __launch_bounds__(128)
bmm32(const unsigned* __restrict__ a, const unsigned* __restrict__ b, int* __restrict__ c,
      unsigned m, unsigned n, unsigned k)
{
    const unsigned lane = threadIdx.x % warp_size;
    const unsigned warp = blockIdx.x * (blockDim.x / warp_size) + threadIdx.x / warp_size;
    const unsigned across = n / warp_size + (n % warp_size != 0);
    const unsigned first_row = warp / across * warp_size;
    const unsigned column = warp % across * warp_size + lane;
    if (first_row >= m) return;

    // A lane past the edge reads the last word inside; what it computes is never stored.
    const unsigned* a_word = a + min(first_row + lane, m - 1);
    const unsigned* b_word = b + min(column, n - 1);
    unsigned differing[warp_size] = {};  // per row of the tile: bits that differ, so far
    const unsigned k_words = k / warp_size + (k % warp_size != 0);
    for (unsigned w = 0; w < k_words; ++w) {
        const unsigned a_bits = *a_word;
        const unsigned b_bits = *b_word;
        a_word += m;
        b_word += n;
#pragma unroll
        for (unsigned i = 0; i < warp_size; ++i)
            differing[i] += __popc(__shfl_sync(all_lanes, a_bits, i) ^ b_bits);
    }

    if (column >= n) return;
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i)
        if (first_row + i < m)
            c[(unsigned long long)(first_row + i) * n + column] = (int)(k - 2 * differing[i]);
}
