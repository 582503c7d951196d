// Launches that overlap, from sm_90 on; on other chips a launch begins when the one before has ended.
//
// Kernels that wait have no __restrict__ pointers: with them, what only reads becomes a load of constant memory, which the
// compiler may move before the wait (tests/unit/gpu/test_gpu_overlap.py).

#pragma once

// Before a thread reads what earlier launches wrote, or writes anything.
__device__ inline void wait_for_earlier_launches()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void let_later_launches_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
