// Each number, twice, plus its two neighbours; beyond the ends of the array there are zeros.
//
// A block keeps its numbers in shared memory, with one more cell on either side for the neighbours of the
// first and the last. Shared memory does not begin as zeros: also the cells that have no number must be
// written.

enum : unsigned { threads = 128 };

extern "C" __global__ void uninitialised_shared(const unsigned* x, unsigned* y, unsigned n)
{
    __shared__ unsigned tile[1 + threads + 1];
    const unsigned i = blockIdx.x * threads + threadIdx.x, cell = 1 + threadIdx.x;
    tile[cell] = i < n ? x[i] : 0;
#ifndef FIXED
    if (threadIdx.x == 0 && i > 0) tile[0] = x[i - 1];
    if (threadIdx.x == threads - 1 && i + 1 < n) tile[threads + 1] = x[i + 1];
#else
    if (threadIdx.x == 0) tile[0] = i > 0 ? x[i - 1] : 0;
    if (threadIdx.x == threads - 1) tile[threads + 1] = i + 1 < n ? x[i + 1] : 0;
#endif
    __syncthreads();
    if (i < n) y[i] = tile[cell - 1] + 2 * tile[cell] + tile[cell + 1];  // BUG
}
