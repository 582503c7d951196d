/* Error codes: names, texts, the last error of a thread, and errors that stay until the device is reset. */
#include "simwarp.h"

static _Thread_local cudaError_t last;
static _Thread_local bool used;
static cudaError_t lasting; /* of the device: every later call returns it */

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text) {name, #name, text},
#include "errors.inc"
#undef ERROR
};

static bool lasts(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
    }
}

static bool is_news(cudaError_t error)
{
    return error != cudaSuccess && error != cudaErrorNotReady && error != cudaErrorPeerAccessAlreadyEnabled &&
           error != cudaErrorNotSupported;
}

cudaError_t settle(cudaError_t error, const char *function, const char *name)
{
    if (lasting != cudaSuccess)
        return lasting;
    if (lasts(error)) {
        lasting = error; /* of a launch: it has been queued, later calls return its error */
        return cudaSuccess;
    }
    if (is_news(error)) {
        char text[160];
        int size = snprintf(text, sizeof text, "%s %s", function, name);
        struct call call = {.request = ASK_FAILED, .sent = block_of(text, (size_t)size)};
        ask(&call);
    }
    return error;
}

/* Within a function of the driver its end settles the error. */
cudaError_t finish(cudaError_t error, const char *function)
{
    if (in_driver())
        return error;
    used = true;
    have_context();
    error = settle(error, function, cudaGetErrorName(error));
    if (error != cudaSuccess)
        last = error;
    return error;
}

bool runtime_is_used(void)
{
    return used;
}

cudaError_t device_error(void)
{
    return lasting;
}

void forget_errors(void)
{
    last = lasting = cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = lasting != cudaSuccess ? lasting : last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return lasting != cudaSuccess ? lasting : last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unrecognized error code";
}

int simwarp_missing(const char *name)
{
    struct call call = {.request = ASK_MISSING, .sent = block_of(name, strlen(name))};
    ask(&call);
    return (int)finish(cudaErrorNotSupported, name);
}
