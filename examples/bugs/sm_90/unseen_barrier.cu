// Each 64 numbers, back to front; the threads hand them over by an mbarrier.
//
// One thread initialises the mbarrier. The others may use it after a barrier that orders them behind that.

#include <cuda/ptx>

using namespace cuda::ptx;

enum : unsigned { threads = 64 };

extern "C" __global__ void unseen_barrier(const unsigned* x, unsigned* y)
{
    __shared__ unsigned tile[threads];
    __shared__ cuda::std::uint64_t full;
    const unsigned first = blockIdx.x * threads;
    if (threadIdx.x == 0) mbarrier_init(&full, threads);  // BUG: the initialisation
#ifdef FIXED
    __syncthreads();
#endif
    tile[threadIdx.x] = x[first + threadIdx.x];
    mbarrier_arrive(&full);  // BUG
    while (!mbarrier_try_wait_parity(&full, 0)) {}
    y[first + threadIdx.x] = tile[threads - 1 - threadIdx.x];
}
