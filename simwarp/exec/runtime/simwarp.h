/* The simulator's CUDA runtime: what its source files share.
 *
 * The runtime keeps what only the program's process knows (stub addresses, streams, the last error) and asks
 * the server, over a socket, for everything that concerns the device.
 */
#ifndef SIMWARP_H
#define SIMWARP_H

#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

/* ---- channel.c: requests ---- */

/* Rows of bytes in the memory of this process; a block of bytes is one row. */
struct rows {
    void *data;
    size_t pitch, width, height;
};

struct call {
    enum request request;
    uint64_t arguments[MOST_ARGUMENTS];
    struct rows sent, received;
    int descriptor; /* sent along with the request, if above 0 */
    uint64_t values[MOST_VALUES];
};

struct facts {
    int32_t major, minor, multiprocessors, clock_khz, shared_per_block, shared_per_multiprocessor,
        shared_reserved;
    int32_t threads_per_block, warps, blocks, registers_per_block, registers_per_multiprocessor,
        blocks_per_cluster;
    int32_t constants;
    uint64_t memory;
    char name[64];
};

cudaError_t ask(struct call *call);
const struct facts *facts(void);
static inline struct rows block_of(const void *data, size_t size)
{
    return (struct rows){(void *)data, size, size, 1};
}

/* ---- errors.c: the last error, and the errors that stay ---- */

cudaError_t finish(cudaError_t error, const char *function);
/* Reports an error by its name; the one that stays, if there is one. */
cudaError_t settle(cudaError_t error, const char *function, const char *name);
bool runtime_is_used(void); /* by this thread */
bool in_driver(void);       /* driver.c: whether a function of the driver runs */
void have_context(void);    /* driver_contexts.c: the primary one, if this thread has no other */
cudaError_t device_error(void); /* the one that stays, or success */
void forget_errors(void);
/* The answer of what this runtime lacks: the report names it. */
int simwarp_missing(const char *name);
/* The end of every function of the API: remembers the error, and gives one that an earlier launch left. */
#define FINISH(error) return finish((error), __func__)

/* ---- work.c: work, which a stream does or a graph records ---- */

enum work_kind { WORK_LAUNCH, WORK_COPY, WORK_FILL, WORK_HOST, WORK_GRAPH, WORK_ALLOCATE, WORK_FREE, WORK_NOTHING };

struct launch {
    uint64_t function, shared, stream;
    uint32_t grid[3], block[3], cluster[3], flags;
};
enum { LAUNCH_COOPERATIVE = 1, LAUNCH_DEPENDENT = 2 };

struct copy {
    struct rows to,
        from; /* of either side the data and the pitch count; width and height are those of `to` */
    enum cudaMemcpyKind kind;
};

struct fill {
    struct rows to;
    uint32_t value, bytes;
};

struct work {
    enum work_kind kind;
    struct launch *launch; /* followed by the arguments; owned */
    size_t launch_size;
    struct copy copy;
    struct fill fill; /* of an allocation, `to` */
    cudaHostFn_t host;
    void *host_data;
    cudaGraph_t graph;
};

cudaError_t submit(cudaStream_t stream, struct work work);
cudaError_t perform(const struct work *work);

/* ---- streams.c ---- */

struct CUstream_st {
    unsigned flags;
    int priority;
    unsigned long long id;
    cudaGraph_t capture; /* the graph that records this stream's work, or NULL */
    bool origin;         /* whether the capture began here */
    cudaStream_t next;
};

void leave_capture(cudaGraph_t graph);
static inline bool is_own(cudaStream_t stream)
{
    return (uintptr_t)stream > 2; /* 0 to 2 are the default streams */
}

/* ---- launch.c ---- */

/* A fatbin of the program, or several that are linked with one another. */
struct module {
    const void **fatbins; /* the last is followed by NULL */
    uint64_t number;      /* at the server, which counts from 1; 0 until it is loaded */
};

struct function {
    const char *stub, *name;
    struct module *module;
    uint64_t number;
    uint32_t *sizes; /* of the parameters, then their offsets; NULL until the function is first used */
    int parameters;
    struct function *next;
};

cudaError_t function_of(const void *stub, struct function **found);
cudaError_t launch_work(const void *stub, struct launch launch, void **arguments, struct work *work);

/* ---- memory.c ---- */

static inline bool on_device(const void *pointer)
{
    uintptr_t at = (uintptr_t)pointer;
    return at - DEVICE_WINDOW < DEVICE_WINDOW_SIZE || at - CONSTANT_WINDOW < CONSTANT_WINDOW_SIZE;
}

/* The kind of the memory at an address, 0 if the server does not know it; start and size of its allocation.
 */
enum kind kind_of(const void *pointer, void **start, size_t *size);
/* Memory of a graph: allocated at its address if it was freed since. */
cudaError_t allocate_again(void *pointer, size_t size);
cudaError_t share_pages(size_t size, enum kind kind, void **pointer);
cudaError_t share_variable(uint64_t module, const char *name, size_t size, void **pointer);

/* ---- copies.c ---- */

cudaError_t copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                 enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t copy_rows(const struct copy *copy);
cudaError_t fill_rows(const struct fill *fill);
cudaError_t fill_with(void *to, size_t pitch, uint32_t value, uint32_t bytes, size_t width, size_t height,
                      cudaStream_t stream);

/* ---- registration.c ---- */

cudaError_t load(struct module *module);
size_t size_of_fatbin(const void *fatbin);
/* A function of a module that the driver loaded. */
cudaError_t named_function(struct module *module, const char *name, struct function **found);

#endif
