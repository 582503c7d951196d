// Kernels whose time is the checks of their accesses; `checks.py` compares two trees with them.

#define THREADS 256

// A filter of seven taps, whose loads are those of read-only memory.
extern "C" __global__ void filter(const float* x, const float* taps, float* y, unsigned n) {
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    float sum = 0;
    for (unsigned k = 0; k < 7; k++) sum += __ldg(&taps[k]) * __ldg(&x[(i + k) % n]);
    y[i] = sum;
}

// The sum of each block's elements, by a tree in shared memory with a barrier at each level.
extern "C" __global__ void reduce(const unsigned* x, unsigned* y) {
    __shared__ unsigned part[THREADS];
    unsigned t = threadIdx.x;
    part[t] = x[blockIdx.x * THREADS + t];
    __syncthreads();
    for (unsigned s = THREADS / 2; s > 0; s /= 2) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}

// The same as it was written before Volta: the last warp goes on without barriers. `SYNC` is "__syncwarp()", or nothing.
#define VOLATILE_REDUCTION(NAME, SYNC)                                       \
    extern "C" __global__ void NAME(const unsigned* x, unsigned* y) {        \
        __shared__ unsigned part[THREADS];                                   \
        unsigned t = threadIdx.x;                                            \
        part[t] = x[blockIdx.x * THREADS + t];                               \
        __syncthreads();                                                     \
        for (unsigned s = THREADS / 2; s > 32; s /= 2) {                     \
            if (t < s) part[t] += part[t + s];                               \
            __syncthreads();                                                 \
        }                                                                    \
        if (t < 32) {                                                        \
            volatile unsigned* tail = part;                                  \
            for (unsigned s = 32; s > 0; s /= 2) {                           \
                tail[t] = tail[t] + tail[t + s];                             \
                SYNC;                                                        \
            }                                                                \
        }                                                                    \
        if (t == 0) y[blockIdx.x] = part[0];                                 \
    }

VOLATILE_REDUCTION(reduce_volatile, )
VOLATILE_REDUCTION(reduce_volatile_synced, __syncwarp())

// 50 volatile accesses of each thread to a word of its own, behind `ORDER`: with a fence each store publishes a clock.
#define VOLATILE_LOOP(NAME, ORDER)                                                             \
    extern "C" __global__ void NAME(const unsigned* x, unsigned* y) {                          \
        __shared__ volatile unsigned word[THREADS];                                            \
        unsigned t = threadIdx.x;                                                              \
        word[t] = 0;                                                                           \
        ORDER;                                                                                 \
        for (unsigned k = 0; k < 25; k++) word[t] = word[t] + x[blockIdx.x * THREADS + t];     \
        y[blockIdx.x * THREADS + t] = word[t];                                                 \
    }

VOLATILE_LOOP(volatile_behind_barrier, __syncthreads())
VOLATILE_LOOP(volatile_behind_fence, __threadfence())
