// The sum of each block's numbers: a warp adds up its lanes, the first warp of the block adds up the warps.
//
// The first warp reads what the others put into shared memory, so it must wait for them. Where all warps
// happen to run in step, the sums come out right even without the barrier.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

extern "C" __global__ void missing_barrier(const unsigned* x, unsigned* sums, unsigned n)
{
    __shared__ unsigned of_warp[warp_size];  // a block has at most 32 warps
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = __reduce_add_sync(all_lanes, i < n ? x[i] : 0);
    if (lane == 0) of_warp[warp] = sum;  // BUG: the other access
#ifdef FIXED
    __syncthreads();
#endif
    if (warp == 0) {
        sum = lane < blockDim.x / warp_size ? of_warp[lane] : 0;  // BUG
        sum = __reduce_add_sync(all_lanes, sum);
        if (lane == 0) sums[blockIdx.x] = sum;
    }
}
