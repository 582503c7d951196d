/* Graphs: what graphs.c and executables.c share. */
#ifndef SIMWARP_GRAPHS_H
#define SIMWARP_GRAPHS_H

#include "simwarp.h"

/* A node; those of an executable graph are copies, in an order that keeps every dependency. */
struct CUgraphNode_st {
    struct work work;
    size_t number; /* in its graph */
    bool done;     /* while nodes are being ordered */
};

struct edge {
    cudaGraphNode_t from, to;
};

struct CUgraph_st {
    cudaGraphNode_t *nodes;
    size_t count;
    struct edge *edges;
    size_t edge_count;
};

struct CUgraphExec_st {
    cudaGraphNode_t *nodes;
    size_t count;
};

/* graphs.c: adds a node to a graph. */
cudaGraphNode_t add_to_graph(cudaGraph_t graph, struct work work);
cudaError_t node_launch(const struct cudaKernelNodeParams *given, struct work *work);
struct work node_copy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind);
/* executables.c */
struct work copied(const struct work *work);
cudaError_t instantiate(cudaGraphExec_t *exec, cudaGraph_t graph);
cudaError_t run_executable(cudaGraphExec_t exec);

#endif
