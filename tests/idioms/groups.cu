// Cooperative groups of every kind: tiles of a warp and of several warps, coalesced and binary partitions, the grid.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

template <int SIZE>
__device__ void sum_of_tile(const int* in, int* out)
{
    __shared__ cg::block_tile_memory<512> scratch;
    auto block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<SIZE>(block);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = cg::reduce(tile, in[i], cg::plus<int>());
}

extern "C" __global__ void tile8(const int* in, int* out) { sum_of_tile<8>(in, out); }
extern "C" __global__ void tile32(const int* in, int* out) { sum_of_tile<32>(in, out); }
extern "C" __global__ void tile64(const int* in, int* out) { sum_of_tile<64>(in, out); }
extern "C" __global__ void tile512(const int* in, int* out) { sum_of_tile<512>(in, out); }

// The scratch of a tile of several warps and the user's own shared memory do not share bytes.
extern "C" __global__ void beside_shared(int* out, int* sums)
{
    __shared__ unsigned data[128];
    __shared__ cg::block_tile_memory<128> scratch;
    auto block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<64>(block);
    data[threadIdx.x] = 0xffffffffu;
    block.sync();
    sums[threadIdx.x] = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
    tile.sync();
    out[threadIdx.x] = data[threadIdx.x];
}

// Each lane of an odd number learns how many odd numbers stand before it in its warp; one atomic for a warp.
extern "C" __global__ void compact_odd(const int* in, int* out, int* count, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && (in[i] & 1)) {
        auto active = cg::coalesced_threads();
        int start = 0;
        if (active.thread_rank() == 0) start = atomicAdd(count, (int)active.size());
        out[active.shfl(start, 0) + active.thread_rank()] = in[i];
    }
}

extern "C" __global__ void partition(const int* in, int* out)
{
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    auto part = cg::binary_partition(warp, (in[i] & 1) != 0);
    out[i] = cg::reduce(part, in[i], cg::plus<int>());
    auto kind = cg::labeled_partition(warp, in[i] % 3);
    out[i] += 1000 * (int)kind.size();
}

extern "C" __global__ void scan_of_warp(const int* in, int* out)
{
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = cg::inclusive_scan(warp, in[i], cg::plus<int>());
}

extern "C" __global__ void rotate_grid(int* a, int* b)
{
    auto grid = cg::this_grid();
    const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (int round = 1; round <= 3; ++round) {
        a[i] = round * i;
        grid.sync();
        b[i] = a[(i + 37) % n];
        grid.sync();
    }
}
