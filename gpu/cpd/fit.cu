// How well the model fits: 1 - |X - model| / |X|, without forming the model (MM-CSF, algorithm 1), and what is left
// of the terms of which that is the sum.

#include "cpd/hadamard.cuh"

enum : unsigned { threads = 256 };

// Sums over the block, in a fixed order.
__device__ inline double sum_of_block(double mine)
{
    __shared__ double parts[threads];
    parts[threadIdx.x] = mine;
    for (unsigned half = threads / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    __syncthreads();
    const double sum = parts[0];
    __syncthreads();
    return sum;
}

// |X - model|^2 = |X|^2 + |model|^2 - 2 <X, model>, where |model|^2 is the sum of all Gram matrices' product, weighted,
// and <X, model> that of `products`, one number for each column. Rounding may leave it a little below 0.
//
// answer[0] = the fit, answer[1] = |X - model|^2 / (|X| + the sum of the weights)^2. Columns have norm 1, so that no sum
// of magnitudes behind the three terms is above the denominator: its roundings are the error of the numerator.
extern "C" __global__ void __launch_bounds__(threads)
fit(const double* __restrict__ grams, const double* __restrict__ weights, const double* __restrict__ products,
    unsigned order, unsigned rank, double square_of_tensor, double* __restrict__ answer)
{
    double square = 0, product = 0, weight = 0;
    for (unsigned e = threadIdx.x; e < rank * rank; e += threads)
        square = fma(weights[e / rank] * weights[e % rank], product_of_grams(grams, order, order, rank, e), square);
    for (unsigned r = threadIdx.x; r < rank; r += threads) {
        product += products[r];
        weight += weights[r];
    }
    const double residual = sum_of_block(fma(-2.0, product, square)) + square_of_tensor;
    const double largest = sqrt(square_of_tensor) + sum_of_block(weight);
    if (threadIdx.x) return;
    answer[0] = 1 - sqrt(residual < 0 ? 0 : residual) / sqrt(square_of_tensor);
    answer[1] = residual / largest / largest;
}
