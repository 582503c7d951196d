// Kernels around the agents of CUB's device-wide algorithms, with tiles small enough for many blocks.
#include <cub/agent/agent_histogram.cuh>
#include <cub/agent/agent_radix_sort_histogram.cuh>
#include <cub/agent/agent_radix_sort_onesweep.cuh>
#include <cub/agent/agent_reduce.cuh>
#include <cub/agent/agent_rle.cuh>
#include <cub/agent/agent_scan.cuh>
#include <cub/agent/agent_select_if.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/grid/grid_even_share.cuh>
#include <cuda/std/functional>

constexpr int THREADS = 64, ITEMS = 4, RADIX_BITS = 8;
using Plus = cuda::std::plus<>;
using Delay = cub::detail::no_delay_constructor_t<0>;
using Tiles = cub::ScanTileState<int>;
using RunTiles = cub::ReduceByKeyScanTileState<int, int>;

template <typename State>
__device__ State tiles_at(void* memory)
{
    State state;
    state.Init(0, memory, 0);
    return state;
}

extern "C" __global__ void init(void* tiles, int count) { tiles_at<Tiles>(tiles).InitializeStatus(count); }
extern "C" __global__ void init_runs(void* tiles, int count) { tiles_at<RunTiles>(tiles).InitializeStatus(count); }

extern "C" __global__ void __launch_bounds__(THREADS) reduce(const int* in, int* out, int n)
{
    using Policy = cub::AgentReducePolicy<THREADS, ITEMS, int, 4, cub::BLOCK_REDUCE_WARP_REDUCTIONS, cub::LOAD_LDG>;
    using Agent = cub::detail::reduce::AgentReduce<Policy, const int*, int*, int, Plus, int>;
    __shared__ typename Agent::TempStorage storage;
    cub::GridEvenShare<int> share;
    share.DispatchInit(n, gridDim.x, THREADS * ITEMS);
    const int sum = Agent(storage, in, Plus()).ConsumeTiles(share);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void __launch_bounds__(THREADS) scan(const int* in, int* out, void* tiles, int n)
{
    using Policy = cub::AgentScanPolicy<THREADS, ITEMS, int, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
        cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS, cub::detail::MemBoundScaling<THREADS, ITEMS, int>, Delay>;
    using Agent = cub::detail::scan::AgentScan<Policy, const int*, int*, Plus, cub::NullType, int, int>;
    __shared__ typename Agent::TempStorage storage;
    Tiles state = tiles_at<Tiles>(tiles);
    Agent(storage, in, out, Plus(), cub::NullType()).ConsumeRange(n, state, 0);
}

struct OnePartition
{
    using total_num_items_t = int;
    __device__ int input_offset() const { return 0; }
    __device__ int is_first_partition() const { return 1; }
    __device__ int num_previously_selected() const { return 0; }
    __device__ int num_previously_rejected() const { return 0; }
    __device__ int num_total_items(int n) const { return n; }
    __device__ void update_num_selected(int* out, int count) const { *out = count; }
};

struct IsOdd
{
    __device__ bool operator()(int x) const { return x & 1; }
};

extern "C" __global__ void __launch_bounds__(THREADS)
select_odd(const int* in, int* out, int* count, void* tiles, int n, int tile_count)
{
    using Policy = cub::AgentSelectIfPolicy<THREADS, ITEMS, cub::BLOCK_LOAD_DIRECT, cub::LOAD_DEFAULT,
        cub::BLOCK_SCAN_WARP_SCANS, Delay>;
    using Agent = cub::detail::select::AgentSelectIf<Policy, const int*, cub::NullType*, int*, IsOdd, cub::NullType, int,
        OnePartition, cub::SelectImpl::Select>;
    __shared__ typename Agent::TempStorage storage;
    Tiles state = tiles_at<Tiles>(tiles);
    const OnePartition context;
    Agent(storage, in, nullptr, out, IsOdd(), cub::NullType(), n, context).ConsumeRange(tile_count, state, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
runs(const int* in, int* offsets, int* lengths, int* count, void* tiles, int n, int tile_count)
{
    using Policy = cub::AgentRlePolicy<THREADS, ITEMS, cub::BLOCK_LOAD_DIRECT, cub::LOAD_DEFAULT, true,
        cub::BLOCK_SCAN_WARP_SCANS, Delay>;
    using Agent = cub::detail::rle::AgentRle<Policy, const int*, int*, int*, cuda::std::equal_to<>, int>;
    __shared__ typename Agent::TempStorage storage;
    RunTiles state = tiles_at<RunTiles>(tiles);
    Agent(storage, in, offsets, lengths, cuda::std::equal_to<>(), n).ConsumeRange(tile_count, state, count);
}

struct Bin
{
    template <cub::CacheLoadModifier>
    __device__ void BinSelect(int sample, int& bin, bool valid) const
    {
        if (valid) bin = sample;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const int* in, int* out, int bins, int n, int tile_count, int* queue)
{
    using Policy = cub::AgentHistogramPolicy<THREADS, ITEMS, cub::BLOCK_LOAD_DIRECT, cub::LOAD_LDG, true, cub::SMEM, false>;
    using Agent = cub::detail::histogram::AgentHistogram<Policy, 256, 1, 1, const int*, int, Bin, Bin, int>;
    __shared__ typename Agent::TempStorage storage;
    int *output = out, *privatized = out;
    Bin decode;
    Agent agent(storage, in, &bins, &bins, &output, &privatized, &decode, &decode);
    agent.InitBinCounters();
    agent.ConsumeTiles(n, 1, n, tile_count, cub::GridQueue<int>(queue));
    agent.StoreOutput();
}

extern "C" __global__ void __launch_bounds__(THREADS) sort_histogram(unsigned* bins, const unsigned* keys, int n)
{
    using Policy = cub::AgentRadixSortHistogramPolicy<THREADS, ITEMS, 1, unsigned, RADIX_BITS>;
    using Agent = cub::detail::radix_sort::AgentRadixSortHistogram<Policy, false, unsigned, unsigned>;
    __shared__ typename Agent::TempStorage storage;
    Agent(storage, bins, keys, n, 0, 32).Process();
}

extern "C" __global__ void __launch_bounds__(1 << RADIX_BITS) sort_offsets(unsigned* bins)
{
    using Scan = cub::BlockScan<unsigned, 1 << RADIX_BITS>;
    __shared__ typename Scan::TempStorage storage;
    unsigned& mine = bins[blockIdx.x * blockDim.x + threadIdx.x];
    unsigned offset = mine;
    Scan(storage).ExclusiveSum(offset, offset);
    mine = offset;
}

extern "C" __global__ void __launch_bounds__(256)
sort_onesweep(int* lookback, int* counter, unsigned* bins_out, const unsigned* bins, unsigned* keys_out,
              const unsigned* keys, unsigned* values_out, const unsigned* values, int n, int bit)
{
    using Policy = cub::AgentRadixSortOnesweepPolicy<256, ITEMS, unsigned, 1, cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY,
        cub::BLOCK_SCAN_WARP_SCANS, cub::RADIX_SORT_STORE_DIRECT, RADIX_BITS>;
    using Agent = cub::detail::radix_sort::AgentRadixSortOnesweep<Policy, false, unsigned, unsigned, unsigned, int>;
    __shared__ typename Agent::TempStorage storage;
    Agent(storage, lookback, counter, bins_out, bins, keys_out, keys, values_out, values, n, bit, RADIX_BITS).Process();
}
