#pragma once
extern __device__ int total;
extern __constant__ float factors[2];
__device__ float twice(float x);
template <typename T> __device__ __noinline__ T half_of(T x)
{
    return x / 2;
}
void launch_second(float *x);
