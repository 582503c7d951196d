/* Work, which a stream does at once, or which a graph records while its stream is captured. */
#include "graphs.h"

static cudaError_t run_graph(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    cudaError_t error = instantiate(&exec, graph);
    if (error == cudaSuccess)
        error = run_executable(exec);
    return error;
}

cudaError_t perform(const struct work *work)
{
    struct call call = {.request = ASK_LAUNCH};
    if (device_error() != cudaSuccess)
        return device_error(); /* after a fault nothing more is done */
    switch (work->kind) {
    case WORK_LAUNCH: call.sent = block_of(work->launch, work->launch_size); return ask(&call);
    case WORK_COPY: return copy_rows(&work->copy);
    case WORK_FILL: return fill_rows(&work->fill);
    case WORK_HOST: work->host(work->host_data); return cudaSuccess;
    case WORK_ALLOCATE: return allocate_again(work->fill.to.data, work->fill.to.width);
    case WORK_FREE: return cudaFree(work->fill.to.data);
    case WORK_GRAPH: return run_graph(work->graph);
    default: return cudaSuccess;
    }
}

/* Does the work, or adds it to the graph that records the stream. The order of issue keeps all dependencies.
 */
cudaError_t submit(cudaStream_t stream, struct work work)
{
    if (is_own(stream) && stream->capture != NULL) {
        add_to_graph(stream->capture, work);
        return cudaSuccess;
    }
    cudaError_t error = perform(&work);
    free(work.launch);
    return error;
}

/* ---- capture ---- */

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags)
{
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    FINISH(*graph == NULL ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (!is_own(stream))
        FINISH(cudaErrorStreamCaptureUnsupported);
    if (stream->capture != NULL)
        FINISH(cudaErrorIllegalState);
    stream->origin = true;
    return cudaGraphCreate(&stream->capture, 0);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = NULL;
    if (!is_own(stream) || stream->capture == NULL)
        FINISH(cudaErrorIllegalState);
    if (!stream->origin)
        FINISH(cudaErrorStreamCaptureUnmatched);
    *graph = stream->capture;
    stream->capture = NULL;
    stream->origin = false;
    leave_capture(*graph);
    FINISH(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    bool captured = is_own(stream) && stream->capture != NULL;
    *status = captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    FINISH(cudaSuccess);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    (void)mode;
    FINISH(cudaSuccess);
}
