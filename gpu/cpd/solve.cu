// The inverse of V, the product of the other modes' Gram matrices, by Cholesky's factorisation V = L * L^T.

#include "cpd/hadamard.cuh"

enum : unsigned { most_threads = 1024 };

// inverse (rank, rank) = V^-1, in one block. A pivot that is not above `tolerance` times its element of V's diagonal
// says that V is numerically not positive definite: *singular becomes 1, and `inverse` is left to eigen.cu.
//
// Step k turns column k of the lower triangle from what is left of V into L, and at once into L^-1: applied to the
// identity, elimination gives that. So below row k, columns up to k hold L^-1 so far, the others what is left of
// V, and each element loses the product of two numbers of one `line`. Shared memory holds two lines and, where the
// launch gave enough, the matrix; else it is in `scratch`.
extern "C" __global__ void __launch_bounds__(most_threads)
invert(const double* __restrict__ grams, unsigned order, unsigned mode, unsigned rank, double tolerance,
       unsigned in_shared, double* scratch, double* __restrict__ inverse, int* __restrict__ singular)
{
    extern __shared__ double memory[];
    double *const line = memory, *const diagonal = memory + rank;
    double* const matrix = in_shared ? memory + 2 * rank : scratch;
    const unsigned threads = blockDim.x, warps = threads / 32;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (unsigned e = threadIdx.x; e < rank * rank; e += threads) {
        matrix[e] = product_of_grams(grams, order, mode, rank, e);
        if (e / rank == e % rank) diagonal[e / rank] = matrix[e];
    }
    __syncthreads();
    for (unsigned k = 0; k < rank; ++k) {
        const double pivot = matrix[k * rank + k];
        if (!(pivot > tolerance * diagonal[k])) {
            if (threadIdx.x == 0) *singular = 1;
            return;
        }
        const double root = sqrt(pivot);
        for (unsigned j = threadIdx.x; j < rank; j += threads)
            line[j] = (j < k ? matrix[k * rank + j] : j == k ? 1 : matrix[j * rank + k]) / root;
        __syncthreads();
        for (unsigned i = k + warp; i < rank; i += warps)
            for (unsigned j = lane; j <= i; j += 32) {
                double& element = matrix[i * rank + j];
                element = i == k ? line[j] : fma(-line[i], line[j], j == k ? 0 : element);
            }
        __syncthreads();
    }
    // V^-1 = L^-T * L^-1
    for (unsigned i = warp; i < rank; i += warps)
        for (unsigned j = lane; j <= i; j += 32) {
            double sum = 0;
            for (unsigned k = i; k < rank; ++k) sum = fma(matrix[k * rank + i], matrix[k * rank + j], sum);
            inverse[i * rank + j] = inverse[j * rank + i] = sum;
        }
    if (threadIdx.x == 0) *singular = 0;
}
