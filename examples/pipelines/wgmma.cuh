// Shared by the pipelines of warpgroups: tensor maps, the wait for an mbarrier, and wgmma's operands and groups.

#include <cuda/ptx>

namespace ptx = cuda::ptx;

struct alignas(64) CUtensorMap { char bytes[128]; };  // NVRTC cannot read cuda.h

enum : unsigned { warp_size = 32, warpgroup = 128 };

// The swizzle permutes chunks of 16 bytes in rows of `span` bytes; its pattern has eight rows, an atom. Tiles begin
// at multiples of it.
enum : unsigned { span = 128, atom = 8 * span };

using Barrier = uint64_t;

__device__ inline void wait(Barrier& barrier, unsigned parity)
{
    while (!ptx::mbarrier_try_wait_parity(&barrier, parity)) {}
}

// The descriptor of a swizzled matrix (PTX ISA 9.7.15.5.1.2). From one atom to the next below it are `stride` bytes. An
// MN-major matrix may be wider than an atom: `leading` bytes lie between neighbours; a K-major one ignores them.
__device__ inline uint64_t describe(const void* start, unsigned leading, unsigned stride)
{
    const uint64_t address = __cvta_generic_to_shared(start) & 0x3FFFF;
    return address >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | 1ull << 62;
}

// Order what this thread did to accumulators before the products that follow.
__device__ inline void fence_registers()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most `pending` of the last groups of products have not ended.
template <unsigned pending>
__device__ inline void wait_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory");
}

// Eight accumulators, as operands of inline PTX.
#define EIGHT(constraint, d, i) \
    constraint(d[i]), constraint(d[i + 1]), constraint(d[i + 2]), constraint(d[i + 3]), constraint(d[i + 4]), \
        constraint(d[i + 5]), constraint(d[i + 6]), constraint(d[i + 7])

// Where accumulators 4 j and 4 j + 1 lie: neighbours in this row, from this column + 8 j on. 4 j + 2 and 4 j + 3 are
// eight rows below.
__device__ inline unsigned first_row() { return threadIdx.x / warp_size * 16 + threadIdx.x % warp_size / 4; }
__device__ inline unsigned first_column() { return threadIdx.x % 4 * 2; }
