// A copy at the speed of memory: each thread has several loads of 16 bytes under way, a grid apart.

extern "C" __global__ void copy(const uint4* __restrict__ from, uint4* __restrict__ to, unsigned long long pieces)
{
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; first < pieces;
         first += PER_THREAD * threads) {
        uint4 held[PER_THREAD];
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i)
            if (first + i * threads < pieces) held[i] = from[first + i * threads];
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i)
            if (first + i * threads < pieces) to[first + i * threads] = held[i];
    }
}
