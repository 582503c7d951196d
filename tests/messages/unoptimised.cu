// Compiled with -G: the optimiser removes the variable, and with it the bug.
__global__ void uninitialised_register(int* y, int n) {
    int v;
    if (threadIdx.x < n) v = 7;
    y[threadIdx.x] = v;
}
