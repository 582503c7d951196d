/* nvJitLink, by which packages link before they load: the driver's linker by other names. Its header is not in
 * every installation, so its codes stand here. */
#include "driver.h"

enum result { SUCCESS = 0, INVALID_INPUT = 3, INTERNAL = 6, FINALIZE = 9, NULL_INPUT = 10, NEEDS_LTO = 18 };
enum { INPUT_LTO_IR = 3 };
struct jit_link {
    CUlinkState state;
    void *image;
    size_t size;
};

enum result nvJitLinkVersion(unsigned *major, unsigned *minor)
{
    *major = CUDA_VERSION / 1000;
    *minor = CUDA_VERSION % 1000 / 10;
    return SUCCESS;
}

enum result nvJitLinkCreate(struct jit_link **link, uint32_t count, const char **options)
{
    static const char registers[] = "-maxrregcount=";
    *link = calloc(1, sizeof **link);
    if (*link == NULL || ((*link)->state = calloc(1, sizeof *(*link)->state)) == NULL)
        return INTERNAL;
    for (uint32_t i = 0; i < count; i++) /* the others are of a compiler that there is not */
        if (strncmp(options[i], registers, sizeof registers - 1) == 0)
            (*link)->state->registers = strtoul(options[i] + sizeof registers - 1, NULL, 10);
    return SUCCESS;
}

enum result nvJitLinkDestroy(struct jit_link **link)
{
    if (link == NULL || *link == NULL)
        return INVALID_INPUT;
    free_link((*link)->state);
    free(*link);
    *link = NULL;
    return SUCCESS;
}

/* Intermediate code is NVIDIA's own: only PTX, or fatbins with PTX, can be linked. */
enum result nvJitLinkAddData(struct jit_link *link, int type, const void *data, size_t size, const char *name)
{
    (void)name;
    if (data == NULL)
        return NULL_INPUT;
    if (type == INPUT_LTO_IR) {
        simwarp_missing("nvJitLinkAddData of LTO-IR");
        return NEEDS_LTO;
    }
    return add_image(link->state, data, size) == cudaSuccess ? SUCCESS : INTERNAL;
}

enum result nvJitLinkAddFile(struct jit_link *link, int type, const char *path)
{
    (void)type;
    return add_file(link->state, path) == cudaSuccess ? SUCCESS : INVALID_INPUT;
}

enum result nvJitLinkComplete(struct jit_link *link)
{
    return link_images(link->state, &link->image, &link->size) == cudaSuccess ? SUCCESS : FINALIZE;
}

enum result nvJitLinkGetLinkedCubinSize(struct jit_link *link, size_t *size)
{
    *size = link->size;
    return SUCCESS;
}

enum result nvJitLinkGetLinkedCubin(struct jit_link *link, void *cubin)
{
    memcpy(cubin, link->image, link->size);
    return SUCCESS;
}

enum result nvJitLinkGetLinkedPtxSize(struct jit_link *link, size_t *size)
{
    return nvJitLinkGetLinkedCubinSize(link, size);
}

enum result nvJitLinkGetLinkedPtx(struct jit_link *link, char *ptx)
{
    return nvJitLinkGetLinkedCubin(link, ptx);
}

/* Logs are empty: what cannot be linked is in the report. */
static enum result empty_size(struct jit_link *link, size_t *size)
{
    (void)link;
    *size = 1;
    return SUCCESS;
}

static enum result empty(struct jit_link *link, char *log)
{
    (void)link;
    *log = '\0';
    return SUCCESS;
}

enum result nvJitLinkGetErrorLogSize(struct jit_link *link, size_t *size)
{
    return empty_size(link, size);
}

enum result nvJitLinkGetErrorLog(struct jit_link *link, char *log)
{
    return empty(link, log);
}

enum result nvJitLinkGetInfoLogSize(struct jit_link *link, size_t *size)
{
    return empty_size(link, size);
}

enum result nvJitLinkGetInfoLog(struct jit_link *link, char *log)
{
    return empty(link, log);
}
