// Variables by their symbols; rows with a pitch: copies and fills in two and three dimensions.
#include "check.h"
#include <cstring>

__constant__ int factors[4];
__device__ int totals[4];
namespace inner
{
static __device__ int one = 7;
}

__global__ void multiply(const char *rows, size_t pitch, int width, int height)
{
    int x = threadIdx.x, y = blockIdx.x;
    if (x < width && y < height)
        atomicAdd(&totals[y % 4], factors[y % 4] * rows[y * pitch + x] + inner::one);
}

int main()
{
    const int width = 20, height = 8;
    int given[4] = {1, 2, 3, 4}, found[4], one;
    char host[height][32], back[height][width];
    memset(host, 2, sizeof host);
    CUDA(cudaMemcpyToSymbol(factors, given, sizeof given));
    CUDA(cudaMemcpyFromSymbol(&one, inner::one, sizeof one));
    CHECK(one == 7);
    void *address;
    size_t size, pitch;
    CUDA(cudaGetSymbolAddress(&address, totals));
    CUDA(cudaGetSymbolSize(&size, totals));
    CHECK(size == sizeof totals);
    CUDA(cudaMemset(address, 0, size));
    char *rows;
    CUDA(cudaMallocPitch(&rows, &pitch, width, height));
    CHECK(pitch >= width && pitch % 256 == 0);
    CUDA(cudaMemset2D(rows, pitch, 9, width, height));
    CUDA(cudaMemcpy2D(rows, pitch, host, sizeof host[0], width, height - 1, cudaMemcpyHostToDevice));
    multiply<<<height, 32>>>(rows, pitch, width, height);
    CUDA(cudaMemcpyFromSymbol(found, totals, sizeof found));
    CUDA(cudaMemcpyFromSymbol(&one, totals, sizeof one, 2 * sizeof one));
    for (int i = 0; i < 4; i++)
        CHECK(found[i] == (i + 1) * width * (i == 3 ? 2 + 9 : 4) + 14 * width);
    CHECK(one == found[2]);
    CUDA(cudaMemcpy2D(back, width, rows, pitch, width, height, cudaMemcpyDeviceToHost));
    CHECK(back[0][0] == 2 && back[height - 1][width - 1] == 9);

    cudaPitchedPtr box;
    cudaExtent extent = make_cudaExtent(16, 4, 3);
    CUDA(cudaMalloc3D(&box, extent));
    CUDA(cudaMemset3D(box, 5, extent));
    char cube[3][4][16];
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = box;
    copy.dstPtr = make_cudaPitchedPtr(cube, 16, 16, 4);
    copy.extent = extent;
    copy.kind = cudaMemcpyDeviceToHost;
    CUDA(cudaMemcpy3D(&copy));
    CHECK(cube[0][0][0] == 5 && cube[2][3][15] == 5);
    CHECK(cudaMemcpyToSymbol(factors, given, sizeof given, 4) == cudaErrorInvalidValue);

    size_t large = (20 << 20) + 5;
    char *bytes = (char *)malloc(large), *kept;
    for (size_t i = 0; i < large; i++)
        bytes[i] = i * 7;
    CUDA(cudaMalloc(&kept, large));
    CUDA(cudaMemcpy(kept, bytes, large, cudaMemcpyHostToDevice));
    memset(bytes, 0, large);
    CUDA(cudaMemcpy(bytes, kept, large, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < large; i++)
        CHECK(bytes[i] == (char)(i * 7));
    free(bytes);
    puts("symbols: right");
    return 0;
}
