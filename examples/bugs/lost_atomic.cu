// How many of the numbers from 0 to 1 lie in each sixteenth.
//
// `counts[bin] += 1` is a read, an addition and a write. Threads that count in the same bin at the same time
// all read the same number, and all but one of their additions are lost.

enum : unsigned { bins = 16 };

// `counts` begins as zeros.
extern "C" __global__ void lost_atomic(const float* x, unsigned* counts, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned bin = min(static_cast<unsigned>(x[i] * bins), bins - 1);  // 1 itself is in the last one
#ifndef FIXED
    counts[bin] += 1;  // BUG
#else
    atomicAdd(&counts[bin], 1);
#endif
}
