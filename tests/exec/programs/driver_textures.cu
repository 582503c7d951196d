// The driver's arrays, textures and surfaces, and a texture that is used after it was destroyed.
#include "check.h"

#include <cuda.h>
#include <vector>

#define DRIVER(call) CHECK((call) == CUDA_SUCCESS)

__global__ void twice(cudaTextureObject_t in, cudaSurfaceObject_t out, int offset) {
    unsigned char here = tex2D<unsigned char>(in, threadIdx.x + 0.5f, threadIdx.y + 0.5f);
    surf2Dwrite((unsigned char)(here * 2 + offset), out, threadIdx.x, threadIdx.y);
}

__global__ void as_floats(cudaTextureObject_t in, float* out) {
    out[threadIdx.x] = tex2D<float>(in, threadIdx.x + 1.0f, 0.5f);
}

int main() {
    const int width = 8, height = 4;
    CUDA(cudaFree(nullptr));
    CUDA_ARRAY3D_DESCRIPTOR wanted = {};
    wanted.Width = width;
    wanted.Height = height;
    wanted.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    wanted.NumChannels = 1;
    wanted.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    CUarray in, out;
    DRIVER(cuArray3DCreate(&in, &wanted));
    DRIVER(cuArray3DCreate(&out, &wanted));
    std::vector<unsigned char> host(width * height), back(width * height);
    for (int i = 0; i < width * height; i++)
        host[i] = i;
    CUDA_MEMCPY2D to = {};
    to.srcMemoryType = CU_MEMORYTYPE_HOST;
    to.srcHost = host.data();
    to.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    to.dstArray = in;
    to.WidthInBytes = width;
    to.Height = height;
    DRIVER(cuMemcpy2D(&to));
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = in;
    CUDA_TEXTURE_DESC how = {};
    how.flags = CU_TRSF_READ_AS_INTEGER;
    CUtexObject elements, floats;
    DRIVER(cuTexObjectCreate(&elements, &resource, &how, nullptr));
    how.flags = 0;
    how.filterMode = CU_TR_FILTER_MODE_LINEAR;
    DRIVER(cuTexObjectCreate(&floats, &resource, &how, nullptr));
    resource.res.array.hArray = out;
    CUsurfObject surface;
    DRIVER(cuSurfObjectCreate(&surface, &resource));
    twice<<<1, dim3(width, height)>>>(elements, surface, 1);
    CUDA_MEMCPY2D from = {};
    from.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    from.srcArray = out;
    from.dstMemoryType = CU_MEMORYTYPE_HOST;
    from.dstHost = back.data();
    from.WidthInBytes = width;
    from.Height = height;
    DRIVER(cuMemcpy2D(&from));
    for (int i = 0; i < width * height; i++)
        CHECK(back[i] == 2 * host[i] + 1);
    DRIVER(cuMemcpyAtoH(back.data(), in, 2, 3));
    CHECK(back[0] == 2 && back[2] == 4);
    DRIVER(cuMemcpyHtoA(in, 0, back.data(), 3));
    CUDA_ARRAY3D_DESCRIPTOR told;
    DRIVER(cuArray3DGetDescriptor(&told, in));
    CHECK(told.Width == width && told.Height == height && told.Format == CU_AD_FORMAT_UNSIGNED_INT8);
    float *means, got[2];
    CUDA(cudaMalloc(&means, sizeof got));
    as_floats<<<1, 2>>>(floats, means);
    CUDA(cudaMemcpy(got, means, sizeof got, cudaMemcpyDeviceToHost));
    CHECK(got[0] > 2.4f / 255 && got[0] < 2.6f / 255 && got[1] > 3.4f / 255 && got[1] < 3.6f / 255);
    DRIVER(cuTexObjectDestroy(floats));
    CHECK(cuTexObjectDestroy(floats) == CUDA_ERROR_INVALID_VALUE);
    puts("driver_textures: right");
    as_floats<<<1, 2>>>(floats, means); // a finding
    cudaDeviceSynchronize();
    DRIVER(cuTexObjectDestroy(elements));
    DRIVER(cuSurfObjectDestroy(surface));
    DRIVER(cuArrayDestroy(in));
    DRIVER(cuArrayDestroy(out));
    return 0;
}
