// Kernels of few threads that loop for long, for the compiled engine: queens by a stack in shared memory,
// whose lanes diverge; a Fourier transform and a merge sort of 1,024 elements in a block; sums by shuffles.

constexpr int DEPTH = 12, THREADS = 128, LENGTH = 1024;

extern "C" __global__ void queens(unsigned* __restrict__ counts, unsigned n)
{
    __shared__ unsigned open[DEPTH][THREADS], columns[DEPTH][THREADS], left[DEPTH][THREADS], right[DEPTH][THREADS];
    const unsigned t = threadIdx.x, all = (1u << n) - 1;
    const unsigned first = 1u << (t / n), second = 1u << (t % n);
    unsigned found = 0;
    if (t < n * n && !((first | first << 1 | first >> 1) & second)) {
        int depth = 2;
        columns[2][t] = first | second;
        left[2][t] = (first << 2 | second << 1) & all;
        right[2][t] = first >> 2 | second >> 1;
        open[2][t] = all & ~(columns[2][t] | left[2][t] | right[2][t]);
        while (depth > 1) {
            const unsigned free = open[depth][t];
            if (!free) {
                --depth;
                continue;
            }
            const unsigned bit = free & (0u - free);
            open[depth][t] = free ^ bit;
            if (depth + 1 == int(n)) {
                ++found;
                continue;
            }
            const unsigned c = columns[depth][t] | bit;
            const unsigned l = (left[depth][t] | bit) << 1 & all, r = (right[depth][t] | bit) >> 1;
            ++depth;
            columns[depth][t] = c;
            left[depth][t] = l;
            right[depth][t] = r;
            open[depth][t] = all & ~(c | l | r);
        }
    }
    counts[t] = found;
}

// Stockham's transform: stage s takes halves that are LENGTH / 2 apart, and no bits are reversed.
extern "C" __global__ void fft(const float2* __restrict__ x, const float2* __restrict__ roots, float2* __restrict__ y)
{
    __shared__ float2 now[LENGTH], next[LENGTH];
    float2 *from = now, *to = next;
    for (int i = threadIdx.x; i < LENGTH; i += blockDim.x)
        from[i] = x[blockIdx.x * LENGTH + i];
    __syncthreads();
    for (int half = 1; half < LENGTH; half *= 2) {
        for (int i = threadIdx.x; i < LENGTH / 2; i += blockDim.x) {
            const int k = i % half, at = (i - k) * 2 + k;
            const float2 a = from[i], b = from[i + LENGTH / 2], w = roots[k * (LENGTH / 2 / half)];
            const float2 turned = {w.x * b.x - w.y * b.y, w.x * b.y + w.y * b.x};
            to[at] = {a.x + turned.x, a.y + turned.y};
            to[at + half] = {a.x - turned.x, a.y - turned.y};
        }
        __syncthreads();
        float2* other = from;
        from = to;
        to = other;
    }
    for (int i = threadIdx.x; i < LENGTH; i += blockDim.x)
        y[blockIdx.x * LENGTH + i] = from[i];
}

// Each element finds its place in the merged run by a binary search in the other one.
extern "C" __global__ void merge_sort(const unsigned* __restrict__ x, unsigned* __restrict__ y)
{
    __shared__ unsigned buffers[2][LENGTH];
    for (int i = threadIdx.x; i < LENGTH; i += blockDim.x)
        buffers[0][i] = x[blockIdx.x * LENGTH + i];
    __syncthreads();
    int now = 0;
    for (int run = 1; run < LENGTH; run *= 2, now ^= 1) {
        for (int i = threadIdx.x; i < LENGTH; i += blockDim.x) {
            const unsigned value = buffers[now][i];
            const int start = i / (2 * run) * 2 * run, within = i - start;
            const bool is_second = within >= run;
            const int other = is_second ? start : start + run;
            int low = 0, high = run;
            while (low < high) {
                const int middle = (low + high) / 2;
                const unsigned there = buffers[now][other + middle];
                if (there < value || (is_second && there == value))
                    low = middle + 1;
                else
                    high = middle;
            }
            buffers[now ^ 1][start + within % run + low] = value;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < LENGTH; i += blockDim.x)
        y[blockIdx.x * LENGTH + i] = buffers[now][i];
}

extern "C" __global__ void shuffles(const unsigned* __restrict__ x, unsigned* __restrict__ y, unsigned rounds)
{
    const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    for (unsigned i = 0; i < rounds; ++i) {
        unsigned sum = x[(warp * rounds + i) * 32 + lane];
        for (int far = 16; far > 0; far /= 2)
            sum += __shfl_down_sync(~0u, sum, far);
        if (lane == 0)
            y[warp * rounds + i] = sum;
    }
}
