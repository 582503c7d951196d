/* What the program registers before main: fatbins, kernels, variables; and access to variables by their
 * symbols. */
#include "simwarp.h"

#include <pthread.h>

struct variable {
    const void *host; /* the address by which the program names it */
    const char *name;
    struct module *module;
    void **managed; /* where the program keeps the address of a managed variable, or NULL */
    size_t size;
    uint64_t address; /* 0 until it is first used */
    struct variable *next;
};

static struct function *functions;
static struct variable *variables;

static void *zeroed(size_t size)
{
    void *made = calloc(1, size);
    if (made == NULL)
        abort();
    return made;
}

struct wrapper {
    int magic, version;
    const void *data;
    const void **linked; /* version 2: what -rdc=true left to be linked */
};

void **__cudaRegisterFatBinary(void *given)
{
    struct module *module = zeroed(sizeof *module);
    struct wrapper *wrapper = given;
    module->fatbins = wrapper->version == 2 ? wrapper->linked : zeroed(2 * sizeof *module->fatbins);
    if (wrapper->version != 2)
        module->fatbins[0] = wrapper->data;
    return (void **)module;
}

void __cudaRegisterFatBinaryEnd(void **module)
{
    (void)module;
}

void __cudaUnregisterFatBinary(void **module)
{
    (void)module; /* the program ends */
}

void __cudaRegisterFunction(void **module, const char *stub, char *device_stub, const char *name, int limit,
                            uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp)
{
    (void)device_stub, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp;
    struct function *function = zeroed(sizeof *function);
    *function =
        (struct function){.stub = stub, .name = name, .module = (struct module *)module, .next = functions};
    functions = function;
}

static void add_variable(void **module, const void *host, const char *name, size_t size, void **managed)
{
    struct variable *variable = zeroed(sizeof *variable);
    *variable = (struct variable){host, name, (struct module *)module, managed, size, 0, variables};
    variables = variable;
}

void __cudaRegisterVar(void **module, char *host, char *device, const char *name, int external, size_t size,
                       int constant, int global)
{
    (void)device, (void)external, (void)constant, (void)global;
    add_variable(module, host, name, size, NULL);
}

void __cudaRegisterManagedVar(void **module, void **host, char *device, const char *name, int external,
                              size_t size, int constant, int global)
{
    (void)device, (void)external, (void)constant, (void)global;
    add_variable(module, host, name, size, host);
}

size_t size_of_fatbin(const void *fatbin)
{
    uint16_t head;
    uint64_t size;
    memcpy(&head, (const char *)fatbin + 6, sizeof head);
    memcpy(&size, (const char *)fatbin + 8, sizeof size);
    return head + size;
}

/* Sends a module to the server, once; then managed variables get their pages. */
cudaError_t load(struct module *module)
{
    if (module->number != 0)
        return cudaSuccess;
    size_t size = 0;
    for (const void **one = module->fatbins; *one != NULL; one++)
        size += size_of_fatbin(*one);
    char *data = zeroed(size), *at = data;
    for (const void **one = module->fatbins; *one != NULL; at += size_of_fatbin(*one), one++)
        memcpy(at, *one, size_of_fatbin(*one));
    struct call call = {.request = ASK_LOAD, .sent = block_of(data, size)};
    cudaError_t error = ask(&call);
    free(data);
    module->number = call.values[0];
    for (struct variable *one = variables; one != NULL && error == cudaSuccess; one = one->next)
        if (one->module == module && one->managed != NULL)
            error = share_variable(module->number, one->name, one->size, one->managed);
    return error;
}

/* Called before the program's first access to a managed variable. */
char __cudaInitModule(void **module)
{
    return load((struct module *)module) == cudaSuccess;
}

cudaError_t function_of(const void *stub, struct function **found)
{
    struct function *one = functions;
    while (one != NULL && one->stub != (const char *)stub && one != stub)
        one = one->next;
    if (one == NULL)
        return cudaErrorInvalidDeviceFunction;
    *found = one;
    if (one->sizes != NULL)
        return cudaSuccess;
    cudaError_t error = load(one->module);
    if (error != cudaSuccess)
        return error;
    struct call call = {.request = ASK_FUNCTION,
                        .arguments = {one->module->number},
                        .sent = block_of(one->name, strlen(one->name))};
    error = ask(&call);
    if (error != cudaSuccess)
        return error;
    one->number = call.values[0];
    one->parameters = (int)(call.received.width / sizeof *one->sizes / 2);
    one->sizes = call.received.data != NULL ? call.received.data : zeroed(1);
    return cudaSuccess;
}

/* Its handle is the stub by which the runtime's functions find it. */
cudaError_t named_function(struct module *module, const char *name, struct function **found)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct function *made = zeroed(sizeof *made);
    *made = (struct function){.stub = (char *)made, .name = strdup(name), .module = module};
    pthread_mutex_lock(&lock);
    made->next = functions;
    functions = made;
    pthread_mutex_unlock(&lock);
    return function_of(made, found);
}

static cudaError_t variable_of(const void *symbol, struct variable **found)
{
    struct variable *one = variables;
    while (one != NULL && one->host != symbol && !(one->managed != NULL && *one->managed == symbol))
        one = one->next;
    if (one == NULL)
        return cudaErrorInvalidSymbol;
    *found = one;
    cudaError_t error = load(one->module);
    if (error != cudaSuccess || one->address != 0)
        return error;
    struct call call = {.request = ASK_VARIABLE,
                        .arguments = {one->module->number},
                        .sent = block_of(one->name, strlen(one->name))};
    error = ask(&call);
    one->address = call.values[0];
    return error;
}

cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol)
{
    struct variable *variable;
    cudaError_t error = variable_of(symbol, &variable);
    if (error == cudaSuccess)
        *pointer = (void *)variable->address;
    FINISH(error);
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
    struct variable *variable;
    cudaError_t error = variable_of(symbol, &variable);
    if (error == cudaSuccess)
        *size = variable->size;
    FINISH(error);
}

static cudaError_t copy_symbol(const void *symbol, void *memory, size_t size, size_t offset,
                               enum cudaMemcpyKind kind, bool to_symbol, cudaStream_t stream)
{
    struct variable *variable;
    cudaError_t error = variable_of(symbol, &variable);
    if (error != cudaSuccess)
        return error;
    if (offset > variable->size || size > variable->size - offset)
        return cudaErrorInvalidValue;
    void *place = (char *)variable->address + offset;
    return to_symbol ? copy(place, size, memory, size, size, 1, kind, stream)
                     : copy(memory, size, place, size, size, 1, kind, stream);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset,
                               enum cudaMemcpyKind kind)
{
    FINISH(copy_symbol(symbol, (void *)from, size, offset, kind, true, NULL));
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FINISH(copy_symbol(symbol, (void *)from, size, offset, kind, true, stream));
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset,
                                 enum cudaMemcpyKind kind)
{
    FINISH(copy_symbol(symbol, to, size, offset, kind, false, NULL));
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t size, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FINISH(copy_symbol(symbol, to, size, offset, kind, false, stream));
}
