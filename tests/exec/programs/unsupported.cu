// Calls of what the runtime lacks.
#include "check.h"

int main()
{
    cudaMipmappedArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(format.x == 32 && format.f == cudaChannelFormatKindFloat);
    CHECK(cudaMallocMipmappedArray(&array, &format, make_cudaExtent(8, 8, 0), 2) == cudaErrorNotSupported);
    CHECK(cudaGetLastError() == cudaErrorNotSupported);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    puts("unsupported: told");
    return 0;
}
