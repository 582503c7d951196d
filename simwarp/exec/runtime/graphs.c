/* Graphs: their nodes and dependencies. */
#include "graphs.h"

static void *grown(void *items, size_t count, size_t size)
{
    void *made = realloc(items, (count + 1) * size);
    if (made == NULL)
        abort();
    return made;
}

cudaGraphNode_t add_to_graph(cudaGraph_t graph, struct work work)
{
    cudaGraphNode_t node = calloc(1, sizeof *node);
    if (node == NULL)
        abort();
    *node = (struct CUgraphNode_st){.work = work, .number = graph->count};
    graph->nodes = grown(graph->nodes, graph->count, sizeof node);
    graph->nodes[graph->count++] = node;
    return node;
}

static void depend(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to)
{
    graph->edges = grown(graph->edges, graph->edge_count, sizeof *graph->edges);
    graph->edges[graph->edge_count++] = (struct edge){from, to};
}

static cudaError_t add_node(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                            size_t count, struct work work)
{
    cudaGraphNode_t node = add_to_graph(graph, work);
    for (size_t i = 0; i < count; i++)
        depend(graph, dependencies[i], node);
    *made = node;
    return cudaSuccess;
}

cudaError_t node_launch(const struct cudaKernelNodeParams *given, struct work *work)
{
    struct launch launch = {.shared = given->sharedMemBytes,
                            .grid = {given->gridDim.x, given->gridDim.y, given->gridDim.z},
                            .block = {given->blockDim.x, given->blockDim.y, given->blockDim.z}};
    return launch_work(given->func, launch, given->kernelParams, work);
}

static struct work fill_of(const struct cudaMemsetParams *given)
{
    size_t width = given->width * given->elementSize;
    struct rows to = {given->dst, given->height > 1 ? given->pitch : width, width, given->height};
    return (struct work){.kind = WORK_FILL, .fill = {to, given->value, given->elementSize}};
}

struct work node_copy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    return (struct work){.kind = WORK_COPY, .copy = {block_of(to, size), block_of(from, size), kind}};
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const struct cudaKernelNodeParams *given)
{
    struct work work;
    cudaError_t error = node_launch(given, &work);
    FINISH(error == cudaSuccess ? add_node(node, graph, dependencies, count, work) : error);
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *dependencies, size_t count, void *to,
                                     const void *from, size_t size, enum cudaMemcpyKind kind)
{
    FINISH(add_node(node, graph, dependencies, count, node_copy(to, from, size, kind)));
}

/* A box of pitched memory that is one slice. */
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const struct cudaMemcpy3DParms *box)
{
    if (box->srcArray != NULL || box->dstArray != NULL || box->extent.depth > 1)
        FINISH(cudaErrorNotSupported);
    const struct cudaPitchedPtr *to = &box->dstPtr, *from = &box->srcPtr;
    char *to_data = (char *)to->ptr + box->dstPos.y * to->pitch + box->dstPos.x;
    char *from_data = (char *)from->ptr + box->srcPos.y * from->pitch + box->srcPos.x;
    struct copy copy = {{to_data, to->pitch, box->extent.width, box->extent.height},
                        {from_data, from->pitch, box->extent.width, box->extent.height},
                        box->kind};
    FINISH(add_node(node, graph, dependencies, count, (struct work){.kind = WORK_COPY, .copy = copy}));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const struct cudaMemsetParams *given)
{
    FINISH(add_node(node, graph, dependencies, count, fill_of(given)));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                 const cudaGraphNode_t *dependencies, size_t count,
                                 const struct cudaHostNodeParams *given)
{
    struct work work = {.kind = WORK_HOST, .host = given->fn, .host_data = given->userData};
    FINISH(add_node(node, graph, dependencies, count, work));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                  const cudaGraphNode_t *dependencies, size_t count)
{
    FINISH(add_node(node, graph, dependencies, count, (struct work){.kind = WORK_NOTHING}));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                       const cudaGraphNode_t *dependencies, size_t count, cudaGraph_t child)
{
    FINISH(add_node(node, graph, dependencies, count, (struct work){.kind = WORK_GRAPH, .graph = child}));
}

/* Memory of a graph has its address from the start. A node of the graph or the program frees it; the next launch
   allocates it again. */
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *dependencies, size_t count,
                                     struct cudaMemAllocNodeParams *given)
{
    cudaError_t error = cudaMalloc(&given->dptr, given->bytesize);
    if (error != cudaSuccess)
        return error;
    struct work work = {.kind = WORK_ALLOCATE, .fill = {.to = block_of(given->dptr, given->bytesize)}};
    FINISH(add_node(node, graph, dependencies, count, work));
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                    const cudaGraphNode_t *dependencies, size_t count, void *pointer)
{
    struct work work = {.kind = WORK_FREE, .fill = {.to = block_of(pointer, 0)}};
    FINISH(add_node(node, graph, dependencies, count, work));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *data, size_t count)
{
    (void)data;
    for (size_t i = 0; i < count; i++)
        depend(graph, from[i], to[i]);
    FINISH(cudaSuccess);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    for (size_t i = 0; nodes != NULL && i < *count && i < graph->count; i++)
        nodes[i] = graph->nodes[i];
    if (nodes == NULL)
        *count = graph->count;
    FINISH(cudaSuccess);
}

static const enum cudaGraphNodeType node_types[] = {
    [WORK_LAUNCH] = cudaGraphNodeTypeKernel, [WORK_COPY] = cudaGraphNodeTypeMemcpy,
    [WORK_FILL] = cudaGraphNodeTypeMemset,   [WORK_HOST] = cudaGraphNodeTypeHost,
    [WORK_GRAPH] = cudaGraphNodeTypeGraph,   [WORK_ALLOCATE] = cudaGraphNodeTypeMemAlloc,
    [WORK_FREE] = cudaGraphNodeTypeMemFree,  [WORK_NOTHING] = cudaGraphNodeTypeEmpty,
};

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    if (node == NULL || type == NULL)
        FINISH(cudaErrorInvalidValue);
    *type = node_types[node->work.kind];
    FINISH(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    (void)graph; /* child nodes may still refer to it; the process is short */
    FINISH(cudaSuccess);
}

/* ---- clones ---- */

static cudaError_t clone_graph(cudaGraph_t *clone, cudaGraph_t original)
{
    cudaError_t error = cudaGraphCreate(clone, 0);
    if (error != cudaSuccess)
        return error;
    for (size_t i = 0; i < original->count; i++)
        add_to_graph(*clone, copied(&original->nodes[i]->work));
    for (size_t i = 0; i < original->edge_count; i++)
        depend(*clone, (*clone)->nodes[original->edges[i].from->number],
               (*clone)->nodes[original->edges[i].to->number]);
    return cudaSuccess;
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t original)
{
    FINISH(clone_graph(clone, original));
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *found, cudaGraphNode_t original, cudaGraph_t clone)
{
    bool known = original->number < clone->count;
    *found = known ? clone->nodes[original->number] : NULL;
    FINISH(known ? cudaSuccess : cudaErrorInvalidValue);
}

/* Memory of graphs comes from the same place as all other. */
cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *value)
{
    (void)device, (void)attribute;
    *(uint64_t *)value = 0;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *value)
{
    (void)device, (void)attribute, (void)value;
    FINISH(cudaSuccess);
}

cudaError_t cudaDeviceGraphMemTrim(int device)
{
    (void)device;
    FINISH(cudaSuccess);
}
