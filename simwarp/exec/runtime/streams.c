/* Streams and events. Work is done as soon as it is issued, which is a legal order of every program. */
#include "simwarp.h"

#include <pthread.h>
#include <time.h>

/* ---- streams ---- */

static cudaStream_t streams; /* a list of all */
static unsigned long long count = 3;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static cudaError_t create(cudaStream_t *stream, unsigned flags, int priority)
{
    *stream = malloc(sizeof **stream);
    if (*stream == NULL)
        return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&lock);
    **stream = (struct CUstream_st){.flags = flags, .priority = priority, .id = count++, .next = streams};
    streams = *stream;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t destroy(cudaStream_t stream)
{
    cudaError_t error = cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&lock);
    for (cudaStream_t *at = &streams; *at != NULL; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            free(stream);
            error = cudaSuccess;
            break;
        }
    pthread_mutex_unlock(&lock);
    return error;
}

/* Streams that joined a capture by an event leave it at its end. */
void leave_capture(cudaGraph_t graph)
{
    pthread_mutex_lock(&lock);
    for (cudaStream_t one = streams; one != NULL; one = one->next)
        if (one->capture == graph)
            one->capture = NULL;
    pthread_mutex_unlock(&lock);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    FINISH(create(stream, cudaStreamDefault, 0));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    FINISH(create(stream, flags, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    FINISH(create(stream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FINISH(destroy(stream));
}

static cudaError_t wait_for(cudaStream_t stream)
{
    return is_own(stream) && stream->capture != NULL ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FINISH(wait_for(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    FINISH(wait_for(stream));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags)
{
    *flags = is_own(stream) ? stream->flags : cudaStreamDefault;
    FINISH(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    *priority = is_own(stream) ? stream->priority : 0;
    FINISH(cudaSuccess);
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    *id = is_own(stream) ? stream->id : (unsigned long long)(uintptr_t)stream;
    FINISH(cudaSuccess);
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device)
{
    (void)stream;
    *device = 0;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    FINISH(cudaSuccess);
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID id, const cudaStreamAttrValue *value)
{
    (void)stream, (void)id, (void)value; /* attributes of streams are hints */
    FINISH(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    FINISH(submit(stream, (struct work){.kind = WORK_HOST, .host = function, .host_data = data}));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data,
                                  unsigned flags)
{
    (void)flags;
    function(stream, cudaSuccess, data);
    FINISH(cudaSuccess);
}

/* ---- events ---- */

struct CUevent_st {
    bool recorded, timed;
    struct timespec time; /* of the host: of the simulation, not of a GPU */
    cudaGraph_t capture;  /* the graph in whose capture it was recorded, or NULL */
};

static cudaError_t create_event(cudaEvent_t *event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    if (*event == NULL)
        return cudaErrorMemoryAllocation;
    (*event)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    FINISH(create_event(event, cudaEventDefault));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    FINISH(create_event(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event == NULL)
        FINISH(cudaErrorInvalidResourceHandle);
    free(event);
    FINISH(cudaSuccess);
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream)
{
    if (event == NULL)
        return cudaErrorInvalidResourceHandle;
    event->capture = is_own(stream) ? stream->capture : NULL;
    event->recorded = event->capture == NULL;
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FINISH(record(event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    (void)flags;
    FINISH(record(event, stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    if (event == NULL)
        FINISH(cudaErrorInvalidResourceHandle);
    if (event->capture != NULL && is_own(stream) && stream->capture == NULL)
        stream->capture = event->capture; /* the stream's work joins the capture */
    FINISH(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FINISH(event == NULL ? cudaErrorInvalidResourceHandle : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FINISH(event == NULL ? cudaErrorInvalidResourceHandle : cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (start == NULL || end == NULL || !start->recorded || !end->recorded || !start->timed || !end->timed)
        FINISH(cudaErrorInvalidResourceHandle);
    double seconds = (double)(end->time.tv_sec - start->time.tv_sec);
    *milliseconds = (float)(1e3 * seconds + 1e-6 * (double)(end->time.tv_nsec - start->time.tv_nsec));
    FINISH(cudaSuccess);
}
