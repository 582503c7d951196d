// Sets the ones of lines to 0, before the tiles of a product add theirs (wgmma.cu), which may begin meanwhile.

#include "warpgroup.cuh"

extern "C" __global__ void clear(unsigned* __restrict__ ones, unsigned lines)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    let_later_launches_begin();
    if (i < lines) ones[i] = 0;
}
