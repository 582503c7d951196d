// How much each number differs from the next one; the last one, which has no next, counts as equal to it.
//
// An array that fills its allocation up to the last byte has nothing behind it. That the number read there is
// often thrown away, or that some other array's number is there, makes it no better.

extern "C" __global__ void off_by_one(const int* x, int* differences, unsigned n)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#ifndef FIXED
        const unsigned next = i + 1;
#else
        const unsigned next = i + 1 < n ? i + 1 : i;
#endif
        differences[i] = x[next] - x[i];  // BUG
    }
}
