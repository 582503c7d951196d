/* Arrays, and copies to, from and between them. */
#include "arrays.h"

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                   enum cudaChannelFormatKind kind)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

size_t texel_size(struct cudaChannelFormatDesc format)
{
    return (size_t)(format.x + format.y + format.z + format.w) / 8;
}

cudaError_t make_array(cudaArray_t *made, struct cudaChannelFormatDesc format, struct cudaExtent extent,
                       unsigned flags)
{
    size_t unit = texel_size(format);
    if (extent.width == 0 || unit == 0)
        return cudaErrorInvalidValue;
    struct cudaArray *array = malloc(sizeof *array);
    if (array == NULL)
        return cudaErrorMemoryAllocation;
    *array = (struct cudaArray){.format = format, .extent = extent, .flags = flags, .unit = unit,
                                .pitch = extent.width * unit, .rows = extent.height ? extent.height : 1,
                                .slices = extent.depth ? extent.depth : 1};
    struct call call = {.request = ASK_MALLOC, .arguments = {array->pitch * array->rows * array->slices}};
    cudaError_t error = ask(&call);
    array->data = (char *)call.values[0];
    if (error != cudaSuccess)
        free(array);
    else
        *made = array;
    return error;
}

cudaError_t free_array(cudaArray_t array)
{
    if (array == NULL)
        return cudaSuccess;
    struct call call = {.request = ASK_FREE, .arguments = {(uint64_t)array->data}};
    free(array);
    return ask(&call);
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *format, size_t width,
                            size_t height, unsigned flags)
{
    FINISH(make_array(array, *format, (struct cudaExtent){width, height, 0}, flags));
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *format,
                              struct cudaExtent extent, unsigned flags)
{
    FINISH(make_array(array, *format, extent, flags));
}

cudaError_t cudaFreeArray(cudaArray_t array)
{
    FINISH(free_array(array));
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *format, struct cudaExtent *extent, unsigned *flags,
                             cudaArray_t array)
{
    if (format != NULL)
        *format = array->format;
    if (extent != NULL)
        *extent = array->extent;
    if (flags != NULL)
        *flags = array->flags;
    FINISH(cudaSuccess);
}

cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *format, cudaArray_const_t array)
{
    *format = array->format;
    FINISH(cudaSuccess);
}

/* ---- copies ---- */

struct side array_side(const struct cudaArray *array, size_t x, size_t y, size_t z, struct cudaExtent box)
{
    bool fits = x + box.width <= array->pitch && y + box.height <= array->rows && z + box.depth <= array->slices;
    char *data = array->data + (z * array->rows + y) * array->pitch + x;
    return (struct side){fits ? data : NULL, array->pitch, array->pitch * array->rows};
}

cudaError_t copy_sides(struct side to, struct side from, struct cudaExtent box, enum cudaMemcpyKind kind,
                       cudaStream_t stream)
{
    if (to.data == NULL || from.data == NULL)
        return box.width * box.height * box.depth ? cudaErrorInvalidValue : cudaSuccess;
    cudaError_t error = cudaSuccess;
    for (size_t z = 0; z < box.depth && error == cudaSuccess; z++)
        error = copy(to.data + z * to.slice, to.pitch, from.data + z * from.slice, from.pitch, box.width,
                     box.height, kind, stream);
    return error;
}

static struct side memory_side(const void *data, size_t pitch)
{
    return (struct side){(char *)data, pitch, 0};
}

static struct cudaExtent plane(size_t width, size_t height)
{
    return (struct cudaExtent){width, height, 1};
}

static cudaError_t to_array(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                            size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct cudaExtent box = plane(width, height);
    return copy_sides(array_side(to, x, y, 0, box), memory_side(from, pitch), box, kind, stream);
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch,
                                size_t width, size_t height, enum cudaMemcpyKind kind)
{
    FINISH(to_array(to, x, y, from, pitch, width, height, kind, NULL));
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind,
                                     cudaStream_t stream)
{
    FINISH(to_array(to, x, y, from, pitch, width, height, kind, stream));
}

static cudaError_t from_array(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct cudaExtent box = plane(width, height);
    return copy_sides(memory_side(to, pitch), array_side(from, x, y, 0, box), box, kind, stream);
}

cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y,
                                  size_t width, size_t height, enum cudaMemcpyKind kind)
{
    FINISH(from_array(to, pitch, from, x, y, width, height, kind, NULL));
}

cudaError_t cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y,
                                       size_t width, size_t height, enum cudaMemcpyKind kind,
                                       cudaStream_t stream)
{
    FINISH(from_array(to, pitch, from, x, y, width, height, kind, stream));
}

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from,
                                     size_t x, size_t y, size_t width, size_t height,
                                     enum cudaMemcpyKind kind)
{
    struct cudaExtent box = plane(width, height);
    FINISH(copy_sides(array_side(to, to_x, to_y, 0, box), array_side(from, x, y, 0, box), box, kind, NULL));
}

/* Bytes that go on in the next rows of an array: the rest of a row, whole rows, and a part of one. */
static cudaError_t in_rows(cudaArray_const_t array, size_t x, size_t y, char *memory, size_t count, bool to,
                           enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    while (count > 0 && error == cudaSuccess) {
        bool whole = x == 0 && count >= array->pitch;
        size_t width = whole ? array->pitch : count < array->pitch - x ? count : array->pitch - x;
        struct cudaExtent box = plane(width, whole ? count / array->pitch : 1);
        struct side there = array_side(array, x, y, 0, box), here = memory_side(memory, width);
        error = to ? copy_sides(there, here, box, kind, stream) : copy_sides(here, there, box, kind, stream);
        memory += box.width * box.height, count -= box.width * box.height;
        x = 0, y += box.height;
    }
    return error;
}

cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t count,
                              enum cudaMemcpyKind kind)
{
    FINISH(in_rows(to, x, y, (char *)from, count, true, kind, NULL));
}

cudaError_t cudaMemcpyToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t count,
                                   enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FINISH(in_rows(to, x, y, (char *)from, count, true, kind, stream));
}

cudaError_t cudaMemcpyFromArray(void *to, cudaArray_const_t from, size_t x, size_t y, size_t count,
                                enum cudaMemcpyKind kind)
{
    FINISH(in_rows(from, x, y, to, count, false, kind, NULL));
}

cudaError_t cudaMemcpyFromArrayAsync(void *to, cudaArray_const_t from, size_t x, size_t y, size_t count,
                                     enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FINISH(in_rows(from, x, y, to, count, false, kind, stream));
}

/* ---- boxes: with an array on a side, widths and places count texels instead of bytes ---- */

static struct side box_side(cudaArray_t array, struct cudaPitchedPtr memory, struct cudaPos at, size_t unit,
                            struct cudaExtent box)
{
    if (array != NULL)
        return array_side(array, at.x * unit, at.y, at.z, box);
    size_t row = at.z * memory.ysize + at.y;
    return (struct side){(char *)memory.ptr + row * memory.pitch + at.x, memory.pitch,
                         memory.pitch * memory.ysize};
}

static cudaError_t copy_box(const struct cudaMemcpy3DParms *one, cudaStream_t stream)
{
    cudaArray_t some = one->dstArray != NULL ? one->dstArray : one->srcArray;
    size_t unit = some != NULL ? some->unit : 1;
    struct cudaExtent box = {one->extent.width * unit, one->extent.height, one->extent.depth};
    return copy_sides(box_side(one->dstArray, one->dstPtr, one->dstPos, unit, box),
                      box_side(one->srcArray, one->srcPtr, one->srcPos, unit, box), box, one->kind, stream);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *box)
{
    FINISH(copy_box(box, NULL));
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *box, cudaStream_t stream)
{
    FINISH(copy_box(box, stream));
}
