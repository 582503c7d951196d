// Layer normalisation: each row less its mean, over its standard deviation, scaled and shifted; one block
// for each row.
//
// Square root and division are IEEE's, correctly rounded, where rsqrtf would be an approximation; sums are
// taken in an order that the launch alone decides. So the result has the same bits wherever it is computed.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu, threads = 128, warps = threads / warp_size };

// In every thread, the sum over the block.
__device__ inline float sum_of_block(float x)
{
    __shared__ float of_warp[warps];
    for (unsigned distance = warp_size / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(all_lanes, x, distance);
    __syncthreads();  // the sum before this one has been read by all
    if (threadIdx.x % warp_size == 0) of_warp[threadIdx.x / warp_size] = x;
    __syncthreads();
    float sum = 0;
    for (unsigned warp = 0; warp < warps; ++warp) sum += of_warp[warp];
    return sum;
}

extern "C" __global__ void __launch_bounds__(threads)
layer_norm(const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
           float* __restrict__ y, unsigned columns, float epsilon)
{
    x += blockIdx.x * columns;
    y += blockIdx.x * columns;

    float sum = 0;
    for (unsigned i = threadIdx.x; i < columns; i += threads) sum += x[i];
    const float mean = sum_of_block(sum) / columns;

    sum = 0;
    for (unsigned i = threadIdx.x; i < columns; i += threads) sum = fmaf(x[i] - mean, x[i] - mean, sum);
    const float deviation = sqrtf(sum_of_block(sum) / columns + epsilon);

    for (unsigned i = threadIdx.x; i < columns; i += threads)
        y[i] = fmaf((x[i] - mean) / deviation, scale[i], shift[i]);
}
