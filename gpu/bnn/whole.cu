// A whole binarized network in one cooperative launch (BSTC, section 6; BTC, section 6.1 and figure 15).
//
//   -DTHREADS            threads of a block
//   -DBLOCKS_AT_ONCE     blocks that a multiprocessor has at once
//
// All blocks go through the steps together. Each step has tasks, which are dealt out to all of them; a step that reads
// what others wrote begins behind a barrier of the grid. Steps that do not, follow at once.

#include "bnn/answer.cuh"
#include "bnn/products.cuh"
#include "bnn/elements.cuh"
#include "bnn/grid_barrier.cuh"
#include "bnn/step.cuh"

enum : unsigned { threads = THREADS, warps = threads / warp_size, line_of_l2 = 128 };

__device__ inline void make_answer(const Step& step, const Memory& memory)
{
    const int* const sums = memory.of_arena<const int>(step.x);
    const unsigned count = step.out_channels;
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned image = task * warps + threadIdx.x / warp_size;
        if (image >= step.batch) break;
        answer_of(image, sums, memory.constant<float>(step.weights), memory.constant<float>(step.rule), memory.sums,
                  memory.logits, memory.classes, count);
    }
}

__device__ inline void make(const Step& step, const Memory& memory, int (&shared)[warps][sums_of_lane][warp_size])
{
    switch (step.kind) {
    case products_of_bits:
    case products_of_numbers: make_products(step, memory, shared); break;
    case numbers_of_numbers: make_numbers(step, memory); break;
    case bits_of_numbers: make_bits(step, memory); break;
    case shorts_of_numbers: make_shorts(step, memory); break;
    case bits_of_planes: make_planes(step, memory); break;
    case bits_flattened: make_flat(step, memory); break;
    case bits_pooled: make_pools(step, memory); break;
    default: make_answer(step, memory);
    }
}

// The next weights come to L2 while blocks wait.
__device__ inline void fetch_weights(const Step& step, const Memory& memory)
{
    const unsigned char* const weights = memory.constants + 16ull * step.weights;
    for (unsigned line = blockIdx.x * threads + threadIdx.x; line < step.bytes_of_weights / line_of_l2;
         line += gridDim.x * threads)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + (unsigned long long)line * line_of_l2));
}

__device__ inline void read_step(Step& step, const Step* from)
{
    const unsigned* const words = reinterpret_cast<const unsigned*>(from);
    if (threadIdx.x < sizeof(Step) / 4) reinterpret_cast<unsigned*>(&step)[threadIdx.x] = __ldg(words + threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(threads, BLOCKS_AT_ONCE)
whole(const unsigned char* images, unsigned char* arena, const unsigned char* constants, const Step* steps,
      unsigned count, unsigned* arrivals, int* flag, int* sums, float* logits, long long* classes)
{
    __shared__ Step both[2];
    __shared__ int shared[warps][sums_of_lane][warp_size];
    const Memory memory = {images, arena, constants, flag, sums, logits, classes};
    unsigned barriers = 0;
    read_step(both[0], steps);
    __syncthreads();
    for (unsigned s = 0; s < count; ++s) {
        make(both[s % 2], memory, shared);
        if (s + 1 == count) break;
        Step& next = both[(s + 1) % 2];
        read_step(next, steps + s + 1);
        __syncthreads();
        if (!next.waits) continue;
        arrive(arrivals);
        fetch_weights(next, memory);
        wait_for_all(arrivals, ++barriers);
    }
    leave(arrivals, barriers);
}
