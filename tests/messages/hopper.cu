// Kinds of faults of instructions that sm_90a has.
#include <cuda/ptx>

struct alignas(64) Map {
    char bytes[128];
};

__global__ void no_tensor_map(const __grid_constant__ Map map, int* y) {
    __shared__ alignas(128) int tile[32];
    __shared__ uint64_t bar;
    const int at[2] = {0, 0};
    if (threadIdx.x == 0) {
        cuda::ptx::mbarrier_init(&bar, 1);
        cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, tile, &map, at, &bar);
    }
    y[threadIdx.x] = 1;
}

__global__ void __launch_bounds__(128) unequal_registers(int* y) {
    if (threadIdx.x < 96)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    y[threadIdx.x] = 1;
}
