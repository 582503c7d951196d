// Blocks and warps that wait for one another without barriers.

// Decoupled look-back: a scan in one pass. State of a tile: flag << 32 | value; 1 its own sum, 2 that of all before it too.
extern "C" __global__ void look_back(const int* in, int* out, unsigned long long* state, int* tickets, int n)
{
    __shared__ int tile, before, sums[128];
    if (threadIdx.x == 0) tile = atomicAdd(tickets, 1);
    __syncthreads();
    const int i = tile * blockDim.x + threadIdx.x;
    sums[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        const int left = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += left;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const unsigned own = sums[blockDim.x - 1];
        unsigned sum = 0;
        if (tile > 0) {
            atomicExch(&state[tile], 1ull << 32 | own);
            for (int other = tile - 1; other >= 0; --other) {
                unsigned long long seen;
                while ((seen = *(volatile unsigned long long*)&state[other]) >> 32 == 0);
                sum += (unsigned)seen;
                if (seen >> 32 == 2) break;
            }
        }
        atomicExch(&state[tile], 2ull << 32 | (sum + own));
        before = sum;
    }
    __syncthreads();
    if (i < n) out[i] = before + sums[threadIdx.x];
}

// A bounded queue: producers and consumers take tickets; the sequence number of a cell says whose turn it is.
struct Cell
{
    unsigned turn, value;
};

extern "C" __global__ void queue(Cell* cells, unsigned* ends, unsigned* taken, unsigned size)
{
    const unsigned t = threadIdx.x / 32, i = blockIdx.x * (blockDim.x / 32) + t;
    if (threadIdx.x % 32) return;
    const unsigned pairs = gridDim.x * (blockDim.x / 32) / 2;
    if (i < pairs) {
        const unsigned ticket = atomicAdd(&ends[0], 1u);
        Cell& cell = cells[ticket % size];
        while (*(volatile unsigned*)&cell.turn != 2 * (ticket / size));
        __threadfence();
        cell.value = 100 + i;
        __threadfence();
        atomicExch(&cell.turn, 2 * (ticket / size) + 1);
    } else {
        const unsigned ticket = atomicAdd(&ends[1], 1u);
        Cell& cell = cells[ticket % size];
        while (*(volatile unsigned*)&cell.turn != 2 * (ticket / size) + 1);
        __threadfence();
        taken[ticket] = cell.value;
        __threadfence();
        atomicExch(&cell.turn, 2 * (ticket / size) + 2);
    }
}

// The last block to finish adds up what all blocks have left.
extern "C" __global__ void last_block(const int* in, int* partial, unsigned* done, int* out, int n)
{
    __shared__ int sum;
    __shared__ bool last;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&sum, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        int total = 0;
        for (unsigned b = 0; b < gridDim.x; ++b) total += ((volatile int*)partial)[b];
        *out = total;
    }
}

// A spin lock that one lane of each warp takes.
extern "C" __global__ void locked(int* lock, int* count)
{
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(lock, 0, 1) != 0);
        __threadfence();
        *(volatile int*)count = *(volatile int*)count + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// Warp-aggregated atomics by ballot and shuffle.
extern "C" __global__ void aggregated(const int* in, int* out, int* count, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    if (i >= n) return;
    if (in[i] > 0) {
        const unsigned mask = __activemask();
        const int leader = __ffs(mask) - 1;
        int start = 0;
        if (lane == leader) start = atomicAdd(count, __popc(mask));
        start = __shfl_sync(mask, start, leader);
        out[start + __popc(mask & ((1u << lane) - 1))] = in[i];
    }
}

// Early return, then a reduction of the whole warps that are left.
extern "C" __global__ void early_return(const int* in, int* out, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i];
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_down_sync(0xffffffffu, x, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(out, x);
}

// Threads beyond the end return; the others meet at barriers.
extern "C" __global__ void return_before_barrier(const int* in, int* out, int n)
{
    __shared__ int s[128];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    s[threadIdx.x] = in[i];
    __syncthreads();
    const int here = min(blockDim.x, n - blockIdx.x * blockDim.x);
    out[i] = s[here - 1 - threadIdx.x];
}

// Ping-pong between the halves of a warp.
extern "C" __global__ void ping_pong(int* out)
{
    __shared__ int ball[32];
    const int t = threadIdx.x;
    ball[t] = t;
    __syncwarp();
    for (int round = 0; round < 4; ++round) {
        int seen = 0;
        if (t < 16) seen = ball[t + 16];
        __syncwarp();
        if (t < 16) ball[t + 16] = seen + 1;
        __syncwarp();
        if (t >= 16) ball[t - 16] = ball[t];
        __syncwarp();
    }
    out[t] = ball[t];
}
