// The sum of n numbers, in an order that the launch alone decides: no atomics, so every run rounds alike.
//
// A thread adds up its share, a warp its lanes by shuffles, a block its warps. Launched again with one
// block, the kernel adds up what the blocks found.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

// In lane 0, the sum over the warp. After each step the lanes below `distance` hold all of it.
__device__ inline float sum_of_warp(float x)
{
    for (unsigned distance = warp_size / 2; distance > 0; distance /= 2)
        x += __shfl_down_sync(all_lanes, x, distance);
    return x;
}

extern "C" __global__ void reduce(const float* __restrict__ x, float* __restrict__ sums, unsigned n)
{
    __shared__ float of_warp[warp_size];  // a block has at most 32 warps
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    float sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    sum = sum_of_warp(sum);
    if (lane == 0) of_warp[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = sum_of_warp(lane < blockDim.x / warp_size ? of_warp[lane] : 0);
        if (lane == 0) sums[blockIdx.x] = sum;
    }
}
