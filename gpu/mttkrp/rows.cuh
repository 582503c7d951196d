// Rows of factor matrices, and the groups of lanes that work on them: what all kernels of this folder share.
//
//   -DSCALAR=float | double          the elements of factors, values and result
//   -DVEC=4 | 2 | 1                  columns of a lane: 16 bytes where the rank is a multiple of them, else 1
//   -DLANES=1 | 2 | 4 | 8 | 16 | 32  lanes of a group; a warp has 32 / LANES groups
//   -DORDER=2 ... 8                  modes of the tensor
//
// A group walks over nonzeros one after another and has LANES * VEC columns of every row that it touches;
// blockIdx.y counts passes over the rank. Its lanes read one nonzero's indices and value at the same address,
// and a row's columns at neighbouring ones. Lanes past the rank load what the last lane within it does, and
// never write: a kernel needs no branch for them.
//
//   const Group group = this_group(sink.rank);
//   Row sum = zero_row();
//   Row rows[ORDER - 1];
//   for (unsigned l = 0; l < ORDER - 1; ++l) rows[l] = load_row(factors.of[l], index[l], group);
//   add_product(sum, value, rows);
//
// The host's twin is gpu/mttkrp/kernels.py.

#pragma once

typedef SCALAR Scalar;
typedef unsigned long long Offset;  // into matrices, which may have more than 2^32 elements

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };
enum : unsigned { threads_of_block = 256 };

// The factors of the modes that a nonzero's term is the product of, in the order that the format says.
struct Factors {
    const Scalar* of[ORDER - 1];
};

struct Group {
    Offset number;          // along the grid
    unsigned rank, column;  // the lane's first column, within the rank
    bool writes;            // whether it is the lane's own
};

__device__ inline Group this_group(unsigned rank)
{
    const unsigned of_block = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const unsigned column = (blockIdx.y * LANES + lane) * VEC;
    return {blockIdx.x * (Offset)(threads_of_block / LANES) + of_block, rank, min(column, rank - VEC), column < rank};
}

// A lane's columns of a row.
struct alignas(VEC * sizeof(Scalar)) Row {
    Scalar at[VEC];
};

__device__ inline Offset offset_of(Offset row, const Group& group) { return row * group.rank + group.column; }

__device__ inline Row load_row(const Scalar* matrix, unsigned row, const Group& group)
{
    const Scalar* const place = matrix + offset_of(row, group);
    Row loaded;
#if VEC == 4
    *reinterpret_cast<float4*>(loaded.at) = __ldg(reinterpret_cast<const float4*>(place));
#elif VEC == 2
    *reinterpret_cast<double2*>(loaded.at) = __ldg(reinterpret_cast<const double2*>(place));
#else
    loaded.at[0] = __ldg(place);
#endif
    return loaded;
}

__device__ inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return fma(a, b, c); }

__device__ inline Row zero_row() { return {}; }

// sum += row
__device__ inline void add(Row& sum, const Row& row)
{
#pragma unroll
    for (unsigned c = 0; c < VEC; ++c) sum.at[c] += row.at[c];
}

// sum += factor * row
__device__ inline void add_scaled(Row& sum, Scalar factor, const Row& row)
{
#pragma unroll
    for (unsigned c = 0; c < VEC; ++c) sum.at[c] = fused(factor, row.at[c], sum.at[c]);
}

// sum += left * right, element by element
__device__ inline void add_elementwise(Row& sum, const Row& left, const Row& right)
{
#pragma unroll
    for (unsigned c = 0; c < VEC; ++c) sum.at[c] = fused(left.at[c], right.at[c], sum.at[c]);
}

// row *= other, element by element
__device__ inline void multiply(Row& row, const Row& other)
{
#pragma unroll
    for (unsigned c = 0; c < VEC; ++c) row.at[c] *= other.at[c];
}

__device__ inline Row scaled(Scalar factor, const Row& row)
{
    Row product;
#pragma unroll
    for (unsigned c = 0; c < VEC; ++c) product.at[c] = factor * row.at[c];
    return product;
}

// sum += value * rows[0] * ... * rows[ORDER - 2], element by element: the term of one nonzero
__device__ inline void add_product(Row& sum, Scalar value, const Row (&rows)[ORDER - 1])
{
#pragma unroll
    for (unsigned c = 0; c < VEC; ++c) {
        Scalar product = value;
#pragma unroll
        for (unsigned l = 0; l < ORDER - 2; ++l) product *= rows[l].at[c];
        sum.at[c] = fused(product, rows[ORDER - 2].at[c], sum.at[c]);
    }
}
