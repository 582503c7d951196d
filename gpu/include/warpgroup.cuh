// Warpgroups of sm_90a: barriers in shared memory, copies through tensor maps, and products of bits
// (PTX ISA 9.0, 9.7.13.15, 9.7.9.25 and 9.7.15).

#pragma once

#include "overlap.cuh"

typedef unsigned long long Barrier;

struct alignas(64) TensorMap { unsigned char bytes[128]; };

// A swizzle permutes chunks of 16 bytes in rows of shared memory, of 128 bytes and fewer. Its pattern has eight rows, an
// atom; whatever is swizzled begins at a multiple of it.
enum : unsigned { warpgroup_size = 128, chunk = 16, atom_rows = 8, atom_bytes = 128, atom = atom_rows * atom_bytes };

__device__ inline unsigned shared_address(const void* x) { return (unsigned)__cvta_generic_to_shared(x); }

// ---- barriers -------------------------------------------------------------------------------------------------------

__device__ inline void make_barrier(Barrier& barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}

// Let the copies of this thread block see the barriers that were made; __syncthreads() shows them to its threads.
__device__ inline void publish_barriers()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(Barrier& barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(&barrier)) : "memory");
}

// Arrive, and let the phase wait for as many bytes of copies, too.
__device__ inline void arrive_and_expect(Barrier& barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_address(&barrier)), "r"(bytes) : "memory");
}

// Wait until the phase of this parity is complete. That before the first one counts as complete, and has parity 1.
__device__ inline void wait(Barrier& barrier, unsigned parity)
{
    unsigned complete;
    do
        asm volatile("{\n"
                     ".reg .pred complete;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, complete;\n"
                     "}"
                     : "=r"(complete)
                     : "r"(shared_address(&barrier)), "r"(parity)
                     : "memory");
    while (!complete);
}

// Whether that phase is complete.
__device__ inline bool is_complete(Barrier& barrier, unsigned parity)
{
    unsigned complete;
    asm volatile("{\n"
                 ".reg .pred complete;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, complete;\n"
                 "}"
                 : "=r"(complete)
                 : "r"(shared_address(&barrier)), "r"(parity)
                 : "memory");
    return complete;
}

// The member of a ring whose turn it is, and the parity of its turn.
template <unsigned members> struct Turn {
    unsigned at = 0, parity = 0;

    __device__ void advance()
    {
        if (++at == members) at = 0, parity ^= 1;
    }

    __device__ void advance(unsigned turns)
    {
        at += turns % members, parity ^= turns / members % 2;
        if (at >= members) at -= members, parity ^= 1;
    }
};

// ---- copies ---------------------------------------------------------------------------------------------------------

// Copy a box of a matrix to shared memory; what lies outside the matrix arrives as zeros.
__device__ inline void load_box(void* to, const TensorMap& map, unsigned x, unsigned y, Barrier& barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(shared_address(to)), "l"(&map), "r"(x), "r"(y), "r"(shared_address(&barrier)) : "memory");
}

// Copy a box of images, NHWC, from a byte of the pixels on.
__device__ inline void load_box(void* to, const TensorMap& map, unsigned byte, int column, int row, unsigned image,
                                Barrier& barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 :: "r"(shared_address(to)), "l"(&map), "r"(byte), "r"(column), "r"(row), "r"(image),
                    "r"(shared_address(&barrier)) : "memory");
}

// Copy some bytes of the pixels of an im2col map to shared memory, from the first window's pixel on, and as far down and
// across in each window as the tap; what lies outside of the images arrives as zeros.
__device__ inline void load_pixels(void* to, const TensorMap& map, unsigned byte, int column, int row, unsigned image,
                                   unsigned across, unsigned down, Barrier& barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                 :: "r"(shared_address(to)), "l"(&map), "r"(byte), "r"(column), "r"(row), "r"(image),
                    "r"(shared_address(&barrier)), "h"((unsigned short)across), "h"((unsigned short)down) : "memory");
}

// Copy a chunk, or make it zeros.
__device__ inline void copy_chunk(void* to, const void* from, bool exists)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

// Arrive when all chunks that this thread copies have come; the barrier counts every thread.
__device__ inline void arrive_with_chunks(Barrier& barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(shared_address(&barrier)) : "memory");
}

// Copy a box from shared memory, without what lies outside the matrix, in a group of this thread's. It is the first to
// leave L2, where operands are of more use.
__device__ inline void store_box(const TensorMap& map, const void* from, unsigned x, unsigned y)
{
    const unsigned long long evict_first = 0x12f0000000000000;  // what createpolicy gives
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;\n"
                 "cp.async.bulk.commit_group;"
                 :: "l"(&map), "r"(x), "r"(y), "r"(shared_address(from)), "l"(evict_first) : "memory");
}

// The same for images, NHWC.
__device__ inline void store_box(const TensorMap& map, const void* from, unsigned channel, unsigned column, unsigned row,
                                 unsigned image)
{
    const unsigned long long evict_first = 0x12f0000000000000;
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2, %3, %4}], [%5], %6;\n"
                 "cp.async.bulk.commit_group;"
                 :: "l"(&map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(shared_address(from)), "l"(evict_first)
                 : "memory");
}

// Add a box to the int32 there, in a group of this thread's.
__device__ inline void add_box(const TensorMap& map, const void* from, unsigned x, unsigned y)
{
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];\n"
                 "cp.async.bulk.commit_group;"
                 :: "l"(&map), "r"(x), "r"(y), "r"(shared_address(from)) : "memory");
}

// Wait until all but the last `pending` groups have read shared memory.
template <unsigned pending> __device__ inline void wait_for_reads()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(pending) : "memory");
}

__device__ inline void wait_for_copies() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Order what this thread wrote to shared memory before copies and products of it.
__device__ inline void show_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- products -------------------------------------------------------------------------------------------------------

// The descriptor of rows of `span` bytes in shared memory, swizzled, eight rows below eight others. The next 32 bytes of
// rows: + 2; the next rows: + their bytes / 16.
template <unsigned span> __device__ inline unsigned long long describe(const void* start)
{
    const unsigned long long swizzle = span == 128 ? 1 : span == 64 ? 2 : 3, down = span * atom_rows >> 4;
    return shared_address(start) >> 4 | down << 32 | swizzle << 62;
}

__device__ inline void fence_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Wait for all but the last `pending` groups of products.
template <unsigned pending> __device__ inline void wait_for_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory");
}

// Keep uses of sums behind the wait before; the compiler does not know that products write them until then.
template <unsigned count> __device__ inline void hold(int (&sums)[count])
{
#pragma unroll
    for (unsigned i = 0; i < count; ++i) asm volatile("" : "+r"(sums[i]) :: "memory");
}

template <unsigned registers> __device__ inline void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(registers));
}

template <unsigned registers> __device__ inline void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(registers));
}

// multiply_add(d, a, b, add): d = popc(a & b) of 64 rows, 256 bits of k and twice as many columns as d has registers;
// or d += with `add`. Register 4 j + 2 h + i of thread t is row 16 (t / 32) + t % 32 / 4 + 8 h, column 8 j + 2 (t % 4)
// + i.
#define SUMS_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_128 SUMS_64 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_192 SUMS_128 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SUMS_256 SUMS_192 ", " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define EIGHT(d, i) \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), \
        "+r"(d[i + 7])
#define OPERANDS_64(d) EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24)
#define OPERANDS_128(d) OPERANDS_64(d), EIGHT(d, 32), EIGHT(d, 40), EIGHT(d, 48), EIGHT(d, 56)
#define OPERANDS_192(d) OPERANDS_128(d), EIGHT(d, 64), EIGHT(d, 72), EIGHT(d, 80), EIGHT(d, 88)
#define OPERANDS_256(d) OPERANDS_192(d), EIGHT(d, 96), EIGHT(d, 104), EIGHT(d, 112), EIGHT(d, 120)
#define DEFINE_PRODUCT(columns, a_at, b_at, add_at) \
    __device__ inline void multiply_add(int (&d)[columns / 2], unsigned long long a, unsigned long long b, bool add) \
    { \
        asm volatile("{\n" \
                     ".reg .pred add;\n" \
                     "setp.ne.b32 add, " add_at ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k256.s32.b1.b1.and.popc " \
                     "{" SUMS_##columns "}, " a_at ", " b_at ", add;\n" \
                     "}" \
                     : OPERANDS_##columns(d) \
                     : "l"(a), "l"(b), "r"((int)add)); \
    }
// The same with `a` in registers: word 2 h + i of thread t has 32 bits of row 16 (t / 32) + t % 32 / 4 + 8 i, from
// 128 h + 32 (t % 4) on. They must not change before the product is complete.
#define DEFINE_PRODUCT_OF_REGISTERS(columns, a0, a1, a2, a3, b_at, add_at) \
    __device__ inline void multiply_add(int (&d)[columns / 2], const unsigned (&a)[4], unsigned long long b, bool add) \
    { \
        asm volatile("{\n" \
                     ".reg .pred add;\n" \
                     "setp.ne.b32 add, " add_at ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k256.s32.b1.b1.and.popc " \
                     "{" SUMS_##columns "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_at ", add;\n" \
                     "}" \
                     : OPERANDS_##columns(d) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add)); \
    }
DEFINE_PRODUCT_OF_REGISTERS(64, "%32", "%33", "%34", "%35", "%36", "%37")
DEFINE_PRODUCT_OF_REGISTERS(128, "%64", "%65", "%66", "%67", "%68", "%69")
DEFINE_PRODUCT(64, "%32", "%33", "%34")
DEFINE_PRODUCT(128, "%64", "%65", "%66")
DEFINE_PRODUCT(192, "%96", "%97", "%98")
DEFINE_PRODUCT(256, "%128", "%129", "%130")

// ---- copies of a matrix of a stack ----------------------------------------------------------------------------------

__device__ inline void load_box(void* to, const TensorMap& map, unsigned x, unsigned y, unsigned matrix, Barrier& barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];"
                 :: "r"(shared_address(to)), "l"(&map), "r"(x), "r"(y), "r"(matrix), "r"(shared_address(&barrier))
                 : "memory");
}

__device__ inline void store_box(const TensorMap& map, const void* from, unsigned x, unsigned y, unsigned matrix)
{
    const unsigned long long evict_first = 0x12f0000000000000;
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2, %3}], [%4], %5;\n"
                 "cp.async.bulk.commit_group;"
                 :: "l"(&map), "r"(x), "r"(y), "r"(matrix), "r"(shared_address(from)), "l"(evict_first) : "memory");
}

__device__ inline void add_box(const TensorMap& map, const void* from, unsigned x, unsigned y, unsigned matrix)
{
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];\n"
                 "cp.async.bulk.commit_group;"
                 :: "l"(&map), "r"(x), "r"(y), "r"(matrix), "r"(shared_address(from)) : "memory");
}
