// A matrix product of bits on tensor cores of sm_90, divided by work, not by tiles ("stream-K"): every block gets
// the same number of steps along k, which may begin and end within a tile.
//
// Clusters get whole tiles. The (tile, step) pairs of a cluster, one tile after the other, are divided evenly among
// its CLUSTER blocks. A tile belongs to the block with its first step; those with later steps add their sums to the
// owner's shared memory by red.async, and the owner's mbarrier counts the bytes. A tile that goes on in the next
// block is the last one of its owner, so an owner needs one such tile of sums:
//
//     expect the bytes of all helpers, compute, wait for them, stage the sums, store
//
// The operands are as in cluster.cuh, with zeros up to whole tiles and steps; c has whole tiles, too.

#include "cluster.cuh"

#ifndef CLUSTER
#define CLUSTER 4
#endif

enum : unsigned { threads = warps * warp_size, row_bytes = tile * 4, tile_bytes = tile * row_bytes };

// Eight more than a tile, so that of the 32 sums that a warp stores at once two at most lie in one bank.
enum : unsigned { pitch = tile + 8 };

extern "C" __global__ void __launch_bounds__(threads) __cluster_dims__(CLUSTER, 1, 1)
gemm_b1_stream_k(const unsigned* __restrict__ a, const unsigned* __restrict__ b, int* __restrict__ c, unsigned tiles_m,
                 unsigned tiles_n, unsigned steps)
{
    __shared__ alignas(16) int staged[tile][pitch], helped[tile][pitch];
    __shared__ Barrier arrived;
    const auto cluster = cg::this_cluster();
    const unsigned rank = cluster.block_rank(), clusters = gridDim.x / CLUSTER;
    const unsigned pitch_a = tiles_m * tile, pitch_b = tiles_n * tile;

    // Pairs are numbered within the cluster; this block has those from begin to end.
    const unsigned tiles = tiles_m * tiles_n, per_cluster = (tiles + clusters - 1) / clusters;
    const unsigned first_tile = min(blockIdx.x / CLUSTER * per_cluster, tiles);
    const unsigned pairs = (min(first_tile + per_cluster, tiles) - first_tile) * steps;
    const unsigned share = (pairs + CLUSTER - 1) / CLUSTER;
    const unsigned begin = min(rank * share, pairs), end = min(begin + share, pairs);
    const unsigned open = end / steps * steps;  // where the tile begins that goes on in the next block, if it is mine
    const unsigned helpers = begin <= open && open < end ? (open + steps - 1) / share - rank : 0;

    for (unsigned i = threadIdx.x; i < tile * tile; i += threads) helped[i / tile][i % tile] = 0;
    ptx::fence_proxy_async(ptx::space_shared);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&arrived, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &arrived,
                                       helpers * tile_bytes);
    }
    cluster.sync();  // no block sends before the zeros and the barriers of all are there

    for (unsigned pair = begin, next; pair < end; pair = next) {
        const unsigned first = pair % steps, start = pair - first;
        next = min(start + steps, end);
        const unsigned tile_row = (first_tile + pair / steps) / tiles_n * tile;
        const unsigned tile_column = (first_tile + pair / steps) % tiles_n * tile;
        Sums sums = {};
        for (unsigned step = first; step < next - start; ++step)
            multiply(sums, a + (size_t)step * words * pitch_a + tile_row, pitch_a,
                     b + (size_t)step * words * pitch_b + tile_column, pitch_b);

        if (first > 0) {
            const unsigned owner = start / share;
            Barrier* const counts = cluster.map_shared_rank(&arrived, owner);
            for_each(sums, [&](unsigned y, unsigned x, int sum) {
                ptx::red_async(ptx::op_add, cluster.map_shared_rank(&helped[y][x], owner), sum, counts);
            });
            continue;
        }
        const bool split = next < start + steps;
        if (split) wait(arrived, 0);
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // the last tile's rows have left,
        __syncthreads();                                      // those of all threads
        for_each(sums, [&](unsigned y, unsigned x, int sum) { staged[y][x] = sum + (split ? helped[y][x] : 0); });
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (threadIdx.x < tile) {
            int* const to = c + (size_t)(tile_row + threadIdx.x) * pitch_b + tile_column;
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, to, staged[threadIdx.x], row_bytes);
            ptx::cp_async_bulk_commit_group();
        }
    }
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // shared memory ends with the block
}
