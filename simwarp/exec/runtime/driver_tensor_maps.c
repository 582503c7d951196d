/* Encoding of tensor maps. */
#include "driver.h"

enum { MOST_DIMENSIONS = 5 };

/* What `cuTensorMapEncodeTiled` is given, as the server reads it. */
struct tiled {
    uint64_t address, shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS - 1];
    uint32_t type, rank, box[MOST_DIMENSIONS], steps[MOST_DIMENSIONS], interleave, swizzle, promotion, fill;
};

/* Programs may encode maps before there is a context: nothing on the device changes. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *shape, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill)
{
    struct tiled given = {.address = (uint64_t)address,
                          .type = (uint32_t)type,
                          .rank = rank,
                          .interleave = (uint32_t)interleave,
                          .swizzle = (uint32_t)swizzle,
                          .promotion = (uint32_t)promotion,
                          .fill = (uint32_t)fill};
    if (rank < 1 || rank > MOST_DIMENSIONS)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < rank; i++) {
        given.shape[i] = shape[i];
        given.box[i] = box[i];
        given.steps[i] = steps[i];
        if (i + 1 < rank)
            given.strides[i] = strides[i];
    }
    struct call call = {.request = ASK_TENSOR_MAP,
                        .sent = block_of(&given, sizeof given),
                        .received = block_of(map, sizeof *map)};
    return (CUresult)ask(&call);
}
