// The squares of numbers, and their sums of four, by two launches of which the second may begin before the
// first has ended: while that one finishes, it computes where it reads and writes.
//
// What the launch before wrote is there behind cudaGridDependencySynchronize(). That the launch has begun
// says only that all blocks of the other one allowed it.

extern "C" __global__ void squares(const unsigned* x, unsigned* y, unsigned* sums)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;");
    y[i] = x[i] * x[i];  // BUG: the write
}

// Launched behind `squares`, of as many threads, as its dependent.
extern "C" __global__ void early_read(const unsigned* x, unsigned* y, unsigned* sums)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, first = i / 4 * 4;
    unsigned sum = 0;
#ifdef FIXED
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    for (unsigned j = 0; j < 4; j++) sum += y[first + j];  // BUG
#ifndef FIXED
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    sums[i] = sum;
}
