// Layers that take integers to integers, one by one.

#include "bmm/warp.cuh"

__device__ inline unsigned number_of_this_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The network's ranges fit int32, so a product that wraps around is put right by its offset.
extern "C" __global__ void __launch_bounds__(256)
affine(const int* __restrict__ x, const int* __restrict__ scale, const int* __restrict__ offset, int* __restrict__ y,
       unsigned count, unsigned channels)
{
    const unsigned i = number_of_this_thread();
    if (i < count) y[i] = (int)((unsigned)scale[i % channels] * (unsigned)x[i] + (unsigned)offset[i % channels]);
}

extern "C" __global__ void __launch_bounds__(256)
clip(const int* __restrict__ x, int* __restrict__ y, unsigned count, int low, int high)
{
    const unsigned i = number_of_this_thread();
    if (i < count) y[i] = min(max(x[i], low), high);
}

extern "C" __global__ void __launch_bounds__(256)
add(const int* __restrict__ x, const int* __restrict__ y, int* __restrict__ sum, unsigned count)
{
    const unsigned i = number_of_this_thread();
    if (i < count) sum[i] = x[i] + y[i];
}

// Channels of zeros before and after those of x; count and wide are those of y.
extern "C" __global__ void __launch_bounds__(256)
pad_channels(const int* __restrict__ x, int* __restrict__ y, unsigned count, unsigned wide, unsigned before,
             unsigned channels)
{
    const unsigned i = number_of_this_thread();
    if (i >= count) return;
    const unsigned pixel = i / wide, channel = i % wide - before;  // before the first one it wraps around
    y[i] = channel < channels ? x[pixel * channels + channel] : 0;
}
