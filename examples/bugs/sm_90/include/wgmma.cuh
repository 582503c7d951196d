// The products of a warpgroup that the kernels need: m64n8k32 of 8-bit integers; see the PTX ISA, 9.7.15.
#pragma once

// Where a piece of 16 bytes of a tile with rows of 32 bytes is, in pieces, without swizzle: a core matrix has
// eight rows of one piece, and its neighbour along the rows comes next.
__device__ inline unsigned place(unsigned row, unsigned piece)
{
    return row / 8 * 16 + piece * 8 + row % 8;
}

// 16 bytes of an array, by their number.
__device__ inline uint4 piece_of(const unsigned* x, unsigned i)
{
    return reinterpret_cast<const uint4*>(x)[i];
}

// From one core matrix to the next, along and across the rows.
enum : unsigned { leading_bytes = 128, stride_bytes = 256 };

// The descriptor of a tile in shared memory; swizzle is 0 for none, 1 for 128 bytes.
__device__ inline unsigned long long describe(const void* tile, unsigned leading, unsigned stride,
                                              unsigned long long swizzle = 0)
{
    const unsigned long long start = static_cast<unsigned>(__cvta_generic_to_shared(tile)) >> 4;
    return start | (leading >> 4) << 16 | static_cast<unsigned long long>(stride >> 4) << 32 | swizzle << 62;
}

__device__ inline void fence_proxy_async()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

// Order what was done with the registers before the products behind it; naming them keeps the compiler from
// writing them later.
__device__ inline void wgmma_fence(int (&d)[4])
{
    asm volatile("wgmma.fence.sync.aligned;" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])::"memory");
}

__device__ inline void wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most `pending` of the latest groups have not ended.
template <unsigned pending>
__device__ inline void wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Add the product of 64 rows and 8 columns.
__device__ inline void wgmma_m64n8k32(int (&d)[4], unsigned long long rows, unsigned long long columns)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%0, %1, %2, %3}, %4, %5, 1;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "l"(rows), "l"(columns)
                 : "memory");
}

// The element of a matrix of 64 x 8 that register i of a thread holds.
__device__ inline unsigned element(unsigned i)
{
    const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8;
    return row * 8 + threadIdx.x % 4 * 2 + i % 2;
}
