// Options of BSTC's sections 3, 5.1 and 8, on its listings as printed: `bstc_options.py` times them.
//
//   -DWARPS=1 | 4             warps of a block, each with work of its own
//   -DFILTER_PLAIN | -DFILTER_NC | -DFILTER_CG | -DFILTER_NO_ALLOCATE     how `bconv` loads its filters
//   -DCOUNTER="unsigned" | "unsigned short"                              its counters in shared memory
//   -DA_COLUMNS=0 | 1  -DB_COLUMNS=0 | 1      whether the lanes of `bmm` hold columns of the tiles of A, of B

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

// The plain load is of memory that the compiler cannot know to be constant: no operand is __restrict__.
__device__ inline unsigned load_filter(const unsigned* word)
{
#if defined(FILTER_NC)
    return __ldg(word);
#elif defined(FILTER_CG)
    return __ldcg(word);
#elif defined(FILTER_NO_ALLOCATE)
    unsigned loaded;
    asm("ld.global.L1::no_allocate.b32 %0, [%1];" : "=r"(loaded) : "l"(__cvta_generic_to_global(word)));
    return loaded;
#else
    return *word;
#endif
}

struct Image {
    unsigned height, width, channels, filters;
};

// Listing 6 with the thresholds of listing 7: a warp has a pixel, its lanes the filters, 3 x 3 taps, padding 1.
// images (height, width, words), filters (3, 3, words, filters), output (height, width, filters / 32 rounded up).
extern "C" __global__ void __launch_bounds__(WARPS * warp_size)
bconv(const unsigned* images, const unsigned* filters, const int* thresholds, unsigned* output, const Image shape)
{
    extern __shared__ __align__(4) unsigned char shared[];
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const unsigned pixel = blockIdx.x * WARPS + warp;
    if (pixel >= shape.height * shape.width) return;
    COUNTER* const counters = reinterpret_cast<COUNTER*>(shared) + warp * shape.filters;
    const unsigned words = (shape.channels + warp_size - 1) / warp_size;
    for (unsigned i = lane; i < shape.filters; i += warp_size) counters[i] = 0;
    unsigned taps = 0;
    for (unsigned r = 0; r < 3; ++r) {
        for (unsigned s = 0; s < 3; ++s) {
            const unsigned row = pixel / shape.width + r - 1, column = pixel % shape.width + s - 1;
            if (row >= shape.height || column >= shape.width) continue;
            ++taps;
            for (unsigned c = 0; c < words; ++c) {
                const unsigned x = images[(row * shape.width + column) * words + c];
                const unsigned* const line = filters + ((r * 3 + s) * words + c) * shape.filters;
                for (unsigned i = lane; i < shape.filters; i += warp_size)
                    counters[i] += __popc(x ^ load_filter(line + i));
            }
        }
    }
    const int length = taps * shape.channels;
    for (unsigned first = 0; first < shape.filters; first += warp_size) {
        const unsigned i = first + lane;
        const bool bit = i < shape.filters && length - 2 * (int)counters[i] >= thresholds[i];
        const unsigned word = __brev(__ballot_sync(all_lanes, bit));
        if (lane == 0) output[pixel * ((shape.filters + warp_size - 1) / warp_size) + first / warp_size] = word;
    }
}

// Op H on bit-column j of a tile, which counts from the top bit.
__device__ inline unsigned crop(unsigned word, unsigned j)
{
    return __brev(__ballot_sync(all_lanes, word >> (warp_size - 1 - j) & 1));
}

__device__ inline unsigned fetch(const unsigned* line, unsigned position, unsigned extent)
{
    return position < extent ? line[position] : 0;
}

// A warp computes a tile of 32 x 32 of C in one of four ways (section 5.1, listings 3 and 4). Rows: word i of
// row r at [i * side + r]; columns: word b, of 32 rows, of column w at [b * k + w]. clocks has a warp's cycles.
extern "C" __global__ void __launch_bounds__(WARPS * warp_size)
bmm(const unsigned* a, const unsigned* b, int* c, long long* clocks, unsigned m, unsigned n, unsigned k)
{
    const unsigned lane = threadIdx.x % warp_size, warp = blockIdx.x * WARPS + threadIdx.x / warp_size;
    const unsigned across = (n + warp_size - 1) / warp_size;
    const unsigned by = warp / across, bx = warp % across;
    if (by * warp_size >= m) return;
    const unsigned row = by * warp_size + lane, column = bx * warp_size + lane;
    unsigned differing[warp_size] = {};
    const long long began = clock64();
    for (unsigned i = 0; i < (k + warp_size - 1) / warp_size; ++i) {
        const unsigned at = i * warp_size + lane;
        unsigned x = A_COLUMNS ? fetch(a + by * k, at, k) : fetch(a + i * m, row, m);
        unsigned y = B_COLUMNS ? fetch(b + bx * k, at, k) : fetch(b + i * n, column, n);
#if A_COLUMNS && B_COLUMNS
        unsigned turned = 0;
#pragma unroll
        for (unsigned j = 0; j < warp_size; ++j) {
            const unsigned word = crop(x, j);
            if (lane == j) turned = word;
        }
        x = turned;
#endif
#pragma unroll
        for (unsigned j = 0; j < warp_size; ++j) {
#if A_COLUMNS && !B_COLUMNS
            differing[j] += __popc(y ^ crop(x, j));
#elif B_COLUMNS
            differing[j] += __popc(x ^ crop(y, j));
#else
            differing[j] += __popc(x ^ __shfl_sync(all_lanes, y, j));
#endif
        }
    }
    unsigned total = 0;
#pragma unroll
    for (unsigned j = 0; j < warp_size; ++j) total += differing[j];
    if (total == all_lanes) return;  // never: it keeps the second clock behind the counts
    const long long ended = clock64();
    if (lane == 0) clocks[warp] = ended - began;
#pragma unroll
    for (unsigned j = 0; j < warp_size; ++j) {
#if A_COLUMNS && !B_COLUMNS
        const unsigned to_row = by * warp_size + j, to_column = column;
#else
        const unsigned to_row = row, to_column = bx * warp_size + j;
#endif
        if (to_row < m && to_column < n) c[(unsigned long long)to_row * n + to_column] = (int)k - 2 * (int)differing[j];
    }
}
