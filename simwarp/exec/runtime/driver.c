/* Entry points of the driver that programs ask the runtime for: the encoding of tensor maps. */
#include "simwarp.h"

enum { MOST_DIMENSIONS = 5 };

/* What `cuTensorMapEncodeTiled` is given, as the server reads it. */
struct tiled {
    uint64_t address, shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS - 1];
    uint32_t type, rank, box[MOST_DIMENSIONS], steps[MOST_DIMENSIONS], interleave, swizzle, promotion, fill;
};

/* With the signature of the driver; the enumerations are ints there. */
static int encode_tiled(void *map, int type, uint32_t rank, void *address, const uint64_t *shape,
                        const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                        int swizzle, int promotion, int fill)
{
    struct tiled given = {.address = (uint64_t)address,
                          .type = (uint32_t)type,
                          .rank = rank,
                          .interleave = (uint32_t)interleave,
                          .swizzle = (uint32_t)swizzle,
                          .promotion = (uint32_t)promotion,
                          .fill = (uint32_t)fill};
    if (rank < 1 || rank > MOST_DIMENSIONS)
        return cudaErrorInvalidValue;
    for (uint32_t i = 0; i < rank; i++) {
        given.shape[i] = shape[i];
        given.box[i] = box[i];
        given.steps[i] = steps[i];
        if (i + 1 < rank)
            given.strides[i] = strides[i];
    }
    struct call call = {
        .request = ASK_TENSOR_MAP, .sent = block_of(&given, sizeof given), .received = block_of(map, 128)};
    return (int)ask(&call);
}

static void *entry_point(const char *name)
{
    if (strcmp(name, "cuTensorMapEncodeTiled") == 0)
        return (void *)encode_tiled;
    struct call call = {.request = ASK_MISSING, .sent = block_of(name, strlen(name))};
    ask(&call);
    return NULL;
}

static cudaError_t find(const char *name, void **found, enum cudaDriverEntryPointQueryResult *result)
{
    *found = entry_point(name);
    if (result != NULL)
        *result = *found != NULL ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *found != NULL || result != NULL ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **found, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result)
{
    (void)flags;
    FINISH(find(name, found, result));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    (void)version, (void)flags;
    FINISH(find(name, found, result));
}
