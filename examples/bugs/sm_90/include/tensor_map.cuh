// The type of a tensor map, which NVRTC cannot read from cuda.h.
#pragma once

#ifdef __CUDACC_RTC__
struct alignas(64) CUtensorMap {
    char bytes[128];
};
#else
#include <cuda.h>
#endif
