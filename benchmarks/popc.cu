// The ±1 product of packed matrices, c = k - 2 popc(a ^ b): one thread for each element of c, and a loop
// over the words. Word w of row i of a is a[w * m + i], word w of column j of b is b[w * n + j].
//
// The same work, thread by thread, as in numba_cudasim.py.

extern "C" __global__ void popc(const unsigned* __restrict__ a, const unsigned* __restrict__ b,
                                int* __restrict__ c, unsigned m, unsigned n, unsigned k)
{
    const unsigned i = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m || j >= n) return;
    unsigned differing = 0;
#pragma unroll 1
    for (unsigned word = 0; word < (k + 31) / 32; ++word)
        differing += __popc(a[word * m + i] ^ b[word * n + j]);
    c[i * n + j] = static_cast<int>(k - 2 * differing);
}
