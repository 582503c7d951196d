// A convolution on tensor cores of sm_90a, as an implicit matrix product: images (N, H, W, C) and filters (K, R, S, C)
// in f16, result (N, P, Q, K) in f32.
//
// Rows of the product are pixels of the result, in the order in which they lie; columns are filters; and k runs over
// the taps (r, s) of a filter and its channels. A block computes 64 pixels of 64 filters, which may begin and end within
// a line or an image. In a step along k it needs, for one tap, 64 channels of
//
//     the images    64 pixels, a stride apart, then on in the next line or image: one copy through an im2col map,
//                   whose box is where a filter's corner may be, and whose im2col offsets are the tap
//     the filters   one copy through a tiled map
//
// Zeros fill the padding, channels and filters past the last ones, and pixels past the last image. All of them count
// as bytes. The tiles pass through a ring of STAGES in shared memory:
//
//     a fifth warp produces:   wait until the stage is free, expect its bytes, copy
//     a warpgroup consumes:    wait for the bytes, multiply, and release the stage of the step before

#include "wgmma.cuh"

#ifndef STAGES
#define STAGES 4
#endif
static_assert(STAGES >= 2, "a stage is released while the next one is multiplied");

enum : unsigned { tile = 64, channels = span / 2, warps = 4, threads = warpgroup + warp_size };  // f16 has two bytes
enum : unsigned { product_bytes = 32 };                                                          // of a row: k = 16

struct Stage {
    unsigned char images[tile * span], filters[tile * span];
};

struct Ring {
    Stage stages[STAGES];
    Barrier full[STAGES], empty[STAGES];
};

struct Shape {
    int n, p, q, k;  // of the result
    int r, s, c;     // of a filter
    int stride, padding_h, padding_w;
};

// Start the copy of 64 pixels, of which the first has this place of a filter's corner. cuda::ptx has no im2col.
__device__ inline void copy_pixels(void* to, const CUtensorMap& map, int c, int w, int h, int n, uint16_t s, uint16_t r,
                                   Barrier& barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n),
                    "r"((unsigned)__cvta_generic_to_shared(&barrier)), "h"(s), "h"(r)
                 : "memory");
}

__device__ inline void copy_filters(void* to, const CUtensorMap& map, int c, int s, int r, int k, Barrier& barrier)
{
    const int at[4] = {c, s, r, k};
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, at, &barrier);
}

// Add the product of 16 channels of 64 pixels and 64 filters, or begin with it.
__device__ inline void multiply_add(float (&d)[32], uint64_t images, uint64_t filters, bool add)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, add, 1, 1, 0, 0;\n"
                 "}"
                 : EIGHT("+f", d, 0), EIGHT("+f", d, 8), EIGHT("+f", d, 16), EIGHT("+f", d, 24)
                 : "l"(images), "l"(filters), "r"((int)add));
}

__device__ inline void produce(Ring& ring, const CUtensorMap& images, const CUtensorMap& filters, const Shape& shape)
{
    const int pixel = blockIdx.x * tile, filter = blockIdx.y * tile;
    const int w = pixel % shape.q * shape.stride - shape.padding_w;
    const int h = pixel / shape.q % shape.p * shape.stride - shape.padding_h;
    const int n = pixel / shape.q / shape.p;

    unsigned step = 0;
    for (int r = 0; r < shape.r; ++r)
        for (int s = 0; s < shape.s; ++s)
            for (int c = 0; c < shape.c; c += channels, ++step) {
                const unsigned at = step % STAGES, round = step / STAGES;
                Stage& stage = ring.stages[at];
                Barrier& full = ring.full[at];
                wait(ring.empty[at], (round + 1) % 2);  // round 0 passes: the phase before it counts as complete
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof(Stage));
                copy_pixels(stage.images, images, c, w, h, n, s, r, full);
                copy_filters(stage.filters, filters, c, s, r, filter, full);
            }
}

__device__ inline void consume(float (&sums)[32], Ring& ring, unsigned steps)
{
    for (unsigned step = 0; step < steps; ++step) {
        const unsigned at = step % STAGES, round = step / STAGES;
        const Stage& stage = ring.stages[at];
        wait(ring.full[at], round % 2);
        fence_registers();
#pragma unroll
        for (unsigned byte = 0; byte < span; byte += product_bytes)
            multiply_add(sums, describe(&stage.images[byte], 0, atom), describe(&stage.filters[byte], 0, atom),
                         step > 0 || byte > 0);
        commit();
        wait_products<1>();  // those of the step before have ended, while these run
        if (step > 0 && threadIdx.x % warp_size == 0) ptx::mbarrier_arrive(&ring.empty[(step - 1) % STAGES]);
    }
    wait_products<0>();
}

extern "C" __global__ void __launch_bounds__(threads)
conv_im2col(const __grid_constant__ CUtensorMap images, const __grid_constant__ CUtensorMap filters,
            float* __restrict__ result, const __grid_constant__ Shape shape)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Ring& ring = *reinterpret_cast<Ring*>(memory);
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;

    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < STAGES; ++i) {
            ptx::mbarrier_init(&ring.full[i], 1);       // the producer, besides the bytes
            ptx::mbarrier_init(&ring.empty[i], warps);  // the consumers
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);  // the copies must see them, too
    }
    __syncthreads();

    if (warp == warps) {
        if (lane == 0) produce(ring, images, filters, shape);
        return;
    }
    float sums[32];
    consume(sums, ring, shape.r * shape.s * ((shape.c + channels - 1) / channels));

    const int pixels = shape.n * shape.p * shape.q;
#pragma unroll  // sums are registers: they have no index
    for (unsigned i = 0; i < 32; ++i) {
        const int pixel = blockIdx.x * tile + first_row() + i / 2 % 2 * 8;
        const int filter = blockIdx.y * tile + first_column() + i / 4 * 8 + i % 2;
        if (pixel < pixels && filter < shape.k) result[(size_t)pixel * shape.k + filter] = sums[i];
    }
}
