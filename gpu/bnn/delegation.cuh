// The kernel of a whole network in one cooperative launch, for a source that has make_layer (BSTC, listings 8 and 9).
//
//   -DKERNEL             the kernel's name
//   -DTHREADS            threads of a block; with 32 a block is a warp
//   -DBLOCKS_AT_ONCE     blocks that a multiprocessor has at once
//
// As whole.cu, whose products are those of products.cuh: blocks take the tasks of a step in turn, and a step that
// reads what others wrote begins behind a barrier of the grid.

#pragma once

#include "bnn/answer.cuh"
#include "bnn/grid_barrier.cuh"
#include "bnn/layer.cuh"

enum : unsigned { threads = THREADS, warps = threads / warp_size, line_of_l2 = 128 };

__device__ inline void make_answer(const Layer& step, const Memory& memory)
{
    const int* const sums = memory.of_arena<const int>(step.x);
    for (unsigned task = first_task(step); task < step.tasks; task += gridDim.x) {
        const unsigned image = task * warps + threadIdx.x / warp_size;
        if (image >= step.batch) break;
        answer_of(image, sums, memory.constant<float>(step.weights), memory.constant<float>(step.rule), memory.sums,
                  memory.logits, memory.classes, step.out_channels);
    }
}

// The next weights come to L2 while blocks wait.
__device__ inline void fetch_weights(const Layer& step, const Memory& memory)
{
    const unsigned char* const weights = memory.constants + 16ull * step.weights;
    for (unsigned line = blockIdx.x * threads + threadIdx.x; line < step.bytes_of_weights / line_of_l2;
         line += gridDim.x * threads)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + (unsigned long long)line * line_of_l2));
}

__device__ inline void read_step(Layer& step, const Layer* from)
{
    const unsigned* const words = reinterpret_cast<const unsigned*>(from);
    for (unsigned i = threadIdx.x; i < sizeof(Layer) / 4; i += threads)
        reinterpret_cast<unsigned*>(&step)[i] = __ldg(words + i);
}

extern "C" __global__ void __launch_bounds__(threads, BLOCKS_AT_ONCE)
KERNEL(const unsigned char* images, unsigned char* arena, const unsigned char* constants, const Layer* steps,
       unsigned count, unsigned* arrivals, int* flag, int* last_sums, float* logits, long long* classes)
{
    __shared__ Layer both[2];
    __shared__ Sums sums[warps];
    const Memory memory = {images, arena, constants, flag, last_sums, logits, classes};
    unsigned barriers = 0;
    read_step(both[0], steps);
    __syncthreads();
    for (unsigned s = 0; s < count; ++s) {
        const Layer& step = both[s % 2];
        if (step.kind == last_answer) make_answer(step, memory);
        else make_layer(step, memory, sums[threadIdx.x / warp_size]);
        if (s + 1 == count) break;
        Layer& next = both[(s + 1) % 2];
        read_step(next, steps + s + 1);
        __syncthreads();
        if (!next.waits) continue;
        arrive(arrivals);
        fetch_weights(next, memory);
        wait_for_all(arrivals, ++barriers);
    }
    leave(arrivals, barriers);
}
