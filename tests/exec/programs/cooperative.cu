// A cooperative launch with grid syncs, and one that is too large.
#include "check.h"
#include <cooperative_groups.h>

__global__ void rotate(int *x, int *y, int n, int rounds)
{
    auto grid = cooperative_groups::this_grid();
    for (int round = 0; round < rounds; round++) {
        for (int i = grid.thread_rank(); i < n; i += grid.size())
            y[(i + 1) % n] = x[i];
        grid.sync();
        int *kept = x;
        x = y, y = kept;
    }
}

int main()
{
    int n = 777, rounds = 6, host[777], *x, *y;
    for (int i = 0; i < n; i++)
        host[i] = i;
    CUDA(cudaMalloc(&x, sizeof host));
    CUDA(cudaMalloc(&y, sizeof host));
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    void *arguments[] = {&x, &y, &n, &rounds};
    CUDA(cudaLaunchCooperativeKernel((void *)rotate, dim3(4), dim3(64), arguments, 0, nullptr));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        CHECK(host[(i + rounds) % n] == i);
    cudaError_t error =
        cudaLaunchCooperativeKernel((void *)rotate, dim3(1 << 20), dim3(64), arguments, 0, nullptr);
    CHECK(error == cudaErrorCooperativeLaunchTooLarge);
    puts("cooperative: right");
    return 0;
}
