/* Copies and fills: of bytes, rows, boxes. */
#include "simwarp.h"

static enum cudaMemcpyKind kind_by_address(const struct copy *copy)
{
    bool from = on_device(copy->from.data), to = on_device(copy->to.data);
    return from ? (to ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                : (to ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
}

/* Memory that the host may access lies in the window, too: by its address it counts as the device's. */
static bool fits(enum cudaMemcpyKind said, enum cudaMemcpyKind found, const struct copy *copy)
{
    bool to = said == cudaMemcpyHostToDevice || said == cudaMemcpyDeviceToDevice;
    bool from = said == cudaMemcpyDeviceToHost || said == cudaMemcpyDeviceToDevice;
    if (said == cudaMemcpyDefault || said == found)
        return true;
    void *start;
    size_t size;
    return (!to || kind_of(copy->to.data, &start, &size) != 0) &&
           (!from || kind_of(copy->from.data, &start, &size) != 0);
}

static void copy_on_host(const struct copy *copy)
{
    for (size_t y = 0; y < copy->to.height; y++)
        memmove((char *)copy->to.data + y * copy->to.pitch, (char *)copy->from.data + y * copy->from.pitch,
                copy->to.width);
}

static cudaError_t copy_at_once(const struct copy *copy)
{
    struct rows to = copy->to, from = copy->from;
    from.width = to.width, from.height = to.height;
    uint64_t width = to.width, height = to.height;
    struct call call = {0};
    switch (kind_by_address(copy)) {
    case cudaMemcpyHostToDevice:
        call = (struct call){
            .request = ASK_WRITE, .arguments = {(uint64_t)to.data, to.pitch, width, height}, .sent = from};
        return ask(&call);
    case cudaMemcpyDeviceToHost:
        call = (struct call){.request = ASK_READ,
                             .arguments = {(uint64_t)from.data, from.pitch, width, height},
                             .received = to};
        return ask(&call);
    case cudaMemcpyDeviceToDevice:
        call = (struct call){
            .request = ASK_COPY,
            .arguments = {(uint64_t)to.data, to.pitch, (uint64_t)from.data, from.pitch, width, height}};
        return ask(&call);
    default: copy_on_host(copy); return cudaSuccess;
    }
}

enum { PIECE = 8 << 20 };

/* One row between host and device in pieces, which are faster than a row that neither process has room at
 * hand for. */
static cudaError_t copy_in_pieces(struct copy copy)
{
    cudaError_t error = cudaSuccess;
    for (size_t left = copy.to.width; left > 0 && error == cudaSuccess; left -= copy.to.width) {
        copy.to.width = left < PIECE ? left : PIECE;
        error = copy_at_once(&copy);
        copy.to.data = (char *)copy.to.data + copy.to.width;
        copy.from.data = (char *)copy.from.data + copy.to.width;
    }
    return error;
}

/* Whether the device's side lies in one allocation; if not, the whole copy is a finding. */
static bool is_whole(const void *pointer, size_t width)
{
    void *start;
    size_t size;
    return kind_of(pointer, &start, &size) != 0 && (char *)pointer + width <= (char *)start + size;
}

cudaError_t copy_rows(const struct copy *copy)
{
    const struct rows *to = &copy->to, *from = &copy->from;
    enum cudaMemcpyKind found = kind_by_address(copy);
    if (to->width == 0 || to->height == 0)
        return cudaSuccess;
    if (to->data == NULL || from->data == NULL || !fits(copy->kind, found, copy))
        return cudaErrorInvalidValue;
    bool crosses = found == cudaMemcpyHostToDevice || found == cudaMemcpyDeviceToHost;
    const void *device = found == cudaMemcpyHostToDevice ? to->data : from->data;
    if (crosses && to->height == 1 && to->width > PIECE && is_whole(device, to->width))
        return copy_in_pieces(*copy);
    return copy_at_once(copy);
}

cudaError_t copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                 enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (height > 1 && (width > to_pitch || width > from_pitch))
        return cudaErrorInvalidPitchValue;
    struct copy one = {{to, to_pitch, width, height}, {(void *)from, from_pitch, width, height}, kind};
    return submit(stream, (struct work){.kind = WORK_COPY, .copy = one});
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    FINISH(copy(to, size, from, size, size, 1, kind, NULL));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    FINISH(copy(to, size, from, size, size, 1, kind, stream));
}

cudaError_t cudaMemcpyPeer(void *to, int device, const void *from, int other, size_t size)
{
    if (device != 0 || other != 0)
        FINISH(cudaErrorInvalidDevice);
    FINISH(copy(to, size, from, size, size, 1, cudaMemcpyDefault, NULL));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int device, const void *from, int other, size_t size,
                                cudaStream_t stream)
{
    if (device != 0 || other != 0)
        FINISH(cudaErrorInvalidDevice);
    FINISH(copy(to, size, from, size, size, 1, cudaMemcpyDefault, stream));
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind)
{
    FINISH(copy(to, to_pitch, from, from_pitch, width, height, kind, NULL));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FINISH(copy(to, to_pitch, from, from_pitch, width, height, kind, stream));
}

cudaError_t fill_rows(const struct fill *fill)
{
    struct rows to = fill->to;
    if (to.width == 0 || to.height == 0)
        return cudaSuccess;
    struct call call = {
        .request = ASK_FILL,
        .arguments = {(uint64_t)to.data, to.pitch, to.width, to.height, fill->value, fill->bytes}};
    return ask(&call);
}

cudaError_t fill_with(void *to, size_t pitch, uint32_t value, uint32_t bytes, size_t width, size_t height,
                      cudaStream_t stream)
{
    struct fill one = {{to, pitch, width, height}, value, bytes};
    return submit(stream, (struct work){.kind = WORK_FILL, .fill = one});
}

static cudaError_t fill(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
    return fill_with(to, pitch, (uint8_t)value, 1, width, height, stream);
}

cudaError_t cudaMemset(void *to, int value, size_t size)
{
    FINISH(fill(to, size, value, size, 1, NULL));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    FINISH(fill(to, size, value, size, 1, stream));
}

cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
    FINISH(fill(to, pitch, value, width, height, NULL));
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    FINISH(fill(to, pitch, value, width, height, stream));
}

static cudaError_t fill_box(struct cudaPitchedPtr to, int value, struct cudaExtent extent,
                            cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    for (size_t z = 0; z < extent.depth && error == cudaSuccess; z++)
        error = fill((char *)to.ptr + z * to.ysize * to.pitch, to.pitch, value, extent.width, extent.height,
                     stream);
    return error;
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr to, int value, struct cudaExtent extent)
{
    FINISH(fill_box(to, value, extent, NULL));
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr to, int value, struct cudaExtent extent,
                              cudaStream_t stream)
{
    FINISH(fill_box(to, value, extent, stream));
}
