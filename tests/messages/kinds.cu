// One kernel for each kind of fault that examples/bugs has no bug of; named as the class.
#include <cassert>
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <mma.h>

__constant__ int table[4] = {1, 2, 3, 4};

__global__ void foreign_pointer(int** where, int* y) {
    __shared__ int mine[32];
    mine[threadIdx.x] = threadIdx.x;
    if (blockIdx.x == 0 && threadIdx.x == 0) *where = mine;
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 1) y[threadIdx.x] = (*where)[threadIdx.x];
}

__global__ void read_only_write(int i) {
    int* p = const_cast<int*>(table);
    asm volatile("" : "+l"(p));  // so that the compiler does not know where it points to
    p[i] = 5;
}

__global__ void double_free() {
    int* p = static_cast<int*>(malloc(16));
    free(p);
    free(p);
}

__device__ int quotient(int a, int b) {
    return a / b;
}

__global__ void division_by_zero(int* y, int n) {
    int t = threadIdx.x;
    y[t] = quotient(100, t - n);
}

__global__ void skipped_barrier(const int* x, int* y, int n) {
    __shared__ int tile[64];
    int t = threadIdx.x, sum = 0;
    tile[t] = x[t];
    if (t < n) {
        __syncthreads();
        sum = tile[n - 1 - t];
    }
    y[t] = sum;
}

__global__ void skipped_member(const int* x, int* y) {
    int t = threadIdx.x, v = 0;
    if (t < 16) v = __shfl_sync(0xffffffffu, x[t], 15 - t);
    y[t] = v;
}

__global__ void early_exit(int* y, int n) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    if (t >= n) return;
    tile[t] = t;
    __syncthreads();
    y[t] = tile[n - 1 - t];
}

__global__ void divergent_matrix(unsigned* y) {
    unsigned d = 0;
    if (threadIdx.x < 24)
        asm volatile("{ .reg .b32 r; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r}, [%1]; mov.b32 %0, r; }"
                     : "=r"(d) : "r"(0));
    y[threadIdx.x] = d;
}

__global__ void trap(int n) {
    if (threadIdx.x == n) __trap();
}

__global__ void not_cooperative(int* y) {
    y[threadIdx.x] = 1;
    cooperative_groups::this_grid().sync();
}

__global__ void unreachable(const int* x, int* y) {
    int* p = x[0] ? y : nullptr;
    *p = 1;
}

__global__ void not_clustered(unsigned* y) {
    __shared__ __align__(8) unsigned long long barrier;
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], 5, [%1];"
                 :: "r"(at), "r"(at));
    y[0] = 1;
}

__device__ __noinline__ int clamp(const int* table, int i) {
    assert(i < 32);
    return table[i];
}

__global__ void assertion_failed(const int* x, int* y) {
    y[threadIdx.x] = clamp(x, 2 * threadIdx.x);
}

__global__ void runaway_kernel(volatile int* y) {
    for (unsigned i = 0; y[0] >= 0; i++) y[0] = i & 0xffff;
}

__global__ void needs_independent_progress(int* lock, int* y) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    y[0] += 1;
    atomicExch(lock, 0);
}

template <typename T> __global__ void tiles(const T* x, T* y) {
    constexpr int SIZE = 8;
    __shared__ T tile[SIZE][SIZE + 1];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * SIZE + threadIdx.x];
    y[threadIdx.x * SIZE + threadIdx.y] = tile[threadIdx.x][threadIdx.y];
}
template __global__ void tiles<double>(const double*, double*);

__global__ void wrong_stride(const __half* x, float* y) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> a;
    load_matrix_sync(a, x, 18);
    y[threadIdx.x] = a.x[0];
}

__global__ void no_texture(cudaTextureObject_t t, int* out) {
    out[threadIdx.x] = tex1Dfetch<int>(t, threadIdx.x);
}

__global__ void stale_read(int* y) {
    y[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x + 64] = __ldg(&y[63 - threadIdx.x]);
}
