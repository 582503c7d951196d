// Long loops on registers, for the compiled engine: a recurrence that all lanes take together, and the
// lengths of Collatz sequences, each lane's added up, which differ from lane to lane.

extern "C" __global__ void chain(unsigned* __restrict__ result, unsigned rounds)
{
    unsigned x = threadIdx.x;
#pragma unroll 1
    for (unsigned i = 0; i < rounds; ++i)
        x = x * 1664525u + 1013904223u;
    result[threadIdx.x] = x;
}

extern "C" __global__ void collatz(unsigned* __restrict__ result, unsigned first, unsigned each)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned steps = 0;
#pragma unroll 1
    for (unsigned j = 0; j < each; ++j) {
        unsigned long long x = first + i * each + j;
        while (x > 1) {
            if (x & 1)
                x = 3 * x + 1;
            else
                x >>= 1;
            ++steps;
        }
    }
    result[i] = steps;
}
