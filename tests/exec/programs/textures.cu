// Textures and surfaces of every kind of array, and of linear memory.
#include "check.h"

#include <cstring>
#include <vector>

__global__ void sample(cudaTextureObject_t plane, cudaTextureObject_t bytes, cudaTextureObject_t line,
                       cudaTextureObject_t rows, float* out, int width, int height) {
    int x = threadIdx.x, y = blockIdx.x, i = y * width + x;
    float4 colour = tex2D<float4>(bytes, x + 0.5f, y + 0.5f);
    out[i] = tex2D<float>(plane, (x + 0.75f) / width, (y + 0.5f) / height) + colour.y +
             tex1Dfetch<float>(line, i) + tex2D<float>(rows, x + 0.5f, y + 0.5f);
}

__global__ void layers(cudaTextureObject_t in, cudaSurfaceObject_t out, int n) {
    int x = threadIdx.x, y = threadIdx.y, layer = blockIdx.x;
    float here = tex2DLayered<float>(in, x + 0.5f, y + 0.5f, layer);
    surf2DLayeredwrite(here * 2, out, x * 4, y, layer);
}

__global__ void volume(cudaTextureObject_t in, float* out) {
    out[threadIdx.x] = tex3D<float>(in, 1, 1, threadIdx.x + 1);
}

static cudaTextureObject_t texture_of(cudaArray_t array, bool linear, bool normalized, bool floats) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = how.addressMode[2] = cudaAddressModeClamp;
    how.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
    how.readMode = floats ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    how.normalizedCoords = normalized;
    cudaTextureObject_t made;
    CUDA(cudaCreateTextureObject(&made, &resource, &how, nullptr));
    return made;
}

int main() {
    const int width = 16, height = 4, size = width * height;
    std::vector<float> ramp(size), got(size);
    std::vector<uchar4> colours(size);
    for (int i = 0; i < size; i++) {
        ramp[i] = i * 0.5f;
        colours[i] = make_uchar4(1, i, 3, 4);
    }
    cudaArray_t plane, bytes;
    cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>(), four = cudaCreateChannelDesc<uchar4>();
    CUDA(cudaMallocArray(&plane, &floats, width, height));
    CUDA(cudaMallocArray(&bytes, &four, width, height));
    CUDA(cudaMemcpy2DToArray(plane, 0, 0, ramp.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy2DToArray(bytes, 0, 0, colours.data(), width * 4, width * 4, 2, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy2DToArrayAsync(bytes, 0, 2, colours.data() + 2 * width, width * 4, width * 4, 2,
                                   cudaMemcpyHostToDevice, 0));
    CHECK(cudaMemcpy2DToArray(plane, 4, 0, ramp.data(), width * 4, width * 4, 1, cudaMemcpyHostToDevice) ==
           cudaErrorInvalidValue);
    float *line, *rows, *out;
    size_t pitch;
    CUDA(cudaMalloc(&line, size * 4));
    CUDA(cudaMalloc(&out, size * 4));
    CUDA(cudaMallocPitch((void**)&rows, &pitch, width * 4, height));
    CUDA(cudaMemcpy(line, ramp.data(), size * 4, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy2D(rows, pitch, ramp.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    cudaResourceDesc linear = {}, pitched = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = line;
    linear.res.linear.desc = floats;
    linear.res.linear.sizeInBytes = size * 4;
    pitched.resType = cudaResourceTypePitch2D;
    pitched.res.pitch2D = {rows, floats, width, height, pitch};
    cudaTextureDesc plain = {};
    cudaTextureObject_t of_line, of_rows;
    CUDA(cudaCreateTextureObject(&of_line, &linear, &plain, nullptr));
    CUDA(cudaCreateTextureObject(&of_rows, &pitched, &plain, nullptr));
    cudaTextureObject_t of_plane = texture_of(plane, true, true, false), of_bytes = texture_of(bytes, false, false, true);
    sample<<<height, width>>>(of_plane, of_bytes, of_line, of_rows, out, width, height);
    CUDA(cudaMemcpy(got.data(), out, size * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < size; i++) {
        float between = ramp[i] + (i % width < width - 1 ? 0.125f : 0);
        CHECK(got[i] == between + i / 255.0f + ramp[i] + ramp[i]);
    }
    cudaResourceDesc told;
    cudaTextureDesc how;
    CUDA(cudaGetTextureObjectResourceDesc(&told, of_plane));
    CUDA(cudaGetTextureObjectTextureDesc(&how, of_plane));
    CHECK(told.res.array.array == plane && how.filterMode == cudaFilterModeLinear);

    const int n = 8, count = 3;
    std::vector<float> stack(n * n * count), back(n * n * count);
    for (size_t i = 0; i < stack.size(); i++)
        stack[i] = i;
    cudaArray_t in, result;
    cudaExtent extent = make_cudaExtent(n, n, count);
    CUDA(cudaMalloc3DArray(&in, &floats, extent, cudaArrayLayered));
    CUDA(cudaMalloc3DArray(&result, &floats, extent, cudaArrayLayered | cudaArraySurfaceLoadStore));
    cudaMemcpy3DParms to = {}, from = {};
    to.srcPtr = make_cudaPitchedPtr(stack.data(), n * 4, n, n);
    to.dstArray = in;
    to.extent = from.extent = extent;
    to.kind = cudaMemcpyHostToDevice;
    CUDA(cudaMemcpy3D(&to));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = result;
    cudaSurfaceObject_t surface;
    CUDA(cudaCreateSurfaceObject(&surface, &resource));
    resource.res.array.array = plane;
    cudaSurfaceObject_t wrong;
    CHECK(cudaCreateSurfaceObject(&wrong, &resource) == cudaErrorInvalidValue);
    cudaGetLastError();
    cudaTextureObject_t of_layers = texture_of(in, false, false, false);
    layers<<<count, dim3(n, n)>>>(of_layers, surface, n);
    from.srcArray = result;
    from.dstPtr = make_cudaPitchedPtr(back.data(), n * 4, n, n);
    from.kind = cudaMemcpyDeviceToHost;
    CUDA(cudaMemcpy3D(&from));
    for (size_t i = 0; i < stack.size(); i++)
        CHECK(back[i] == 2 * stack[i]);

    cudaArray_t cube;
    CUDA(cudaMalloc3DArray(&cube, &floats, extent));
    to.dstArray = cube;
    CUDA(cudaMemcpy3D(&to));
    cudaTextureObject_t of_cube = texture_of(cube, true, false, false);
    volume<<<1, count - 1>>>(of_cube, out);
    CUDA(cudaMemcpy(got.data(), out, (count - 1) * 4, cudaMemcpyDeviceToHost));
    for (int z = 0; z + 1 < count; z++)
        CHECK(got[z] == (z + 0.5f) * n * n + n / 2.0f + 0.5f);
    cudaExtent shape;
    cudaChannelFormatDesc format;
    unsigned flags;
    CUDA(cudaArrayGetInfo(&format, &shape, &flags, cube));
    CHECK(shape.depth == count && format.x == 32 && flags == 0);
    for (cudaTextureObject_t one : {of_plane, of_bytes, of_line, of_rows, of_layers, of_cube})
        CUDA(cudaDestroyTextureObject(one));
    CUDA(cudaDestroySurfaceObject(surface));
    for (cudaArray_t one : {plane, bytes, in, result, cube})
        CUDA(cudaFreeArray(one));
    CUDA(cudaFree(line));
    CUDA(cudaFree(rows));
    CUDA(cudaFree(out));
    puts("textures: right");
    return 0;
}
