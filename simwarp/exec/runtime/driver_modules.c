/* Modules, libraries, their functions and variables, and the linker. */
#include "driver.h"

#include <errno.h>

/* ---- loading ---- */

enum { WRAPPER = 0x466243b1, FATBIN = (int)0xba55ed50, ELF = 0x464c457f, ELF_HEADER = 64 };

/* The bytes of an image: a fatbin, also in its wrapper, or text that ends with a zero. */
static struct rows image_of(const void *image)
{
    int magic;
    memcpy(&magic, image, sizeof magic);
    if (magic == WRAPPER) {
        memcpy(&image, (const char *)image + 8, sizeof image);
        magic = FATBIN;
    }
    size_t size = magic == FATBIN ? size_of_fatbin(image) : magic == ELF ? ELF_HEADER : strlen(image);
    return block_of(image, size);
}

static cudaError_t load_image(struct module **module, const void *image)
{
    if (image == NULL || module == NULL)
        return cudaErrorInvalidValue;
    struct call call = {.request = ASK_LOAD, .sent = image_of(image)};
    cudaError_t error = ask(&call);
    if (error != cudaSuccess)
        return error;
    *module = calloc(1, sizeof **module);
    if (*module == NULL)
        return cudaErrorMemoryAllocation;
    (*module)->number = call.values[0];
    return cudaSuccess;
}

/* A file's bytes and a zero; to be freed. */
static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        *size = (size_t)ftell(file);
        rewind(file);
        text = calloc(1, *size + 1);
        if (text != NULL && fread(text, 1, *size, file) != *size) {
            free(text);
            text = NULL;
        }
    }
    if (file != NULL)
        fclose(file);
    return text;
}

static cudaError_t load_file(struct module **module, const char *path)
{
    size_t size;
    char *text = read_file(path, &size);
    if (text == NULL)
        return (cudaError_t)CUDA_ERROR_FILE_NOT_FOUND;
    cudaError_t error = load_image(module, text);
    free(text);
    return error;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    IN_CONTEXT(load_file((struct module **)module, path));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    IN_CONTEXT(load_image((struct module **)module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                            void **values)
{
    (void)count, (void)options, (void)values; /* of a compiler that there is not */
    IN_CONTEXT(load_image((struct module **)module, image));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    IN_CONTEXT(load_image((struct module **)module, image));
}

/* The server keeps a module: its kernels may stand in the report. */
CUresult cuModuleUnload(CUmodule module)
{
    ANYWHERE(module != NULL ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    *mode = CU_MODULE_EAGER_LOADING;
    ANYWHERE(cudaSuccess);
}

/* ---- functions and variables ---- */

static cudaError_t function_in(struct module *module, const char *name, struct function **found)
{
    return module == NULL || name == NULL ? cudaErrorInvalidResourceHandle
                                          : named_function(module, name, found);
}

static cudaError_t variable_in(struct module *module, const char *name, CUdeviceptr *address, size_t *size)
{
    if (module == NULL || name == NULL)
        return cudaErrorInvalidResourceHandle;
    struct call call = {
        .request = ASK_VARIABLE, .arguments = {module->number}, .sent = block_of(name, strlen(name))};
    cudaError_t error = ask(&call);
    if (address != NULL)
        *address = call.values[0];
    if (size != NULL)
        *size = call.values[1];
    return error;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    IN_CONTEXT(function_in((struct module *)module, name, (struct function **)function));
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
    IN_CONTEXT(variable_in((struct module *)module, name, address, size));
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    *module = (CUmodule)((struct function *)function)->module;
    IN_CONTEXT(cudaSuccess);
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    IN_CONTEXT(cudaFuncGetName(name, function));
}

static cudaError_t parameter(const struct function *function, size_t index, size_t *offset, size_t *size)
{
    if (index >= (size_t)function->parameters)
        return cudaErrorInvalidValue;
    *offset = function->sizes[(size_t)function->parameters + index];
    if (size != NULL)
        *size = function->sizes[index];
    return cudaSuccess;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    IN_CONTEXT(parameter((struct function *)function, index, offset, size));
}

/* ---- libraries: modules that need no context ---- */

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options, void **values,
                           unsigned count, CUlibraryOption *more, void **more_values, unsigned more_count)
{
    (void)options, (void)values, (void)count, (void)more, (void)more_values, (void)more_count;
    ANYWHERE(load_image((struct module **)library, image));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values,
                               unsigned count, CUlibraryOption *more, void **more_values, unsigned more_count)
{
    (void)options, (void)values, (void)count, (void)more, (void)more_values, (void)more_count;
    ANYWHERE(load_file((struct module **)library, path));
}

CUresult cuLibraryUnload(CUlibrary library)
{
    ANYWHERE(library != NULL ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    *module = (CUmodule)library;
    ANYWHERE(cudaSuccess);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    ANYWHERE(function_in((struct module *)library, name, (struct function **)kernel));
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
    IN_CONTEXT(variable_in((struct module *)library, name, address, size));
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    *function = (CUfunction)kernel;
    IN_CONTEXT(cudaSuccess);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    ANYWHERE(cudaFuncGetName(name, kernel));
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    ANYWHERE(parameter((struct function *)kernel, index, offset, size));
}

/* ---- the linker ---- */

static cudaError_t create_link(unsigned count, const CUjit_option *options, void **values, CUlinkState *state)
{
    *state = calloc(1, sizeof **state);
    if (*state == NULL)
        return cudaErrorMemoryAllocation;
    for (unsigned i = 0; i < count; i++) /* the others are of a compiler that there is not */
        if (options[i] == CU_JIT_MAX_REGISTERS)
            (*state)->registers = (uint32_t)(uintptr_t)values[i];
    return cudaSuccess;
}

CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *state)
{
    IN_CONTEXT(create_link(count, options, values, state));
}

cudaError_t add_image(CUlinkState state, const void *data, size_t size)
{
    uint64_t length = size;
    char *grown = realloc(state->images, state->size + sizeof length + size);
    if (grown == NULL)
        return cudaErrorMemoryAllocation;
    memcpy(grown + state->size, &length, sizeof length);
    memcpy(grown + state->size + sizeof length, data, size);
    state->images = grown;
    state->size += sizeof length + size;
    return cudaSuccess;
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                       unsigned count, CUjit_option *options, void **values)
{
    (void)type, (void)name, (void)count, (void)options, (void)values;
    IN_CONTEXT(add_image(state, data, size));
}

cudaError_t add_file(CUlinkState state, const char *path)
{
    if (strstr(path, "cudadevrt") != NULL)
        return cudaSuccess; /* the server has what it runs of that library */
    size_t size;
    char *data = read_file(path, &size);
    if (data == NULL)
        return (cudaError_t)CUDA_ERROR_FILE_NOT_FOUND;
    cudaError_t error = add_image(state, data, size);
    free(data);
    return error;
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned count,
                       CUjit_option *options, void **values)
{
    (void)type, (void)count, (void)options, (void)values;
    IN_CONTEXT(add_file(state, path));
}

/* What is linked is PTX again, with a zero at its end; the modules' functions take it in. */
cudaError_t link_images(CUlinkState state, void **image, size_t *size)
{
    struct call call = {.request = ASK_LINK,
                        .arguments = {state->registers},
                        .sent = block_of(state->images, state->size)};
    cudaError_t error = ask(&call);
    free(state->linked);
    state->linked = call.received.data;
    *image = state->linked;
    *size = call.received.width;
    return error;
}

CUresult cuLinkComplete(CUlinkState state, void **image, size_t *size)
{
    size_t unwanted;
    IN_CONTEXT(link_images(state, image, size != NULL ? size : &unwanted));
}

void free_link(CUlinkState state)
{
    free(state->images);
    free(state->linked);
    free(state);
}

CUresult cuLinkDestroy(CUlinkState state)
{
    free_link(state);
    ANYWHERE(cudaSuccess);
}
