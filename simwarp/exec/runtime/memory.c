/* Memory: of the device, managed, pinned and registered. */
#include "simwarp.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* ---- device memory ---- */

static cudaError_t allocate(void **pointer, size_t size)
{
    if (pointer == NULL)
        return cudaErrorInvalidValue;
    *pointer = NULL;
    if (size == 0)
        return cudaSuccess;
    struct call call = {.request = ASK_MALLOC, .arguments = {size}};
    cudaError_t error = ask(&call);
    if (error == cudaSuccess)
        *pointer = (void *)call.values[0];
    return error;
}

cudaError_t cudaMalloc(void **pointer, size_t size)
{
    FINISH(allocate(pointer, size));
}

cudaError_t allocate_again(void *pointer, size_t size)
{
    void *start;
    size_t known;
    if (kind_of(pointer, &start, &known) != 0)
        return cudaSuccess;
    struct call call = {.request = ASK_MALLOC, .arguments = {size, (uint64_t)pointer}};
    return ask(&call);
}

/* In a capture, each launch of the graph finds the memory at the address that is given now. */
cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream)
{
    cudaError_t error = allocate(pointer, size);
    if (error == cudaSuccess && size > 0 && is_own(stream) && stream->capture != NULL)
        error =
            submit(stream, (struct work){.kind = WORK_ALLOCATE, .fill = {.to = block_of(*pointer, size)}});
    FINISH(error);
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t size, cudaMemPool_t pool, cudaStream_t stream)
{
    (void)pool, (void)stream;
    FINISH(allocate(pointer, size));
}

cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    *pitch = round_up(width, 512);
    FINISH(allocate(pointer, *pitch * height));
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
    pitched->pitch = round_up(extent.width, 512);
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    FINISH(allocate(&pitched->ptr, pitched->pitch * extent.height * extent.depth));
}

/* ---- pages that the host and the device share ---- */

struct shared {
    void *start; /* of the pages */
    size_t size;
    bool registered; /* the program's own pages, to be given back */
    struct shared *next;
};
static struct shared *shared_pages;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void remember(void *start, size_t size, bool registered)
{
    struct shared *one = malloc(sizeof *one);
    if (one == NULL)
        return;
    pthread_mutex_lock(&lock);
    *one = (struct shared){start, size, registered, shared_pages};
    shared_pages = one;
    pthread_mutex_unlock(&lock);
}

static bool overlaps(const char *start, size_t size)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (struct shared *one = shared_pages; one != NULL; one = one->next)
        found |= start < (char *)one->start + one->size && (char *)one->start < start + size;
    pthread_mutex_unlock(&lock);
    return found;
}

static int anonymous_file(size_t size)
{
    int file = memfd_create("simwarp", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)size) != 0) {
        close(file);
        return -1;
    }
    return file;
}

static bool map_at(void *start, size_t size, int file)
{
    return mmap(start, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == start;
}

static cudaError_t share(struct call call, size_t pages, void **pointer)
{
    int file = call.descriptor = anonymous_file(pages);
    if (file < 0)
        return cudaErrorMemoryAllocation;
    cudaError_t error = ask(&call);
    void *start = (void *)call.values[0];
    if (error == cudaSuccess && !map_at(start, pages, file))
        error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess) {
        remember(start, pages, false);
        *pointer = start;
    }
    close(file);
    return error;
}

cudaError_t share_pages(size_t size, enum kind kind, void **pointer)
{
    *pointer = NULL;
    if (size == 0)
        return kind == KIND_MANAGED ? cudaErrorInvalidValue : cudaSuccess;
    struct call call = {.request = ASK_SHARE, .arguments = {size, kind, 0}};
    return share(call, round_up(size, DEVICE_PAGE), pointer);
}

cudaError_t share_variable(uint64_t module, const char *name, size_t size, void **pointer)
{
    struct call call = {
        .request = ASK_SHARE_VARIABLE, .arguments = {module}, .sent = block_of(name, strlen(name))};
    return share(call, round_up(size, DEVICE_PAGE), pointer);
}

cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned flags)
{
    (void)flags;
    FINISH(share_pages(size, KIND_MANAGED, pointer));
}

cudaError_t cudaMallocHost(void **pointer, size_t size)
{
    FINISH(share_pages(size, KIND_PINNED, pointer));
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags)
{
    (void)flags;
    FINISH(share_pages(size, KIND_PINNED, pointer));
}

/* Puts pages that the server sees, too, in the place of the program's own, with their contents. */
cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags)
{
    (void)flags;
    if (pointer == NULL || size == 0)
        FINISH(cudaErrorInvalidValue);
    char *start = (char *)((uintptr_t)pointer / DEVICE_PAGE * DEVICE_PAGE);
    size_t pages = round_up((size_t)((char *)pointer - start) + size, DEVICE_PAGE);
    void *known;
    size_t known_size;
    if (kind_of(pointer, &known, &known_size) != 0)
        FINISH(cudaErrorHostMemoryAlreadyRegistered);
    if (overlaps(start, pages))
        return (cudaError_t)simwarp_missing("cudaHostRegister of a page that has registered memory");
    int file = anonymous_file(pages);
    if (file < 0)
        FINISH(cudaErrorMemoryAllocation);
    struct call call = {
        .request = ASK_SHARE, .arguments = {size, KIND_REGISTERED, (uint64_t)pointer}, .descriptor = file};
    cudaError_t error = cudaErrorMemoryAllocation;
    if (pwrite(file, start, pages, 0) == (ssize_t)pages && (error = ask(&call)) == cudaSuccess) {
        error = map_at(start, pages, file) ? cudaSuccess : cudaErrorMemoryAllocation;
        remember(start, pages, true);
    }
    close(file);
    FINISH(error);
}

/* Gives the program its own pages back, with what is in them now. */
static void give_back(const struct shared *one)
{
    void *own = mmap(NULL, one->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        return;
    memcpy(own, one->start, one->size);
    mremap(own, one->size, one->size, MREMAP_MAYMOVE | MREMAP_FIXED, one->start);
}

/* Takes the pages at an address out of the list, and out of the window. */
static void take_back(const void *pointer)
{
    pthread_mutex_lock(&lock);
    for (struct shared **at = &shared_pages; *at != NULL; at = &(*at)->next) {
        struct shared *one = *at;
        if ((uintptr_t)pointer - (uintptr_t)one->start >= one->size)
            continue;
        if (one->registered)
            give_back(one);
        else
            mmap(one->start, one->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                 -1, 0);
        *at = one->next;
        free(one);
        break;
    }
    pthread_mutex_unlock(&lock);
}

static cudaError_t release(const void *pointer)
{
    if (pointer == NULL)
        return cudaSuccess;
    struct call call = {.request = ASK_FREE, .arguments = {(uint64_t)pointer}};
    cudaError_t error = ask(&call);
    if (error == cudaSuccess)
        take_back(pointer);
    return error;
}

cudaError_t cudaFree(void *pointer)
{
    FINISH(release(pointer));
}

/* In a capture the graph frees it, in each of its launches. */
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    if (is_own(stream) && stream->capture != NULL)
        FINISH(submit(stream, (struct work){.kind = WORK_FREE, .fill = {.to = block_of(pointer, 0)}}));
    FINISH(release(pointer));
}

cudaError_t cudaFreeHost(void *pointer)
{
    FINISH(release(pointer));
}

cudaError_t cudaHostUnregister(void *pointer)
{
    cudaError_t error = release(pointer);
    FINISH(error == cudaErrorInvalidValue ? cudaErrorHostMemoryNotRegistered : error);
}

/* ---- facts about pointers ---- */

enum kind kind_of(const void *pointer, void **start, size_t *size)
{
    struct call call = {.request = ASK_FIND, .arguments = {(uint64_t)pointer}};
    if (ask(&call) != cudaSuccess)
        return 0;
    *start = (void *)call.values[0];
    *size = call.values[1];
    return (enum kind)call.values[2];
}

cudaError_t cudaHostGetDevicePointer(void **found, void *pointer, unsigned flags)
{
    (void)flags;
    void *start;
    size_t size;
    enum kind kind = kind_of(pointer, &start, &size);
    if (kind != KIND_PINNED && kind != KIND_REGISTERED)
        FINISH(cudaErrorInvalidValue);
    *found = pointer;
    FINISH(cudaSuccess);
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *pointer)
{
    void *start;
    size_t size;
    enum kind kind = kind_of(pointer, &start, &size);
    *flags = cudaHostAllocMapped;
    FINISH(kind == KIND_PINNED || kind == KIND_REGISTERED ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *pointer)
{
    void *start;
    size_t size;
    enum kind kind = kind_of(pointer, &start, &size);
    *found = (struct cudaPointerAttributes){.device = kind == 0 ? cudaInvalidDeviceId : 0};
    found->type = kind == KIND_DEVICE    ? cudaMemoryTypeDevice
                  : kind == KIND_MANAGED ? cudaMemoryTypeManaged
                  : kind == 0            ? cudaMemoryTypeUnregistered
                                         : cudaMemoryTypeHost;
    found->devicePointer = kind == 0 ? NULL : (void *)pointer;
    found->hostPointer = kind == KIND_DEVICE ? NULL : (void *)pointer;
    FINISH(cudaSuccess);
}

cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t size, struct cudaMemLocation location,
                                 unsigned flags, cudaStream_t stream)
{
    (void)pointer, (void)size, (void)location, (void)flags, (void)stream;
    FINISH(cudaSuccess);
}

cudaError_t cudaMemAdvise(const void *pointer, size_t size, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location)
{
    (void)pointer, (void)size, (void)advice, (void)location;
    FINISH(cudaSuccess);
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *pointer, size_t size, unsigned flags)
{
    (void)stream, (void)pointer, (void)size, (void)flags;
    FINISH(cudaSuccess);
}
