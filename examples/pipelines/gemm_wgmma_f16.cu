// The matrix product c = a b on tensor cores of sm_90a, f16 in and f32 out; a (m, k), b (k, n) and c lie row by row.
//
// A step along k is 64 elements, 128 bytes of a row of a. Its tile of a is K-major. Of b the step has 64 rows, and the
// tile is MN-major, as two boxes of 64 columns: wgmma transposes it. Results go back through shared memory and a
// tensor map, which leaves out what is outside c. So m, n and k are free.

#include "warpgroups.cuh"

enum : unsigned { depth = 64, box_columns = 64, box_bytes = depth * span, product_depth = 16 };
enum : unsigned { element = 2, output_columns = 32, outputs = tile / output_columns };

// The results of a warpgroup, in boxes of 32 columns, 128 bytes of a row of c.
struct Output {
    unsigned char boxes[outputs][group_rows * span];
};

// Add a product of k = 16, or begin with it. The last operand says that b is MN-major.
__device__ inline void multiply_add(float (&d)[64], uint64_t a, uint64_t b, bool add)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " SUMS ", %64, %65, add, 1, 1, 0, 1;\n"
                 "}"
                 : OPERANDS("+f", d)
                 : "l"(a), "l"(b), "r"((int)add));
}

// Issue the products of a step: a product takes 32 bytes of each row of a, and 16 rows of b, two atoms.
__device__ inline void multiply(float (&sums)[64], const Stage& stage, bool add)
{
    const unsigned rows = threadIdx.x / warpgroup * group_rows;
    const uint64_t a = describe(&stage.a[rows * span], 0, atom), b = describe(stage.b, box_bytes, atom);
#pragma unroll
    for (unsigned k = 0; k < depth; k += product_depth)
        multiply_add(sums, a + k * element / 16, b + k * span / 16, add || k > 0);
}

// Wait for all threads of the warpgroup.
__device__ inline void sync_group()
{
    asm volatile("barrier.sync.aligned %0, %1;" :: "r"(1 + threadIdx.x / warpgroup), "n"((int)warpgroup) : "memory");
}

// Start the copies of a warpgroup's results to c, from (row, column) on.
__device__ inline void store(Output& output, const float (&sums)[64], const CUtensorMap& c, unsigned row,
                             unsigned column)
{
    const bool first = threadIdx.x % warpgroup == 0;
    if (first) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // those of the last tile have read
    sync_group();
#pragma unroll  // sums are registers: they have no index
    for (unsigned at = 0; at < 64; at += 2) {
        const unsigned y = first_row() % group_rows + at / 2 % 2 * 8, x = first_column() + at / 4 * 8;
        const unsigned byte = x % output_columns * sizeof(float);
        unsigned char* const to = &output.boxes[x / output_columns][y * span + (byte ^ y % 8 * 16)];  // the swizzle
        *reinterpret_cast<float2*>(to) = make_float2(sums[at], sums[at + 1]);
    }
    ptx::fence_proxy_async(ptx::space_shared);  // the copies see what this thread wrote
    sync_group();
    if (first) {
        for (unsigned i = 0; i < outputs; ++i) {
            const int to[2] = {(int)(column + i * output_columns), (int)row};
            ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &c, to, output.boxes[i]);
        }
        ptx::cp_async_bulk_commit_group();
    }
}

extern "C" __global__ void __launch_bounds__(threads)
gemm_wgmma_f16(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
               const __grid_constant__ CUtensorMap c, unsigned m, unsigned n, unsigned steps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
        Ring& ring = *reinterpret_cast<Ring*>(memory + consumers * sizeof(Output));
    const Tiles tiles(m, n);

    make_barriers(ring);
    const unsigned group = threadIdx.x / warpgroup;
    if (group == consumers) {
        if (threadIdx.x % warp_size == 0)
            produce(ring, tiles, steps, [&](Stage& stage, Barrier& full, unsigned i, unsigned step) {
                load(stage.a, a, step * depth, tiles.row(i), full);
                for (unsigned box = 0; box < tile / box_columns; ++box)
                    load(stage.b + box * box_bytes, b, tiles.column(i) + box * box_columns, step * depth, full);
            });
        return;
    }

    Turn turn;
    for (unsigned i = blockIdx.x; i < tiles.count; i += gridDim.x) {
        float sums[64];
        consume(ring, turn, steps, [&](const Stage& stage, bool add) { multiply(sums, stage, add); });
        store(reinterpret_cast<Output*>(memory)[group], sums, c, tiles.row(i) + group * group_rows, tiles.column(i));
    }
    if (threadIdx.x % warpgroup == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}
