// The rows of a matrix, last to first; a copy through a tensor map brings 32 columns of them.
//
// Such a copy writes to a multiple of 128 bytes. A tile of uint4 behind a barrier is at a multiple of 16.

#include <cuda/ptx>

#include "include/tensor_map.cuh"

using namespace cuda::ptx;

enum : unsigned { rows = 8, columns = 32 };

struct Stage {
    cuda::std::uint64_t full;
#ifndef FIXED
    alignas(16) unsigned tile[rows][columns];  // BUG: at 16 bytes
#else
    alignas(128) unsigned tile[rows][columns];
#endif
};

// Launched with a thread for each column; `map` has boxes of 8 x 32 numbers.
extern "C" __global__ void unaligned_box(const __grid_constant__ CUtensorMap map, unsigned* y, unsigned width)
{
    __shared__ alignas(128) Stage stage;
    const unsigned first = blockIdx.x * columns;
    if (threadIdx.x == 0) {
        mbarrier_init(&stage.full, 1);
        fence_mbarrier_init(sem_release, scope_cluster);
        mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &stage.full, sizeof stage.tile);
        const int at[] = {static_cast<int>(first), 0};
        cp_async_bulk_tensor(space_cluster, space_global, stage.tile, &map, at, &stage.full);  // BUG
    }
    __syncthreads();
    while (!mbarrier_try_wait_parity(&stage.full, 0)) {}
    for (unsigned row = 0; row < rows; row++)
        y[row * width + first + threadIdx.x] = stage.tile[rows - 1 - row][threadIdx.x];
}
