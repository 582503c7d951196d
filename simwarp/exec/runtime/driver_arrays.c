/* The driver's arrays, textures and surfaces; an array is the runtime's, too. */
#include "arrays.h"
#include "driver.h"

/* The runtime's format of the driver's; bits are 0 for one that textures here do not have. */
static struct cudaChannelFormatDesc format_of(CUarray_format format, unsigned channels)
{
    enum cudaChannelFormatKind kind = cudaChannelFormatKindUnsigned;
    int bits = 0;
    switch (format) {
    case CU_AD_FORMAT_SIGNED_INT8: kind = cudaChannelFormatKindSigned; /* fall through */
    case CU_AD_FORMAT_UNSIGNED_INT8: bits = 8; break;
    case CU_AD_FORMAT_SIGNED_INT16: kind = cudaChannelFormatKindSigned; /* fall through */
    case CU_AD_FORMAT_UNSIGNED_INT16: bits = 16; break;
    case CU_AD_FORMAT_SIGNED_INT32: kind = cudaChannelFormatKindSigned; /* fall through */
    case CU_AD_FORMAT_UNSIGNED_INT32: bits = 32; break;
    case CU_AD_FORMAT_HALF: kind = cudaChannelFormatKindFloat, bits = 16; break;
    case CU_AD_FORMAT_FLOAT: kind = cudaChannelFormatKindFloat, bits = 32; break;
    default: break;
    }
    return (struct cudaChannelFormatDesc){bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0,
                                          channels > 3 ? bits : 0, kind};
}

static CUarray_format driver_format(struct cudaChannelFormatDesc format)
{
    if (format.f == cudaChannelFormatKindFloat)
        return format.x == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
    bool sign = format.f == cudaChannelFormatKindSigned;
    switch (format.x) {
    case 8: return sign ? CU_AD_FORMAT_SIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT8;
    case 16: return sign ? CU_AD_FORMAT_SIGNED_INT16 : CU_AD_FORMAT_UNSIGNED_INT16;
    default: return sign ? CU_AD_FORMAT_SIGNED_INT32 : CU_AD_FORMAT_UNSIGNED_INT32;
    }
}

static unsigned channels_of(struct cudaChannelFormatDesc format)
{
    return 1u + (format.y > 0) + (format.z > 0) + (format.w > 0);
}

static cudaArray_t runtime_array(CUarray array)
{
    return (cudaArray_t)array;
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
    struct cudaExtent extent = {wanted->Width, wanted->Height, wanted->Depth};
    IN_CONTEXT(make_array((cudaArray_t *)array, format_of(wanted->Format, wanted->NumChannels), extent,
                          wanted->Flags));
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted)
{
    struct cudaExtent extent = {wanted->Width, wanted->Height, 0};
    IN_CONTEXT(make_array((cudaArray_t *)array, format_of(wanted->Format, wanted->NumChannels), extent, 0));
}

CUresult cuArrayDestroy(CUarray array)
{
    ANYWHERE(free_array(runtime_array(array)));
}

static cudaError_t tell_array(CUDA_ARRAY3D_DESCRIPTOR *found, CUarray array)
{
    const struct cudaArray *one = runtime_array(array);
    *found = (CUDA_ARRAY3D_DESCRIPTOR){.Width = one->extent.width,
                                       .Height = one->extent.height,
                                       .Depth = one->extent.depth,
                                       .Format = driver_format(one->format),
                                       .NumChannels = channels_of(one->format),
                                       .Flags = one->flags};
    return cudaSuccess;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR *found, CUarray array)
{
    ANYWHERE(tell_array(found, array));
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR *found, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR whole;
    tell_array(&whole, array);
    *found = (CUDA_ARRAY_DESCRIPTOR){whole.Width, whole.Height, whole.Format, whole.NumChannels};
    ANYWHERE(cudaSuccess);
}

/* ---- copies of one row ---- */

static struct cudaExtent row(size_t size)
{
    return (struct cudaExtent){size, 1, 1};
}

static struct side row_of(CUarray array, size_t at, size_t size)
{
    return array_side(runtime_array(array), at, 0, 0, row(size));
}

static cudaError_t copy_row(struct side to, struct side from, size_t size, CUstream stream)
{
    return copy_sides(to, from, row(size), cudaMemcpyDefault, stream);
}

#define MEMORY(address, size) ((struct side){(char *)(uintptr_t)(address), size, size})

CUresult cuMemcpyHtoA(CUarray to, size_t at, const void *from, size_t size)
{
    IN_CONTEXT(copy_row(row_of(to, at, size), MEMORY(from, size), size, NULL));
}

CUresult cuMemcpyHtoAAsync(CUarray to, size_t at, const void *from, size_t size, CUstream stream)
{
    IN_CONTEXT(copy_row(row_of(to, at, size), MEMORY(from, size), size, stream));
}

CUresult cuMemcpyAtoH(void *to, CUarray from, size_t at, size_t size)
{
    IN_CONTEXT(copy_row(MEMORY(to, size), row_of(from, at, size), size, NULL));
}

CUresult cuMemcpyAtoHAsync(void *to, CUarray from, size_t at, size_t size, CUstream stream)
{
    IN_CONTEXT(copy_row(MEMORY(to, size), row_of(from, at, size), size, stream));
}

CUresult cuMemcpyDtoA(CUarray to, size_t at, CUdeviceptr from, size_t size)
{
    IN_CONTEXT(copy_row(row_of(to, at, size), MEMORY(from, size), size, NULL));
}

CUresult cuMemcpyAtoD(CUdeviceptr to, CUarray from, size_t at, size_t size)
{
    IN_CONTEXT(copy_row(MEMORY(to, size), row_of(from, at, size), size, NULL));
}

CUresult cuMemcpyAtoA(CUarray to, size_t at, CUarray from, size_t from_at, size_t size)
{
    IN_CONTEXT(copy_row(row_of(to, at, size), row_of(from, from_at, size), size, NULL));
}

/* ---- textures and surfaces ---- */

static cudaError_t runtime_resource(struct cudaResourceDesc *to, const CUDA_RESOURCE_DESC *from)
{
    *to = (struct cudaResourceDesc){0};
    switch (from->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        to->resType = cudaResourceTypeArray;
        to->res.array.array = runtime_array(from->res.array.hArray);
        return cudaSuccess;
    case CU_RESOURCE_TYPE_LINEAR:
        to->resType = cudaResourceTypeLinear;
        to->res.linear.devPtr = (void *)from->res.linear.devPtr;
        to->res.linear.desc = format_of(from->res.linear.format, from->res.linear.numChannels);
        to->res.linear.sizeInBytes = from->res.linear.sizeInBytes;
        return cudaSuccess;
    case CU_RESOURCE_TYPE_PITCH2D:
        to->resType = cudaResourceTypePitch2D;
        to->res.pitch2D.devPtr = (void *)from->res.pitch2D.devPtr;
        to->res.pitch2D.desc = format_of(from->res.pitch2D.format, from->res.pitch2D.numChannels);
        to->res.pitch2D.width = from->res.pitch2D.width, to->res.pitch2D.height = from->res.pitch2D.height;
        to->res.pitch2D.pitchInBytes = from->res.pitch2D.pitchInBytes;
        return cudaSuccess;
    default: return (cudaError_t)simwarp_missing("mipmapped arrays");
    }
}

/* Without CU_TRSF_READ_AS_INTEGER the driver reads integers of 8 and 16 bits as floats. */
static bool reads_as_floats(const CUDA_TEXTURE_DESC *texture, const struct cudaResourceDesc *resource)
{
    struct cudaChannelFormatDesc format = resource->res.linear.desc;
    if (resource->resType == cudaResourceTypeArray)
        format = resource->res.array.array->format;
    if (resource->resType == cudaResourceTypePitch2D)
        format = resource->res.pitch2D.desc;
    return !(texture->flags & CU_TRSF_READ_AS_INTEGER) && format.f != cudaChannelFormatKindFloat && format.x < 32;
}

static cudaError_t create_texture(CUtexObject *made, const CUDA_RESOURCE_DESC *resource,
                                  const CUDA_TEXTURE_DESC *texture)
{
    struct cudaResourceDesc what;
    cudaError_t error = runtime_resource(&what, resource);
    if (error != cudaSuccess)
        return error;
    struct cudaTextureDesc how = {
        .filterMode = (enum cudaTextureFilterMode)texture->filterMode,
        .readMode = reads_as_floats(texture, &what) ? cudaReadModeNormalizedFloat : cudaReadModeElementType,
        .sRGB = (texture->flags & CU_TRSF_SRGB) != 0,
        .normalizedCoords = (texture->flags & CU_TRSF_NORMALIZED_COORDINATES) != 0,
    };
    for (int i = 0; i < 3; i++)
        how.addressMode[i] = (enum cudaTextureAddressMode)texture->addressMode[i];
    memcpy(how.borderColor, texture->borderColor, sizeof how.borderColor);
    return make_texture(made, &what, &how);
}

CUresult cuTexObjectCreate(CUtexObject *made, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    if (view != NULL && view->format != CU_RES_VIEW_FORMAT_NONE)
        IN_CONTEXT((cudaError_t)simwarp_missing("views of another format"));
    IN_CONTEXT(create_texture(made, resource, texture));
}

CUresult cuTexObjectDestroy(CUtexObject texture)
{
    ANYWHERE(forget_object(texture));
}

static cudaError_t create_surface(CUsurfObject *made, const CUDA_RESOURCE_DESC *resource)
{
    struct cudaResourceDesc what;
    cudaError_t error = runtime_resource(&what, resource);
    return error != cudaSuccess ? error : make_surface(made, &what);
}

CUresult cuSurfObjectCreate(CUsurfObject *made, const CUDA_RESOURCE_DESC *resource)
{
    IN_CONTEXT(create_surface(made, resource));
}

CUresult cuSurfObjectDestroy(CUsurfObject surface)
{
    ANYWHERE(forget_object(surface));
}
