// A barrier of all blocks of a cooperative launch.
//
// Arrivals are counted upwards through a launch, so a barrier needs no second counter. The last block to leave
// sets the counter to 0 for the next launch.

#pragma once

// What this block did before its last __syncthreads is seen by all behind their wait.
__device__ inline void arrive(unsigned* arrivals)
{
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
}

__device__ inline void wait_for_all(const unsigned* arrivals, unsigned barriers)
{
    if (threadIdx.x == 0) {
        unsigned arrived;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(arrivals) : "memory");
        while (arrived < barriers * gridDim.x);
    }
    __syncthreads();
}

__device__ inline void leave(unsigned* arrivals, unsigned barriers)
{
    if (threadIdx.x != 0) return;
    unsigned arrived;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(arrived) : "l"(arrivals) : "memory");
    if (arrived == (barriers + 1) * gridDim.x - 1) atomicExch(arrivals, 0);
}
