// The product of 64 rows and 8 columns of 128 8-bit integers; copies through tensor maps bring both.
//
// The copies exchange the pieces of 16 bytes in each row, and the product must know how.
// CU_TENSOR_MAP_SWIZZLE_128B is 3; in a descriptor, 3 is a swizzle of 32 bytes, and 1 is one of 128.

#include <cuda/ptx>

#include "include/tensor_map.cuh"
#include "include/wgmma.cuh"

using namespace cuda::ptx;

enum : unsigned { depth = 128, of_eight_rows = 8 * depth };

// The maps have boxes of all rows and of all columns, and a swizzle of 128 bytes.
extern "C" __global__ void wrong_swizzle(const __grid_constant__ CUtensorMap rows,
                                         const __grid_constant__ CUtensorMap columns, int* sums)
{
    __shared__ alignas(1024) unsigned char left[64][depth], right[8][depth];
    __shared__ cuda::std::uint64_t full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init(sem_release, scope_cluster);
        mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &full, sizeof left + sizeof right);
        const int at[] = {0, 0};
        cp_async_bulk_tensor(space_cluster, space_global, left, &rows, at, &full);  // BUG: the copy
        cp_async_bulk_tensor(space_cluster, space_global, right, &columns, at, &full);
    }
    __syncthreads();
    while (!mbarrier_try_wait_parity(&full, 0)) {}
#ifndef FIXED
    const unsigned swizzle = 3;
#else
    const unsigned swizzle = 1;
#endif
    int d[4] = {};
    wgmma_fence(d);
    for (unsigned k = 0; k < depth; k += 32) {
        const unsigned long long a = describe(&left[0][k], 16, of_eight_rows, swizzle);
        wgmma_m64n8k32(d, a, describe(&right[0][k], 16, of_eight_rows, swizzle));  // BUG
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    for (unsigned i = 0; i < 4; i++) sums[element(i)] = d[i];
}
