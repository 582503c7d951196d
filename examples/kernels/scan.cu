// Running sums in one pass, by decoupled look-back (Merrill and Garland, "Single-pass Parallel Prefix Scan
// with Decoupled Look-back", 2016).
//
// A block scans a tile and publishes its sum. Then it looks back, tile by tile, for what lies before: it
// adds sums of single tiles until it meets a tile whose running sum is known.
//
// Blocks may start in any order. Tiles are handed out by a counter, so that all earlier tiles are in the
// hands of blocks that run already: nobody waits for a block that waits for room on the chip.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu, threads = 128, warps = threads / warp_size };
enum : unsigned { per_thread = 4, tile_size = threads * per_thread };
enum : unsigned { nothing, tile_sum, running_sum };  // what is known of a tile

struct Tiles {
    volatile unsigned *known, *tile_sums, *running_sums;  // one of each per tile; `known` begins as nothing
};

// The fence orders the two writes for all who read `known` first, and then, behind a fence, the sum.
__device__ inline void publish(volatile unsigned& sum, unsigned value, volatile unsigned& known,
                               unsigned what)
{
    sum = value;
    __threadfence();
    known = what;
}

// The sum of all tiles before this one.
__device__ inline unsigned look_back(const Tiles& tiles, unsigned tile)
{
    unsigned sum = 0;
    while (tile > 0) {
        --tile;
        unsigned what;
        do what = tiles.known[tile];
        while (what == nothing);
        __threadfence();
        if (what == running_sum) return sum + tiles.running_sums[tile];
        sum += tiles.tile_sums[tile];
    }
    return sum;
}

// The sum over this lane and those below it.
__device__ inline unsigned scan_of_warp(unsigned x)
{
    for (unsigned distance = 1; distance < warp_size; distance *= 2) {
        const unsigned below = __shfl_up_sync(all_lanes, x, distance);
        if (threadIdx.x % warp_size >= distance) x += below;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(threads)
scan(const unsigned* __restrict__ x, unsigned* __restrict__ result, unsigned n, unsigned* next_tile,
     unsigned* known, unsigned* tile_sums, unsigned* running_sums)
{
    __shared__ unsigned this_tile, of_warp[warps], before_tile;
    if (threadIdx.x == 0) this_tile = atomicAdd(next_tile, 1);
    __syncthreads();
    const unsigned tile = this_tile, first = tile * tile_size + threadIdx.x * per_thread;

    unsigned scanned[per_thread], sum = 0;
    for (unsigned j = 0; j < per_thread; ++j) scanned[j] = sum += first + j < n ? x[first + j] : 0;

    const unsigned warp = threadIdx.x / warp_size, up_to_lane = scan_of_warp(sum);
    if (threadIdx.x % warp_size == warp_size - 1) of_warp[warp] = up_to_lane;
    __syncthreads();
    unsigned before = up_to_lane - sum;
    for (unsigned w = 0; w < warp; ++w) before += of_warp[w];

    if (threadIdx.x == threads - 1) {
        const Tiles tiles = {known, tile_sums, running_sums};
        const unsigned total = before + sum;
        publish(tiles.tile_sums[tile], total, tiles.known[tile], tile_sum);
        before_tile = look_back(tiles, tile);
        publish(tiles.running_sums[tile], before_tile + total, tiles.known[tile], running_sum);
    }
    __syncthreads();
    for (unsigned j = 0; j < per_thread; ++j)
        if (first + j < n) result[first + j] = before_tile + before + scanned[j];
}
