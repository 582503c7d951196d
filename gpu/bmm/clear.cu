// Sets words to 0, before the blocks of a later launch add to them; on sm_90 that may begin meanwhile.

extern "C" __global__ void clear(unsigned* __restrict__ words, unsigned count)
{
    const unsigned word = blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    if (word < count) words[word] = 0;
}
