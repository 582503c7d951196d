// What the kernels over rows of a factor matrix share: their element, tile, and how threads divide it.
//
//   -DELEMENT=float | double   of the factors; all sums are double
//   -DTILE=8 | 16 | 32         columns that a block works on; more columns are several tiles
//
// A thread computes 4 x 4 numbers of a product: it holds two pairs of neighbouring columns, half a tile apart,
// so that neighbouring threads read 16 bytes next to one another.

#pragma once

typedef ELEMENT Element;
typedef unsigned long long Index;  // into factors, which may have more than 2^32 elements

enum : unsigned { tile = TILE, threads = 256, across = tile / 4, pitch = tile + 2 };
static_assert(tile == 8 || tile == 16 || tile == 32, "a quarter of a tile divides a block's threads");

__device__ inline unsigned divide_up(unsigned x, unsigned y) { return x / y + (x % y != 0); }

// The thread's column i of its tile, i < 4, where `place` is its number across.
__device__ inline unsigned column_of(unsigned place, unsigned i) { return 2 * place + i % 2 + i / 2 * (tile / 2); }

// Four doubles of a line of shared memory: the thread's columns.
struct Quad {
    double of[4];
    __device__ explicit Quad(const double* line, unsigned place)
    {
        const double2 near = *reinterpret_cast<const double2*>(line + column_of(place, 0));
        const double2 far = *reinterpret_cast<const double2*>(line + column_of(place, 2));
        of[0] = near.x, of[1] = near.y, of[2] = far.x, of[3] = far.y;
    }
};

// Loads the columns from `first_column` on of `tile_rows` rows from `first_row` on: element i of a thread is the
// one of row (threadIdx.x + i * threads) / tile; past an edge it is 0.
template <unsigned tile_rows>
struct Loaded {
    enum : unsigned { count = tile_rows * tile / threads };
    Element of[count];
    __device__ Loaded(const Element* matrix, Index first_row, Index rows, unsigned first_column, unsigned columns)
    {
        const unsigned column = first_column + threadIdx.x % tile;
#pragma unroll
        for (unsigned i = 0; i < count; ++i) {
            const Index row = first_row + (threadIdx.x + i * threads) / tile;
            of[i] = row < rows && column < columns ? matrix[row * columns + column] : Element(0);
        }
    }
};
