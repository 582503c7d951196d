/* The driver API: what its source files share. Each entry point is a thin one over the runtime's code. */
#ifndef SIMWARP_DRIVER_H
#define SIMWARP_DRIVER_H

#include "simwarp.h"

#include <cuda.h>

/* driver.c: the begin and the end of every entry point. In between, the runtime's functions report no errors
 * and remember none. What frees a thing needs no current context: the thing has its own. */
CUresult enter(const char *function, bool needs_context);
CUresult leave(cudaError_t error);
#define ENTRY_OF(needs, call)                                                                                \
    do {                                                                                                     \
        CUresult refused = enter(__func__, needs);                                                           \
        return refused != CUDA_SUCCESS ? refused : leave(call);                                              \
    } while (0)
#define IN_CONTEXT(call) ENTRY_OF(true, call)
#define ANYWHERE(call) ENTRY_OF(false, call)

/* driver_contexts.c */
CUcontext current_context(void);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);

/* driver_modules.c: images behind one another, each with its size in front, and what is linked of them. */
struct CUlinkState_st {
    char *images;
    size_t size;
    uint64_t registers; /* the most of a kernel that says nothing itself; 0 for no bound */
    char *linked;
};
cudaError_t add_image(CUlinkState state, const void *data, size_t size);
cudaError_t add_file(CUlinkState state, const char *path);
cudaError_t link_images(CUlinkState state, void **image, size_t *size);
void free_link(CUlinkState state);

#endif
