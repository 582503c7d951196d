// Shared by the matrix products of warpgroups: the ring of stages between a producer and its consumers.
//
// A block computes tiles of 128 x 128 of c = a b, one after the other, in steps along k. Its last warp produces: one
// thread copies a step's tiles of a and b through tensor maps to the next free stage of the ring, up to STAGES steps
// ahead, also into the next tile of c. Two warpgroups consume: each multiplies its 64 rows of a by all of b. A stage
// has two barriers in shared memory:
//
//     full    one arrival, the producer's, with the bytes that it expects and that the copies bring
//     empty   one arrival of each warpgroup, whose products have read the stage

#include "wgmma.cuh"

#ifndef STAGES
#define STAGES 4
#endif
static_assert(STAGES > 1, "a stage is released when the products of the next one have begun");

enum : unsigned { consumers = 2, threads = consumers * warpgroup + warp_size };
enum : unsigned { tile = 128, group_rows = tile / consumers };

struct Stage {
    unsigned char a[tile * span], b[tile * span];
};

struct Ring {
    Stage stages[STAGES];
    Barrier full[STAGES], empty[STAGES];
};

// The stage whose turn it is, and the parity of its turn.
struct Turn {
    unsigned stage = 0, parity = 0;

    __device__ void advance()
    {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// The tiles of c that this block computes: every gridDim.x-th, row by row.
struct Tiles {
    unsigned across, count;

    __device__ Tiles(unsigned m, unsigned n) : across((n + tile - 1) / tile), count(across * ((m + tile - 1) / tile)) {}
    __device__ unsigned row(unsigned i) const { return i / across * tile; }
    __device__ unsigned column(unsigned i) const { return i % across * tile; }
};

__device__ inline void make_barriers(Ring& ring)
{
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < STAGES; ++i) {
            ptx::mbarrier_init(&ring.full[i], 1);
            ptx::mbarrier_init(&ring.empty[i], consumers);
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);  // the copies must see them, too
    }
    __syncthreads();
}

// Start the copy of a box; the innermost coordinate comes first. Zeros fill what is outside the matrix.
__device__ inline void load(unsigned char* to, const CUtensorMap& map, unsigned x, unsigned y, Barrier& barrier)
{
    const int at[2] = {(int)x, (int)y};
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, at, &barrier);
}

// Fill stages for all tiles of the block, by one thread: fill(stage, barrier, tile, step) starts the copies of a step.
template <class Fill>
__device__ inline void produce(Ring& ring, const Tiles& tiles, unsigned steps, Fill fill)
{
    Turn turn;
    for (unsigned i = blockIdx.x; i < tiles.count; i += gridDim.x)
        for (unsigned step = 0; step < steps; ++step, turn.advance()) {
            Barrier& full = ring.full[turn.stage];
            wait(ring.empty[turn.stage], turn.parity ^ 1);  // the first turn passes: the phase before it is complete
            // All bytes of the boxes count, those outside the matrices, too.
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof(Stage));
            fill(ring.stages[turn.stage], full, i, step);
        }
}

// Let a stage be filled again: the products of this warpgroup have read it.
__device__ inline void release(Ring& ring, unsigned stage)
{
    if (threadIdx.x % warpgroup == 0) ptx::mbarrier_arrive(&ring.empty[stage]);
}

// Multiply the stages of one tile, by a warpgroup: multiply(stage, add) issues the products of a step.
template <class Multiply>
__device__ inline void consume(Ring& ring, Turn& turn, unsigned steps, Multiply multiply)
{
    unsigned previous = 0;
    for (unsigned step = 0; step < steps; ++step, turn.advance()) {
        wait(ring.full[turn.stage], turn.parity);
        fence_registers();
        multiply(ring.stages[turn.stage], step > 0);
        commit();
        wait_products<1>();  // those of the previous step have ended, while these run
        if (step > 0) release(ring, previous);
        previous = turn.stage;
    }
    wait_products<0>();
    release(ring, previous);  // the next tile arrives during the epilogue
}

// The 64 accumulators of a product m64n128, as operands of inline PTX.
#define SUMS \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define OPERANDS(constraint, d) \
    EIGHT(constraint, d, 0), EIGHT(constraint, d, 8), EIGHT(constraint, d, 16), EIGHT(constraint, d, 24), \
        EIGHT(constraint, d, 32), EIGHT(constraint, d, 40), EIGHT(constraint, d, 48), EIGHT(constraint, d, 56)
