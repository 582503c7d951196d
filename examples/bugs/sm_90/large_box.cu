// The sums of the columns of a matrix of 16 rows, each row with a weight; a copy through a tensor map
// brings 32 columns of them.
//
// How much a copy writes, the map says, which the host made, not the array that it writes to. Here the box
// has 16 rows, the tile eight: the others lie on the weights.

#include <cuda/ptx>

#include "include/tensor_map.cuh"

using namespace cuda::ptx;

#ifndef FIXED
enum : unsigned { rows = 8, columns = 32 };  // BUG: the tile
#else
enum : unsigned { rows = 16, columns = 32 };
#endif

// Launched with a thread for each column of a block; `x` has boxes of 16 x 32 numbers.
extern "C" __global__ void large_box(const __grid_constant__ CUtensorMap x, unsigned* sums)
{
    __shared__ alignas(128) unsigned tile[rows][columns], weights[rows][columns];
    __shared__ cuda::std::uint64_t full;
    const int at[] = {static_cast<int>(blockIdx.x * columns), 0};
    for (unsigned row = 0; row < rows; row++) weights[row][threadIdx.x] = row + 1;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init(sem_release, scope_cluster);
        mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &full, sizeof tile);
        cp_async_bulk_tensor(space_cluster, space_global, tile, &x, at, &full);  // BUG
    }
    __syncthreads();
    while (!mbarrier_try_wait_parity(&full, 0)) {}
    unsigned sum = 0;
    for (unsigned row = 0; row < rows; row++) sum += tile[row][threadIdx.x] * weights[row][threadIdx.x];
    sums[blockIdx.x * columns + threadIdx.x] = sum;
}
