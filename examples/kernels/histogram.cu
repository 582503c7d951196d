// How often each byte occurs.
//
// A block counts in shared memory, where atomics are cheap, and adds its counts to the total at the end.
// Whole numbers may be added in any order, so the result does not depend on who comes first.

enum : unsigned { bins = 256 };

// `counts` begins as zeros.
extern "C" __global__ void histogram(const unsigned char* __restrict__ x, unsigned* counts, unsigned n)
{
    __shared__ unsigned of_block[bins];
    for (unsigned bin = threadIdx.x; bin < bins; bin += blockDim.x) of_block[bin] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&of_block[x[i]], 1);
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < bins; bin += blockDim.x)
        if (of_block[bin] > 0) atomicAdd(&counts[bin], of_block[bin]);
}
