// What the rows of growth.py on launches run: blocks that wait for one another, and threads that allocate.

#include <cuda/atomic>

extern "C" __global__ void store(unsigned* x) { x[threadIdx.x] = threadIdx.x; }

extern "C" __global__ void allocate(int n, unsigned* sums)
{
    unsigned sum = 0;
    for (int i = 0; i < n; i++) {
        unsigned* block = (unsigned*)malloc(16);
        block[0] = i;
        sum += block[0];
    }
    sums[threadIdx.x] = sum;
}

extern "C" __global__ void flags(unsigned* flags)
{
    using Flag = cuda::atomic_ref<unsigned, cuda::thread_scope_device>;
    if (threadIdx.x == 0) {
        if (blockIdx.x)
            while (Flag(flags[blockIdx.x - 1]).load(cuda::memory_order_acquire) == 0) { }
        Flag(flags[blockIdx.x]).store(1, cuda::memory_order_release);
    }
}

extern "C" __global__ void volatile_flags(volatile unsigned* flags)
{
    if (threadIdx.x == 0) {
        if (blockIdx.x)
            while (flags[blockIdx.x - 1] == 0) { }
        __threadfence();
        flags[blockIdx.x] = 1;
    }
}

extern "C" __global__ void lock(unsigned* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1)) { }
        __threadfence();
        lock[1]++;
        __threadfence();
        atomicExch(lock, 0);
    }
}
