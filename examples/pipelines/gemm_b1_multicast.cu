// A matrix product of bits on tensor cores of sm_90; blocks of a cluster share the tiles of a by multicast.
//
// The CLUSTER blocks of a cluster compute neighbouring tiles of c in one row, so all of them need the same tiles of a
// and each its own tiles of b. In each step along k, a block brings its part of the tile of a and sends it to all
// of them: a is read once a cluster. Tiles pass through a ring of STAGES in each block's shared memory:
//
//     a fifth warp produces:   wait until all blocks have released the stage, expect its bytes, copy
//     four warps consume:      wait for the bytes, use the stage, release it to all blocks
//
// A stage is released to all blocks since each of them writes to it. The operands are as in cluster.cuh, with zeros
// up to whole tiles, whole steps and whole clusters.

#include "cluster.cuh"

#ifndef CLUSTER
#define CLUSTER 2
#endif
#ifndef STAGES
#define STAGES 3
#endif

// Eight more than a tile, so that four words of eight neighbouring lines lie in 32 different banks.
enum : unsigned { pitch = tile + 8 };
enum : unsigned { threads = (warps + 1) * warp_size, line_bytes = tile * 4, stage_bytes = 2 * words * line_bytes };

struct Stage {
    alignas(16) unsigned a[words][pitch], b[words][pitch];
};

extern "C" __global__ void __launch_bounds__(threads) __cluster_dims__(CLUSTER, 1, 1)
gemm_b1_multicast(const unsigned* __restrict__ a, const unsigned* __restrict__ b, int* __restrict__ c, unsigned m,
                  unsigned n, unsigned steps, unsigned pitch_a, unsigned pitch_b)
{
    __shared__ Stage stages[STAGES];
    __shared__ Barrier full[STAGES], released[STAGES];
    const auto cluster = cg::this_cluster();
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size, rank = cluster.block_rank();
    const unsigned block_row = blockIdx.y * tile, block_column = blockIdx.x * tile;

    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < STAGES; ++i) {
            ptx::mbarrier_init(&full[i], 1);                     // the producer, besides the bytes
            ptx::mbarrier_init(&released[i], CLUSTER * warps);   // the consumers of all blocks
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    cluster.sync();  // no block sends before the barriers of all are there

    if (warp == warps && lane == 0) {
        const unsigned share = words / CLUSTER, everyone = (1 << CLUSTER) - 1;
        for (unsigned step = 0; step < steps; ++step) {
            const unsigned at = step % STAGES, round = step / STAGES;
            wait(released[at], (round + 1) % 2);  // round 0 passes: the phase before the first counts as complete
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[at], stage_bytes);
            for (unsigned i = 0; i < words; ++i) {
                const unsigned* const from = b + (size_t)(step * words + i) * pitch_b + block_column;
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stages[at].b[i], from, line_bytes, &full[at]);
            }
            for (unsigned i = rank * share; i < (rank + 1) * share; ++i) {
                const unsigned* const from = a + (size_t)(step * words + i) * pitch_a + block_row;
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stages[at].a[i], from, line_bytes, &full[at],
                                   everyone);
            }
        }
    } else if (warp < warps) {
        Sums sums = {};
        for (unsigned step = 0; step < steps; ++step) {
            const unsigned at = step % STAGES, round = step / STAGES;
            wait(full[at], round % 2);
            multiply(sums, stages[at].a[0], pitch, stages[at].b[0], pitch);
            __syncwarp();  // all lanes have read; the first ones tell one block each
            if (lane < CLUSTER)
                ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster,
                                     cluster.map_shared_rank(&released[at], lane));
        }
        for_each(sums, [&](unsigned y, unsigned x, int sum) {
            const unsigned row = block_row + y, column = block_column + x;
            if (row < m && column < n) c[(size_t)row * n + column] = sum;
        });
    }
    cluster.sync();  // no block exits while others release stages to it
}
