/* The driver: its start, its errors, and the addresses of its functions. */
#include "driver.h"

static _Thread_local const char *entered; /* the function of the driver that runs */
static bool initialised;

bool in_driver(void)
{
    return entered != NULL;
}

CUresult enter(const char *function, bool needs_context)
{
    entered = function;
    if (!initialised && !runtime_is_used())
        return leave((cudaError_t)CUDA_ERROR_NOT_INITIALIZED);
    if (needs_context && current_context() == NULL)
        return leave((cudaError_t)CUDA_ERROR_INVALID_CONTEXT);
    return CUDA_SUCCESS;
}

/* The runtime has some errors of its own; the other codes are the same. */
static CUresult driver_error(cudaError_t error)
{
    switch (error) {
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidDevicePointer: return CUDA_ERROR_INVALID_VALUE;
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidDeviceFunction: return CUDA_ERROR_NOT_FOUND;
    default: return (CUresult)error;
    }
}

CUresult leave(cudaError_t error)
{
    const char *function = entered, *name = NULL;
    CUresult result = driver_error(error);
    entered = NULL;
    cuGetErrorName(result, &name);
    return (CUresult)settle((cudaError_t)result, function, name);
}

CUresult cuInit(unsigned flags)
{
    initialised = true;
    ANYWHERE(flags != 0 ? cudaErrorInvalidValue : facts()->major > 0 ? cudaSuccess : cudaErrorNoDevice);
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* ---- errors ---- */

static const struct {
    CUresult error;
    const char *name;
} names[] = {
#define DRIVER_ERROR(name) {name, #name},
#include "driver_names.inc"
#undef DRIVER_ERROR
};

CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].error == error)
            *name = names[i].name;
    return *name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The runtime's text, which is the same, or the name of an error that the runtime lacks. */
CUresult cuGetErrorString(CUresult error, const char **text)
{
    CUresult known = cuGetErrorName(error, text);
    const char *words = cudaGetErrorString((cudaError_t)error);
    if (known == CUDA_SUCCESS && strcmp(words, "unrecognized error code") != 0)
        *text = words;
    return known;
}

/* ---- addresses of functions ---- */

/* Every function of the header, in its newest form. */
static const struct {
    const char *name;
    void *function;
} entries[] = {
#define ENTRY(name) {#name, (void *)name},
#include "driver_names.inc"
#undef ENTRY
};

static void *entry_point(const char *name, int version)
{
    if (strcmp(name, "cuCtxCreate") == 0 && version < 12050)
        return (void *)cuCtxCreate_v2; /* without the parameters that came later */
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (strcmp(entries[i].name, name) == 0)
            return entries[i].function;
    return NULL;
}

CUresult cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *result)
{
    (void)flags;
    *found = entry_point(name, version);
    if (result != NULL)
        *result = *found != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *found != NULL || result != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static cudaError_t find(const char *name, void **found, int version,
                        enum cudaDriverEntryPointQueryResult *result)
{
    *found = entry_point(name, version);
    struct call call = {.request = ASK_MISSING, .sent = block_of(name, strlen(name))};
    if (*found == NULL)
        ask(&call);
    if (result != NULL)
        *result = *found != NULL ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *found != NULL || result != NULL ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **found, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result)
{
    (void)flags;
    FINISH(find(name, found, CUDA_VERSION, result));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    (void)flags;
    FINISH(find(name, found, (int)version, result));
}

#undef cuGetProcAddress
/* The form of CUDA 11. */
CUresult cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(name, found, version, flags, NULL);
}
