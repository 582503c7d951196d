// One step of a bitonic sort (Batcher 1968): a launch compares each element with the one at distance `j`.

extern "C" __global__ void bitonic(unsigned *x, unsigned j, unsigned k)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ j;
    if (other > i) {
        unsigned a = x[i], b = x[other];
        if ((a > b) == ((i & k) == 0)) {
            x[i] = b;
            x[other] = a;
        }
    }
}
