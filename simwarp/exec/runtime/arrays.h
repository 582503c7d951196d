/* Arrays: images whose texels lie row by row in memory of the device that only this runtime knows. */
#ifndef SIMWARP_ARRAYS_H
#define SIMWARP_ARRAYS_H

#include "simwarp.h"

/* What a cudaArray_t and a CUarray point to. */
struct cudaArray {
    struct cudaChannelFormatDesc format;
    struct cudaExtent extent; /* as it was asked for: 0 for a dimension that it does not have */
    unsigned flags;
    char *data;
    size_t unit, pitch, rows, slices; /* bytes of a texel and of a row; at least 1 row and slice */
};

/* One side of a copy of boxes: where it begins, and how far rows and slices lie apart. */
struct side {
    char *data;
    size_t pitch, slice;
};

cudaError_t make_array(cudaArray_t *made, struct cudaChannelFormatDesc format, struct cudaExtent extent,
                       unsigned flags);
cudaError_t free_array(cudaArray_t array);
size_t texel_size(struct cudaChannelFormatDesc format);
/* The side of an array from byte x of row y of slice z on; data is NULL where a box of this size leaves it. */
struct side array_side(const struct cudaArray *array, size_t x, size_t y, size_t z, struct cudaExtent box);
/* Copies a box whose width is in bytes. */
cudaError_t copy_sides(struct side to, struct side from, struct cudaExtent box, enum cudaMemcpyKind kind,
                       cudaStream_t stream);

/* ---- textures.c ---- */

cudaError_t make_texture(cudaTextureObject_t *made, const struct cudaResourceDesc *resource,
                         const struct cudaTextureDesc *texture);
cudaError_t make_surface(cudaSurfaceObject_t *made, const struct cudaResourceDesc *resource);
cudaError_t forget_object(unsigned long long handle);
/* What a handle was made of; NULL if it is not known. */
const struct cudaResourceDesc *resource_of(unsigned long long handle);

#endif
