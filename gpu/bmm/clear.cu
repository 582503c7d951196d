// Sets words to 0, before the blocks of a later launch add to them; on sm_90 that may begin meanwhile.

#include "overlap.cuh"

extern "C" __global__ void clear(unsigned* __restrict__ words, unsigned count)
{
    const unsigned word = blockIdx.x * blockDim.x + threadIdx.x;
    let_later_launches_begin();
    if (word < count) words[word] = 0;
}
