// The sum of each block's numbers, in shared memory: a warp adds its upper half to its lower one, until one
// number is left; then the first thread adds up the warps.
//
// __syncwarp() waits for all lanes of the warp. Here the upper lanes never come: they wait for the lower
// ones at __syncthreads().

enum : unsigned { warp_size = 32, threads = 96 };

extern "C" __global__ void divergent_barrier(const unsigned* x, unsigned* sums, unsigned n)
{
    __shared__ unsigned tile[threads];
    const unsigned i = blockIdx.x * threads + threadIdx.x, lane = threadIdx.x % warp_size;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncwarp();
    for (unsigned half = warp_size / 2; half > 0; half /= 2) {
        if (lane < half) {
            tile[threadIdx.x] += tile[threadIdx.x + half];
#ifndef FIXED
            __syncwarp();  // BUG
#endif
        }
#ifdef FIXED
        __syncwarp();
#endif
    }
    __syncthreads();  // BUG: where the others wait
    if (threadIdx.x > 0) return;
    unsigned sum = 0;
    for (unsigned warp = 0; warp < threads / warp_size; warp++) sum += tile[warp * warp_size];
    sums[blockIdx.x] = sum;
}
