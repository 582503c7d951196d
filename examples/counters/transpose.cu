// Three ways to keep a tile of 32 x 32 in shared memory while a matrix is transposed. Warps write the tile
// row by row, and read it column by column. The block is (32, 8); `side` is a multiple of 32.

enum : unsigned { tile = 32, rows_at_a_time = 8 };

struct Plain {
    static constexpr unsigned row = tile;
    static __device__ unsigned column(unsigned, unsigned x) { return x; }
};

struct Padded {
    static constexpr unsigned row = tile + 1;
    static __device__ unsigned column(unsigned, unsigned x) { return x; }
};

struct Swizzled {
    static constexpr unsigned row = tile;
    static __device__ unsigned column(unsigned y, unsigned x) { return x ^ y; }
};

template <class Layout>
__device__ void transpose(const float* in, float* out, unsigned side)
{
    __shared__ float elements[tile][Layout::row];
    const unsigned x = threadIdx.x, first_row = blockIdx.y * tile, first_column = blockIdx.x * tile;
    for (unsigned y = threadIdx.y; y < tile; y += rows_at_a_time)
        elements[y][Layout::column(y, x)] = in[(first_row + y) * side + first_column + x];
    __syncthreads();
    for (unsigned y = threadIdx.y; y < tile; y += rows_at_a_time)
        out[(first_column + y) * side + first_row + x] = elements[x][Layout::column(x, y)];
}

extern "C" __global__ void plain(const float* in, float* out, unsigned side)
{
    transpose<Plain>(in, out, side);
}

extern "C" __global__ void padded(const float* in, float* out, unsigned side)
{
    transpose<Padded>(in, out, side);
}

extern "C" __global__ void swizzled(const float* in, float* out, unsigned side)
{
    transpose<Swizzled>(in, out, side);
}
