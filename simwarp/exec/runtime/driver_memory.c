/* Memory by the driver's functions: allocations, copies, fills, facts about pointers. */
#include "arrays.h"
#include "driver.h"

#define POINTER(address) ((void *)(address))

CUresult cuMemGetInfo(size_t *unused, size_t *total)
{
    IN_CONTEXT(cudaMemGetInfo(unused, total));
}

static cudaError_t allocate(CUdeviceptr *address, size_t size)
{
    return size == 0 ? cudaErrorInvalidValue : cudaMalloc((void **)address, size);
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t size)
{
    IN_CONTEXT(allocate(address, size));
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
    IN_CONTEXT(cudaMallocAsync((void **)address, size, stream));
}

CUresult cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)element;
    IN_CONTEXT(cudaMallocPitch((void **)address, pitch, width, height));
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags)
{
    IN_CONTEXT(cudaMallocManaged((void **)address, size, flags));
}

CUresult cuMemFree(CUdeviceptr address)
{
    ANYWHERE(cudaFree(POINTER(address)));
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    IN_CONTEXT(cudaFreeAsync(POINTER(address), stream));
}

CUresult cuMemAllocHost(void **pointer, size_t size)
{
    IN_CONTEXT(cudaMallocHost(pointer, size));
}

CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
    IN_CONTEXT(cudaHostAlloc(pointer, size, flags));
}

CUresult cuMemFreeHost(void *pointer)
{
    ANYWHERE(cudaFreeHost(pointer));
}

CUresult cuMemHostRegister(void *pointer, size_t size, unsigned flags)
{
    IN_CONTEXT(cudaHostRegister(pointer, size, flags));
}

CUresult cuMemHostUnregister(void *pointer)
{
    ANYWHERE(cudaHostUnregister(pointer));
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *found, void *pointer, unsigned flags)
{
    IN_CONTEXT(cudaHostGetDevicePointer((void **)found, pointer, flags));
}

CUresult cuMemHostGetFlags(unsigned *flags, void *pointer)
{
    IN_CONTEXT(cudaHostGetFlags(flags, pointer));
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags,
                            CUstream stream)
{
    (void)address, (void)size, (void)location, (void)flags, (void)stream;
    IN_CONTEXT(cudaSuccess);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location)
{
    (void)address, (void)size, (void)advice, (void)location;
    IN_CONTEXT(cudaSuccess);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t size, unsigned flags)
{
    (void)stream, (void)address, (void)size, (void)flags;
    IN_CONTEXT(cudaSuccess);
}

/* ---- copies ---- */

#define COPY(name, to_type, from_type, kind)                                                                 \
    CUresult name(to_type to, from_type from, size_t size)                                                   \
    {                                                                                                        \
        IN_CONTEXT(cudaMemcpy(POINTER(to), POINTER(from), size, kind));                                      \
    }
#define COPY_ASYNC(name, to_type, from_type, kind)                                                           \
    CUresult name(to_type to, from_type from, size_t size, CUstream stream)                                  \
    {                                                                                                        \
        IN_CONTEXT(cudaMemcpyAsync(POINTER(to), POINTER(from), size, kind, stream));                         \
    }
COPY(cuMemcpy, CUdeviceptr, CUdeviceptr, cudaMemcpyDefault)
COPY(cuMemcpyHtoD, CUdeviceptr, const void *, cudaMemcpyHostToDevice)
COPY(cuMemcpyDtoH, void *, CUdeviceptr, cudaMemcpyDeviceToHost)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr, cudaMemcpyDeviceToDevice)
COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, cudaMemcpyDefault)
COPY_ASYNC(cuMemcpyHtoDAsync, CUdeviceptr, const void *, cudaMemcpyHostToDevice)
COPY_ASYNC(cuMemcpyDtoHAsync, void *, CUdeviceptr, cudaMemcpyDeviceToHost)
COPY_ASYNC(cuMemcpyDtoDAsync, CUdeviceptr, CUdeviceptr, cudaMemcpyDeviceToDevice)

static size_t or_else(size_t given, size_t usual)
{
    return given != 0 ? given : usual;
}

static struct side memory_side(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t row,
                               size_t pitch, size_t height)
{
    char *data = (char *)(type == CU_MEMORYTYPE_HOST ? host : POINTER(device));
    return (struct side){data + row * pitch + x, pitch, pitch * height};
}

/* One side, "src" or "dst", of a copy of a box. */
#define SIDE(name, one, box)                                                                                 \
    ((one)->name##MemoryType == CU_MEMORYTYPE_ARRAY                                                          \
         ? array_side((cudaArray_t)(one)->name##Array, (one)->name##XInBytes, (one)->name##Y, (one)->name##Z, \
                      box)                                                                                   \
         : memory_side((one)->name##MemoryType, (one)->name##Host, (one)->name##Device,                      \
                       (one)->name##XInBytes,                                                                \
                       (one)->name##Z * or_else((one)->name##Height, (one)->Height) + (one)->name##Y,        \
                       or_else((one)->name##Pitch, (one)->WidthInBytes),                                     \
                       or_else((one)->name##Height, (one)->Height)))

static cudaError_t copy_box(const CUDA_MEMCPY3D *one, CUstream stream)
{
    struct cudaExtent box = {one->WidthInBytes, one->Height, one->Depth};
    return copy_sides(SIDE(dst, one, box), SIDE(src, one, box), box, cudaMemcpyDefault, stream);
}

static cudaError_t copy_plane(const CUDA_MEMCPY2D *one, CUstream stream)
{
    CUDA_MEMCPY3D box = {
        .srcXInBytes = one->srcXInBytes, .srcY = one->srcY, .srcMemoryType = one->srcMemoryType,
        .srcHost = one->srcHost, .srcDevice = one->srcDevice, .srcArray = one->srcArray,
        .srcPitch = one->srcPitch, .dstXInBytes = one->dstXInBytes, .dstY = one->dstY,
        .dstMemoryType = one->dstMemoryType, .dstHost = one->dstHost, .dstDevice = one->dstDevice,
        .dstArray = one->dstArray, .dstPitch = one->dstPitch, .WidthInBytes = one->WidthInBytes,
        .Height = one->Height, .Depth = 1};
    return copy_box(&box, stream);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D *plane)
{
    IN_CONTEXT(copy_plane(plane, NULL));
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *plane)
{
    IN_CONTEXT(copy_plane(plane, NULL));
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *plane, CUstream stream)
{
    IN_CONTEXT(copy_plane(plane, stream));
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D *box)
{
    IN_CONTEXT(copy_box(box, NULL));
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *box, CUstream stream)
{
    IN_CONTEXT(copy_box(box, stream));
}

/* ---- fills: a value of 1, 2 or 4 bytes ---- */

#define FILL(bits, type)                                                                                     \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count)                                  \
    {                                                                                                        \
        size_t size = count * sizeof(type);                                                                  \
        IN_CONTEXT(fill_with(POINTER(to), size, value, sizeof(type), size, 1, NULL));                        \
    }                                                                                                        \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream)               \
    {                                                                                                        \
        size_t size = count * sizeof(type);                                                                  \
        IN_CONTEXT(fill_with(POINTER(to), size, value, sizeof(type), size, 1, stream));                      \
    }                                                                                                        \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height)   \
    {                                                                                                        \
        IN_CONTEXT(                                                                                          \
            fill_with(POINTER(to), pitch, value, sizeof(type), width * sizeof(type), height, NULL));         \
    }                                                                                                        \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, \
                                      CUstream stream)                                                       \
    {                                                                                                        \
        IN_CONTEXT(                                                                                          \
            fill_with(POINTER(to), pitch, value, sizeof(type), width * sizeof(type), height, stream));       \
    }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)

/* ---- facts about pointers ---- */

CUresult cuMemGetAddressRange(CUdeviceptr *start, size_t *size, CUdeviceptr address)
{
    void *found;
    size_t bytes;
    bool known = kind_of(POINTER(address), &found, &bytes) != 0;
    if (known && start != NULL)
        *start = (CUdeviceptr)found;
    if (known && size != NULL)
        *size = bytes;
    IN_CONTEXT(known ? cudaSuccess : (cudaError_t)CUDA_ERROR_NOT_FOUND);
}

static cudaError_t pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    void *start;
    size_t size;
    enum kind kind = kind_of(POINTER(address), &start, &size);
    bool host = kind == KIND_PINNED || kind == KIND_REGISTERED;
    if (kind == 0)
        return cudaErrorInvalidValue;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = current_context(); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (kind == KIND_DEVICE)
            return cudaErrorInvalidValue;
        *(void **)data = POINTER(address);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data = address; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data = (CUdeviceptr)start; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = size; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = (CUdeviceptr)start; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(bool *)data = kind == KIND_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(bool *)data = true; break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(bool *)data = true; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = 0; break;
    default: return cudaErrorNotSupported;
    }
    return cudaSuccess;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    IN_CONTEXT(pointer_attribute(data, attribute, address));
}

/* One that an address lacks is 0; it is not an error. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address)
{
    for (unsigned i = 0; i < count; i++)
        if (pointer_attribute(data[i], attributes[i], address) != cudaSuccess)
            memset(data[i], 0,
                   attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                           attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED
                       ? 1
                       : 4);
    IN_CONTEXT(cudaSuccess);
}
