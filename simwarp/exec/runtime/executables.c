/* Executable graphs: copies of the nodes, in an order that keeps every dependency. */
#include "graphs.h"

struct work copied(const struct work *work)
{
    struct work made = *work;
    if (work->launch != NULL) {
        made.launch = malloc(work->launch_size);
        if (made.launch == NULL)
            abort();
        memcpy(made.launch, work->launch, work->launch_size);
    }
    return made;
}

static bool is_ready(cudaGraph_t graph, cudaGraphNode_t node)
{
    for (size_t i = 0; i < graph->edge_count; i++)
        if (graph->edges[i].to == node && !graph->edges[i].from->done)
            return false;
    return true;
}

cudaError_t instantiate(cudaGraphExec_t *exec, cudaGraph_t graph)
{
    struct CUgraphExec_st *made = calloc(1, sizeof *made);
    if (made == NULL || (made->nodes = calloc(graph->count + 1, sizeof *made->nodes)) == NULL)
        return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->done = false;
    for (size_t before = (size_t)-1; made->count < graph->count && before != made->count;) {
        before = made->count;
        for (size_t i = 0; i < graph->count; i++) {
            cudaGraphNode_t node = graph->nodes[i];
            if (node->done || !is_ready(graph, node))
                continue;
            node->done = true;
            cudaGraphNode_t copy = made->nodes[made->count++] = calloc(1, sizeof *copy);
            if (copy == NULL)
                abort();
            *copy = (struct CUgraphNode_st){.work = copied(&node->work), .number = node->number};
        }
    }
    *exec = made;
    return made->count == graph->count ? cudaSuccess : cudaErrorInvalidValue; /* else it has a cycle */
}

cudaError_t run_executable(cudaGraphExec_t exec)
{
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < exec->count && error == cudaSuccess; i++)
        error = perform(&exec->nodes[i]->work);
    return error;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    FINISH(instantiate(exec, graph));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    FINISH(instantiate(exec, graph));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec, (void)stream;
    FINISH(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)stream;
    FINISH(exec == NULL ? cudaErrorInvalidValue : run_executable(exec));
}

static cudaError_t replace(cudaGraphExec_t exec, cudaGraphNode_t node, struct work work)
{
    for (size_t i = 0; i < exec->count; i++)
        if (exec->nodes[i]->number == node->number) {
            free(exec->nodes[i]->work.launch);
            exec->nodes[i]->work = work;
            return cudaSuccess;
        }
    return cudaErrorInvalidValue;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *given)
{
    struct work work;
    cudaError_t error = node_launch(given, &work);
    FINISH(error == cudaSuccess ? replace(exec, node, work) : error);
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *to,
                                               const void *from, size_t size, enum cudaMemcpyKind kind)
{
    FINISH(replace(exec, node, node_copy(to, from, size, kind)));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
    cudaGraphExec_t fresh;
    cudaError_t error = instantiate(&fresh, graph);
    bool alike = error == cudaSuccess && fresh->count == exec->count;
    for (size_t i = 0; alike && i < exec->count; i++)
        alike = fresh->nodes[i]->work.kind == exec->nodes[i]->work.kind;
    if (alike)
        *exec = *fresh;
    if (info != NULL)
        *info = (cudaGraphExecUpdateResultInfo){.result = alike ? cudaGraphExecUpdateSuccess
                                                                : cudaGraphExecUpdateErrorTopologyChanged};
    FINISH(alike ? cudaSuccess : cudaErrorGraphExecUpdateFailure);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        free(exec->nodes[i]->work.launch);
        free(exec->nodes[i]);
    }
    free(exec->nodes);
    free(exec);
    FINISH(cudaSuccess);
}
