// The sums of the columns of two matrices, with one warpgroup that fetches and two that add up: the first one
// releases registers, which the others request.
//
// A block of 384 threads begins with 168 registers for each, 64512 in all. 128 * 24 + 256 * 240 are as many;
// with 40 for the first warpgroup, there is no room for 240, and the others wait for ever.

enum : unsigned { warpgroup = 128, columns = 128 };

extern "C" __global__ void __launch_bounds__(384, 1)
too_many_registers(const unsigned* x, unsigned* sums, unsigned rows)
{
    __shared__ unsigned tile[2][columns];
    const unsigned group = threadIdx.x / warpgroup, column = threadIdx.x % warpgroup;
    if (group == 0) {
#ifndef FIXED
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");  // BUG: releases
#else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
#endif
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");  // BUG
    }
    unsigned sum = 0;
    for (unsigned row = 0; row < rows; row++) {
        for (unsigned of = 0; group == 0 && of < 2; of++)
            tile[of][column] = x[(of * rows + row) * columns + column];
        __syncthreads();
        if (group > 0) sum += tile[group - 1][column];
        __syncthreads();
    }
    if (group > 0) sums[(group - 1) * columns + column] = sum;
}
