// Bit packing: one bit per element, 1 where the element is >= 0, 32 bits to a word (BSTC, section 4).
//
// Compiled once per element type and bit order:
//   -DELEMENT_FLOAT64 | -DELEMENT_FLOAT32 | -DELEMENT_FLOAT16 | -DELEMENT_INT8
//   -DFIRST_MSB (the first element is bit 31) or -DFIRST_LSB (the first element is bit 0)
//
// A warp packs a tile of 32 x 32 elements. All of a lane's 32 loads are issued before the first is
// used. Past the edge of the matrix a lane loads the last element again, and its bit is made 0.
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
// The sixteen bits are read as they are: a sign, and a magnitude that orders like an integer.
typedef unsigned short Element;
__device__ bool is_one(Element x) { return x <= 0x8000u; }  // positive, or minus zero
__device__ bool is_nan(Element x) { return (x & 0x7fffu) > 0x7c00u; }
#elif defined(ELEMENT_INT8)
typedef signed char Element;
__device__ bool is_one(Element x) { return x >= 0; }
__device__ bool is_nan(Element) { return false; }
#endif

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

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

// The lane's column of the tile, from top to bottom.
__device__ void load_column(const Element* matrix, unsigned rows, unsigned columns, Tile tile, Element x[])
{
    const unsigned column = min(tile.column + tile.lane, columns - 1);
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i)
        x[i] = matrix[(unsigned long long)min(tile.row + i, rows - 1) * columns + column];
}

// Column-major-32: 32 consecutive elements of a row make a word; words[w * rows + row].
// A ballot turns the lanes' bits into a word whose bit 0 is lane 0 (listing 1).
extern "C" __global__ void __launch_bounds__(128)
pack_column(const Element* __restrict__ matrix, unsigned* __restrict__ words, unsigned rows,
            unsigned columns, int* __restrict__ nan_flag)
{
    const Tile tile = tile_of_this_warp(rows, columns);
    if (!tile.inside) return;
    Element x[warp_size];
    load_column(matrix, rows, columns, tile, x);
    unsigned mine = 0;
    bool nan = false;
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i) {
        unsigned word = __ballot_sync(all_lanes, is_one(x[i]) && tile.column + tile.lane < columns);
#if defined(FIRST_MSB)
        word = __brev(word);
#endif
        if (tile.lane == i) mine = word;
        nan |= is_nan(x[i]);
    }
    const unsigned row = tile.row + tile.lane;
    if (row < rows) words[(unsigned long long)(tile.column / warp_size) * rows + row] = mine;
    if (nan) atomicOr(nan_flag, 1);
}

// Row-major-32: 32 consecutive elements of a column make a word; words[w * columns + column].
// Each lane gathers its own column, bit by bit (listing 2).
extern "C" __global__ void __launch_bounds__(128)
pack_row(const Element* __restrict__ matrix, unsigned* __restrict__ words, unsigned rows,
         unsigned columns, int* __restrict__ nan_flag)
{
    const Tile tile = tile_of_this_warp(rows, columns);
    if (!tile.inside) return;
    Element x[warp_size];
    load_column(matrix, rows, columns, tile, x);
    unsigned mine = 0;
    bool nan = false;
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i) {
        const unsigned bit = is_one(x[i]) && tile.row + i < rows;
#if defined(FIRST_MSB)
        mine = mine << 1 | bit;
#else
        mine |= bit << i;
#endif
        nan |= is_nan(x[i]);
    }
    const unsigned column = tile.column + tile.lane;
    if (column < columns) words[(unsigned long long)(tile.row / warp_size) * columns + column] = mine;
    if (nan) atomicOr(nan_flag, 1);
}
