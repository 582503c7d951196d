/* Texture and surface objects: described to the server, which gives their handles. */
#include "arrays.h"

#include <pthread.h>

enum geometry { LINEAR, ROW, PLANE, VOLUME, ROWS, PLANES, CUBE, CUBES };

/* What the server reads: simwarp/exec/texture_objects.py. */
struct described {
    uint64_t address, pitch;
    uint32_t geometry, kind, bits, channels, width, height, depth;
    uint32_t modes[3], filter, read_mode, normalized;
    float border[4];
};

/* The objects of this program, to tell what they were made of. */
struct object {
    unsigned long long handle;
    struct cudaResourceDesc resource;
    struct cudaTextureDesc texture;
    struct object *next;
};
static struct object *objects;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct object *object_of(unsigned long long handle)
{
    pthread_mutex_lock(&lock);
    struct object *found = objects;
    while (found != NULL && found->handle != handle)
        found = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

const struct cudaResourceDesc *resource_of(unsigned long long handle)
{
    const struct object *found = object_of(handle);
    return found != NULL ? &found->resource : NULL;
}

static void describe_format(struct described *to, struct cudaChannelFormatDesc format)
{
    to->kind = format.f;
    to->bits = (uint32_t)format.x;
    to->channels = 1 + (format.y > 0) + (format.z > 0) + (format.w > 0);
}

static void describe_array(struct described *to, const struct cudaArray *array)
{
    bool cube = array->flags & cudaArrayCubemap, layered = array->flags & cudaArrayLayered;
    describe_format(to, array->format);
    to->address = (uint64_t)array->data, to->pitch = array->pitch;
    to->width = (uint32_t)array->extent.width;
    to->height = (uint32_t)array->rows, to->depth = (uint32_t)array->slices;
    if (cube)
        to->geometry = layered ? CUBES : CUBE;
    else if (layered)
        to->geometry = array->extent.height ? PLANES : ROWS;
    else
        to->geometry = array->extent.depth ? VOLUME : array->extent.height ? PLANE : ROW;
}

static cudaError_t describe(struct described *to, const struct cudaResourceDesc *resource)
{
    switch (resource->resType) {
    case cudaResourceTypeArray:
        if (resource->res.array.array == NULL)
            return cudaErrorInvalidValue;
        describe_array(to, resource->res.array.array);
        return cudaSuccess;
    case cudaResourceTypeLinear:
        describe_format(to, resource->res.linear.desc);
        to->address = (uint64_t)resource->res.linear.devPtr;
        to->width = (uint32_t)(resource->res.linear.sizeInBytes / texel_size(resource->res.linear.desc));
        to->pitch = resource->res.linear.sizeInBytes;
        to->height = to->depth = 1, to->geometry = LINEAR;
        return cudaSuccess;
    case cudaResourceTypePitch2D:
        describe_format(to, resource->res.pitch2D.desc);
        to->address = (uint64_t)resource->res.pitch2D.devPtr, to->pitch = resource->res.pitch2D.pitchInBytes;
        to->width = (uint32_t)resource->res.pitch2D.width;
        to->height = (uint32_t)resource->res.pitch2D.height;
        to->depth = 1, to->geometry = PLANE;
        return cudaSuccess;
    default: return (cudaError_t)simwarp_missing("mipmapped arrays");
    }
}

static cudaError_t make(enum request request, unsigned long long *made, const struct described *what,
                        const struct object *one)
{
    struct call call = {.request = request, .sent = block_of(what, sizeof *what)};
    cudaError_t error = ask(&call);
    if (error != cudaSuccess)
        return error;
    struct object *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return cudaErrorMemoryAllocation;
    *kept = *one;
    *made = kept->handle = call.values[0];
    pthread_mutex_lock(&lock);
    kept->next = objects;
    objects = kept;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t make_texture(cudaTextureObject_t *made, const struct cudaResourceDesc *resource,
                         const struct cudaTextureDesc *texture)
{
    struct described what = {.filter = texture->filterMode, .read_mode = texture->readMode};
    struct object one = {.resource = *resource, .texture = *texture};
    cudaError_t error = describe(&what, resource);
    if (error != cudaSuccess)
        return error;
    if (texture->sRGB)
        return (cudaError_t)simwarp_missing("textures of sRGB colours");
    what.normalized = texture->normalizedCoords != 0;
    for (int i = 0; i < 3; i++)
        what.modes[i] = texture->addressMode[i];
    memcpy(what.border, texture->borderColor, sizeof what.border);
    return make(ASK_TEXTURE, made, &what, &one);
}

cudaError_t make_surface(cudaSurfaceObject_t *made, const struct cudaResourceDesc *resource)
{
    struct described what = {0};
    struct object one = {.resource = *resource};
    if (resource->resType != cudaResourceTypeArray || resource->res.array.array == NULL ||
        !(resource->res.array.array->flags & cudaArraySurfaceLoadStore))
        return cudaErrorInvalidValue;
    cudaError_t error = describe(&what, resource);
    return error != cudaSuccess ? error : make(ASK_SURFACE, made, &what, &one);
}

cudaError_t forget_object(unsigned long long handle)
{
    struct call call = {.request = ASK_FORGET, .arguments = {handle}};
    pthread_mutex_lock(&lock);
    for (struct object **at = &objects; *at != NULL; at = &(*at)->next)
        if ((*at)->handle == handle) {
            struct object *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    return ask(&call);
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t *made, const struct cudaResourceDesc *resource,
                                    const struct cudaTextureDesc *texture,
                                    const struct cudaResourceViewDesc *view)
{
    if (view != NULL && view->format != cudaResViewFormatNone)
        FINISH((cudaError_t)simwarp_missing("views of another format"));
    FINISH(make_texture(made, resource, texture));
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture)
{
    FINISH(forget_object(texture));
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *made, const struct cudaResourceDesc *resource)
{
    FINISH(make_surface(made, resource));
}

cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t surface)
{
    FINISH(forget_object(surface));
}

static cudaError_t tell_resource(struct cudaResourceDesc *resource, unsigned long long handle)
{
    const struct cudaResourceDesc *found = resource_of(handle);
    if (found == NULL)
        return cudaErrorInvalidValue;
    *resource = *found;
    return cudaSuccess;
}

cudaError_t cudaGetTextureObjectResourceDesc(struct cudaResourceDesc *resource, cudaTextureObject_t texture)
{
    FINISH(tell_resource(resource, texture));
}

cudaError_t cudaGetSurfaceObjectResourceDesc(struct cudaResourceDesc *resource, cudaSurfaceObject_t surface)
{
    FINISH(tell_resource(resource, surface));
}

cudaError_t cudaGetTextureObjectTextureDesc(struct cudaTextureDesc *texture, cudaTextureObject_t handle)
{
    const struct object *found = object_of(handle);
    if (found == NULL)
        FINISH(cudaErrorInvalidValue);
    *texture = found->texture;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t *width, const struct cudaChannelFormatDesc *format,
                                                 int device)
{
    (void)format;
    *width = 1 << 28;
    FINISH(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
