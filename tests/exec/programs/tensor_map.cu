// A copy by a tensor map, which the driver's entry point encodes.
#include "check.h"
#include <cuda.h>
#include <cuda/barrier>

namespace ptx = cuda::device::experimental;
using barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void tile(const __grid_constant__ CUtensorMap map, int x, int y, int *out)
{
    __shared__ alignas(128) int box[4][8];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier ready;
    if (threadIdx.x == 0) {
        init(&ready, blockDim.x);
        ptx::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor_2d_global_to_shared(box, &map, x, y, ready);
        token = cuda::device::barrier_arrive_tx(ready, 1, sizeof box);
    } else {
        token = ready.arrive();
    }
    ready.wait(std::move(token));
    out[threadIdx.x] = box[threadIdx.x / 8][threadIdx.x % 8];
}

int main()
{
    int host[16][32], found[32], *x, *out;
    for (int i = 0; i < 16 * 32; i++)
        host[i / 32][i % 32] = i;
    CUDA(cudaMalloc(&x, sizeof host));
    CUDA(cudaMalloc(&out, sizeof found));
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    decltype(&cuTensorMapEncodeTiled) encode;
    cudaDriverEntryPointQueryResult result;
    CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000,
                                          cudaEnableDefault, &result));
    CHECK(result == cudaDriverEntryPointSuccess);
    CUtensorMap map;
    cuuint64_t shape[2] = {32, 16}, strides[1] = {32 * sizeof(int)};
    cuuint32_t box[2] = {8, 4}, steps[2] = {1, 1};
    auto make = [&](int swizzle) {
        return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, x, shape, strides, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)swizzle,
                      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    CHECK(make(9) == CUDA_ERROR_INVALID_VALUE && make(CU_TENSOR_MAP_SWIZZLE_NONE) == CUDA_SUCCESS);
    tile<<<1, 32>>>(map, 4, 3, out);
    CUDA(cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++)
        CHECK(found[i] == host[3 + i / 8][4 + i % 8]);
    puts("tensor_map: right");
    return 0;
}
