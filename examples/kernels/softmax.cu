// The softmax of each row, exp(x - max) / sum of exp(x - max): one warp for each row.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

// exp(x) for x <= 0. CUDA's expf ends in ex2.approx, for which PTX gives a bound and no value; this one
// consists of correctly rounded operations only, so its bits are the same wherever it runs.
//
// With n the whole number next to x / ln 2 and r = x - n ln 2, exp(x) = 2^n exp(r), |r| <= ln 2 / 2. There
// the Taylor series to r^7 / 7! errs by less than 2^-27. ln 2 is subtracted as two numbers, the first of
// which has so few bits that the fused multiply-add is exact.
__device__ inline float exponential(float x)
{
    if (x < -104) return 0;  // less than half of the least positive float
    const int n = __float2int_rn(x * 1.44269504f);
    float r = fmaf((float)-n, 0x1.62e4p-1f, x);
    r = fmaf((float)-n, 0x1.7f7d1cp-20f, r);
    float sum = 1.f / 5040;
    sum = fmaf(sum, r, 1.f / 720);
    sum = fmaf(sum, r, 1.f / 120);
    sum = fmaf(sum, r, 1.f / 24);
    sum = fmaf(sum, r, 1.f / 6);
    sum = fmaf(sum, r, 1.f / 2);
    sum = fmaf(sum, r, 1);
    sum = fmaf(sum, r, 1);
    // 2^n by its bits, in two steps: below 2^-126 it is no normal number, and only the last step rounds.
    return sum * __int_as_float((n + 24 + 127) << 23) * 0x1p-24f;
}

extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, unsigned rows,
                                   unsigned columns)
{
    const unsigned lane = threadIdx.x % warp_size;
    const unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / warp_size;
    if (row >= rows) return;
    x += row * columns;
    y += row * columns;

    float largest = x[0];
    for (unsigned i = lane; i < columns; i += warp_size) largest = fmaxf(largest, x[i]);
    for (unsigned distance = warp_size / 2; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, distance));

    float sum = 0;
    for (unsigned i = lane; i < columns; i += warp_size) sum += y[i] = exponential(x[i] - largest);
    for (unsigned distance = warp_size / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(all_lanes, sum, distance);

    for (unsigned i = lane; i < columns; i += warp_size) y[i] /= sum;
}
