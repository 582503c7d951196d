// Calls of what the runtime lacks.
#include "check.h"

int main()
{
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(format.x == 32 && format.f == cudaChannelFormatKindFloat);
    CHECK(cudaMallocArray(&array, &format, 8, 8) == cudaErrorNotSupported);
    CHECK(cudaGetLastError() == cudaErrorNotSupported);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    puts("unsupported: told");
    return 0;
}
