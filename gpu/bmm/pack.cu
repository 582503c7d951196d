// Bit packing: one bit per element, 1 where the element is >= 0, 32 bits to a word.
//
// Compiled once per element type and bit order:
//   -DELEMENT_FLOAT64 | -DELEMENT_FLOAT32 | -DELEMENT_FLOAT16 | -DELEMENT_INT8
//   -DFIRST_MSB (the first element is bit 31) or -DFIRST_LSB (the first element is bit 0)
//
// A warp packs a tile of 32 x 32 elements. Elements past the edge of the matrix become 0 bits.
// A NaN has no sign to keep: it raises *nan_flag, which the host reads.

#if defined(ELEMENT_FLOAT64)
typedef double Element;
__device__ bool is_one(Element x) { return x >= 0.0; }
__device__ bool is_nan(Element x) { return x != x; }
#elif defined(ELEMENT_FLOAT32)
typedef float Element;
__device__ bool is_one(Element x) { return x >= 0.0f; }
__device__ bool is_nan(Element x) { return x != x; }
#elif defined(ELEMENT_FLOAT16)
// The sixteen bits are read as they are: sign, and a magnitude that orders like an integer.
typedef unsigned short Element;
__device__ bool is_one(Element x) { return x <= 0x8000u; }  // positive, or minus zero
__device__ bool is_nan(Element x) { return (x & 0x7fffu) > 0x7c00u; }
#elif defined(ELEMENT_INT8)
typedef signed char Element;
__device__ bool is_one(Element x) { return x >= 0; }
__device__ bool is_nan(Element) { return false; }
#endif

constexpr unsigned warp_size = 32;
constexpr unsigned all_lanes = 0xffffffffu;

struct Tile {
    unsigned lane, row, column;  // the lane, and the tile's first element
    bool inside;
};

// Warps are numbered along the grid; each takes the next tile, row of tiles by row of tiles.
__device__ Tile tile_of_this_warp(unsigned rows, unsigned columns)
{
    const unsigned across = columns / warp_size + (columns % warp_size != 0);
    const unsigned down = rows / warp_size + (rows % warp_size != 0);
    const unsigned warp = blockIdx.x * (blockDim.x / warp_size) + threadIdx.x / warp_size;
    Tile tile;
    tile.lane = threadIdx.x % warp_size;
    tile.row = warp / across * warp_size;
    tile.column = warp % across * warp_size;
    tile.inside = warp / across < down;
    return tile;
}

// Column-major-32: 32 consecutive elements of a row make a word; words[w * rows + row].
// A ballot turns the 32 lanes' bits into a word whose bit 0 is lane 0.
extern "C" __global__ void pack_column(const Element* __restrict__ matrix, unsigned* __restrict__ words,
                                       unsigned rows, unsigned columns, int* __restrict__ nan_flag)
{
    const Tile tile = tile_of_this_warp(rows, columns);
    if (!tile.inside) return;
    const unsigned column = tile.column + tile.lane;
    unsigned mine = 0;
    bool nan = false;
    for (unsigned i = 0; i < warp_size; ++i) {
        const unsigned row = tile.row + i;
        bool one = false;
        if (row < rows && column < columns) {
            const Element x = matrix[(unsigned long long)row * columns + column];
            one = is_one(x);
            nan |= is_nan(x);
        }
        unsigned word = __ballot_sync(all_lanes, one);
#if defined(FIRST_MSB)
        word = __brev(word);
#endif
        if (tile.lane == i) mine = word;
    }
    const unsigned row = tile.row + tile.lane;
    if (row < rows) words[(unsigned long long)(tile.column / warp_size) * rows + row] = mine;
    if (nan) atomicOr(nan_flag, 1);
}

// Row-major-32: 32 consecutive elements of a column make a word; words[w * columns + column].
// Each lane walks down its own column.
extern "C" __global__ void pack_row(const Element* __restrict__ matrix, unsigned* __restrict__ words,
                                    unsigned rows, unsigned columns, int* __restrict__ nan_flag)
{
    const Tile tile = tile_of_this_warp(rows, columns);
    if (!tile.inside) return;
    const unsigned column = tile.column + tile.lane;
    if (column >= columns) return;
    unsigned mine = 0;
    bool nan = false;
    for (unsigned i = 0; i < warp_size; ++i) {
        const unsigned row = tile.row + i;
        bool one = false;
        if (row < rows) {
            const Element x = matrix[(unsigned long long)row * columns + column];
            one = is_one(x);
            nan |= is_nan(x);
        }
#if defined(FIRST_MSB)
        mine = mine << 1 | one;
#else
        mine |= (unsigned)one << i;
#endif
    }
    words[(unsigned long long)(tile.row / warp_size) * columns + column] = mine;
    if (nan) atomicOr(nan_flag, 1);
}
