// The sums of groups of four consecutive numbers, a group for each lane.
//
// A warp loads its 128 numbers as neighbours, which memory likes best, and its lanes hand them to one
// another in shared memory. No other warp is concerned, so __syncthreads() is not needed; but lanes of one
// warp do not run in step by themselves either.

enum : unsigned { warp_size = 32, per_lane = 4, per_warp = warp_size * per_lane, warps = 4 };

// Launched with 4 warps in each block; groups past the end count as zeros.
extern "C" __global__ void missing_syncwarp(const unsigned* x, unsigned* sums, unsigned n)
{
    __shared__ unsigned tile[warps][per_warp];
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const unsigned first = (blockIdx.x * warps + warp) * per_warp;
    for (unsigned k = lane; k < per_warp; k += warp_size)
        tile[warp][k] = first + k < n ? x[first + k] : 0;  // BUG: the other access
#ifdef FIXED
    __syncwarp();
#endif
    unsigned sum = 0;
    for (unsigned k = 0; k < per_lane; k++)
        sum += tile[warp][per_lane * lane + k];  // BUG
    sums[first / per_lane + lane] = sum;
}
