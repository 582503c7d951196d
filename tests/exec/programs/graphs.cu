// A graph from a capture of two streams, and one built by hand.
#include "check.h"

__global__ void add(int *x, int value)
{
    x[threadIdx.x] += value;
}

// The types of a graph's nodes, in their order, a digit for each.
static int types_of(cudaGraph_t graph)
{
    cudaGraphNode_t nodes[8];
    size_t count = 8;
    CUDA(cudaGraphGetNodes(graph, nullptr, &count));
    CHECK(count <= 8);
    CUDA(cudaGraphGetNodes(graph, nodes, &count));
    int types = 0;
    for (size_t i = 0; i < count; i++) {
        cudaGraphNodeType type;
        CUDA(cudaGraphNodeGetType(nodes[i], &type));
        types = 16 * types + type;
    }
    return types;
}

static int first_of(const int *x)
{
    int found;
    CUDA(cudaMemcpy(&found, x, sizeof found, cudaMemcpyDeviceToHost));
    return found;
}

int main()
{
    int *x;
    cudaStream_t stream, other;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CUDA(cudaMalloc(&x, 32 * sizeof *x));
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaStreamCreate(&other));
    CUDA(cudaEventCreate(&fork));
    CUDA(cudaEventCreate(&join));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(cudaMemsetAsync(x, 0, 32 * sizeof *x, stream));
    CUDA(cudaEventRecord(fork, stream));
    CUDA(cudaStreamWaitEvent(other, fork, 0));
    add<<<1, 32, 0, other>>>(x, 5);
    CUDA(cudaEventRecord(join, other));
    CUDA(cudaStreamWaitEvent(stream, join, 0));
    add<<<1, 32, 0, stream>>>(x, 7);
    CUDA(cudaStreamEndCapture(stream, &graph));
    size_t nodes;
    CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(nodes == 3);
    CHECK(types_of(graph) == 0x200); // a fill, two kernels
    CUDA(cudaGraphInstantiate(&executable, graph, 0));
    add<<<1, 32, 0, other>>>(x, 1); // the capture is over: this runs at once, on unwritten memory
    CUDA(cudaGraphLaunch(executable, stream));
    CUDA(cudaGraphLaunch(executable, stream));
    CHECK(first_of(x) == 12);

    cudaGraphNode_t reset, plus, last;
    int value = 3;
    void *arguments[] = {&x, &value};
    cudaKernelNodeParams kernel = {(void *)add, dim3(1), dim3(32), 0, arguments, nullptr};
    cudaMemsetParams fill = {};
    fill.dst = x, fill.elementSize = 4, fill.value = 40, fill.width = 32, fill.height = 1;
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphAddKernelNode(&plus, graph, nullptr, 0, &kernel));
    CUDA(cudaGraphAddMemsetNode(&reset, graph, nullptr, 0, &fill));
    CUDA(cudaGraphAddDependencies(graph, &reset, &plus, nullptr, 1));
    value = 30;
    CUDA(cudaGraphAddKernelNode(&last, graph, &plus, 1, &kernel));
    CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CUDA(cudaGraphLaunch(executable, nullptr));
    CHECK(first_of(x) == 73);
    value = 100;
    CUDA(cudaGraphExecKernelNodeSetParams(executable, last, &kernel));
    CUDA(cudaGraphLaunch(executable, nullptr));
    CHECK(first_of(x) == 143);
    CUDA(cudaGraphExecDestroy(executable));

    cudaGraph_t clone; // with its own nodes and arguments
    cudaGraphNode_t same;
    CUDA(cudaGraphClone(&clone, graph));
    CUDA(cudaGraphNodeFindInClone(&same, last, clone));
    CHECK(same != last);
    CUDA(cudaGraphGetNodes(clone, nullptr, &nodes));
    CHECK(nodes == 3);
    CUDA(cudaGraphInstantiate(&executable, clone, 0));
    CUDA(cudaGraphLaunch(executable, nullptr));
    CHECK(first_of(x) == 73);
    CUDA(cudaGraphExecDestroy(executable));

    int *scratch; // memory that a capture allocates and frees
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(cudaMallocAsync(&scratch, 32 * sizeof *scratch, stream));
    CUDA(cudaMemsetAsync(scratch, 0, 32 * sizeof *scratch, stream));
    add<<<1, 32, 0, stream>>>(scratch, 9);
    CUDA(cudaMemcpyAsync(x, scratch, 32 * sizeof *x, cudaMemcpyDeviceToDevice, stream));
    CUDA(cudaFreeAsync(scratch, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK(types_of(graph) == 0xa201b); // an allocation, a fill, a kernel, a copy, a free
    CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CUDA(cudaGraphLaunch(executable, stream));
    CHECK(cudaFree(scratch) == cudaErrorInvalidValue); // the graph has freed it, and allocates it again
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CUDA(cudaGraphLaunch(executable, stream));
    CHECK(first_of(x) == 9);
    puts("graphs: right");
    return 0;
}
