// |X - model|^2 where little of |X|^2 + |model|^2 - 2 <X, model> is left: the same sum, in double-double arithmetic,
// from the nonzeros and the factors as they are stored. The fit's twin for good models (fit.cu).
//
//   -DELEMENT=float | double   of values and factors
//   -DORDER                    of the tensor
//
// `scale`, a power of two, brings |X| to about 1, so that no product of rounding errors is lost below 2^-1022.

#include "cpd/double_double.cuh"

typedef ELEMENT Element;
typedef unsigned long long Index;

enum : unsigned { threads = 256 };

struct Factors {
    const Element* of[ORDER];
};

// Sums over the block, in a fixed order.
__device__ inline DoubleDouble sum_of_block(DoubleDouble mine)
{
    __shared__ double high[threads], low[threads];
    __syncthreads();  // the sum before has been read
    high[threadIdx.x] = mine.high, low[threadIdx.x] = mine.low;
    for (unsigned half = threads / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        const unsigned other = threadIdx.x + half;
        mine = mine + DoubleDouble{high[other], low[other]};
        high[threadIdx.x] = mine.high, low[threadIdx.x] = mine.low;
    }
    __syncthreads();
    return {high[0], low[0]};
}

// sums[block] = |X|^2 - 2 <X, model> and squares[block] = |X|^2, of the block's nonzeros. `lanes` threads, a divisor
// of 32, share a nonzero and take columns in turn.
extern "C" __global__ void __launch_bounds__(threads)
compare(const Factors factors, const double* __restrict__ weights, const unsigned* __restrict__ coords,
        const Element* __restrict__ values, Index count, unsigned rank, unsigned lanes, double scale,
        DoubleDouble* __restrict__ sums, DoubleDouble* __restrict__ squares)
{
    const unsigned lane = threadIdx.x % lanes, of_block = threads / lanes;
    DoubleDouble square, product;
    for (Index z = (Index)blockIdx.x * of_block + threadIdx.x / lanes; z < count; z += (Index)gridDim.x * of_block) {
        const double value = values[z] * scale;
        if (lane == 0) square = square + exact_product(value, value);
        for (unsigned column = lane; column < rank; column += lanes) {
            DoubleDouble term = exact_product(value, weights[column] * scale);
#pragma unroll
            for (unsigned n = 0; n < ORDER; ++n)
                term = term * (double)factors.of[n][(Index)coords[n * count + z] * rank + column];
            product = product + term;
        }
    }
    square = sum_of_block(square);
    product = sum_of_block(product);
    if (threadIdx.x) return;
    squares[blockIdx.x] = square;
    sums[blockIdx.x] = square + product * -2.0;
}

// Element e = blockIdx.x * threads + threadIdx.x of the factor's Gram matrix, over every gridDim.y-th row.
extern "C" __global__ void __launch_bounds__(threads)
gram(const Element* __restrict__ factor, DoubleDouble* __restrict__ parts, Index rows, unsigned rank)
{
    const unsigned e = blockIdx.x * threads + threadIdx.x;
    if (e >= rank * rank) return;
    DoubleDouble sum;
    for (Index row = blockIdx.y; row < rows; row += gridDim.y)
        sum = sum + exact_product(factor[row * rank + e / rank], factor[row * rank + e % rank]);
    parts[(Index)blockIdx.y * rank * rank + e] = sum;
}

// products[e] = the product of the weights that e belongs to, if this is the first mode, times the Gram matrix's
// element, of which there are `count` parts.
extern "C" __global__ void __launch_bounds__(threads)
multiply(const DoubleDouble* __restrict__ parts, const double* __restrict__ weights, DoubleDouble* products,
         unsigned count, unsigned rank, unsigned first, double scale)
{
    const unsigned e = blockIdx.x * threads + threadIdx.x;
    if (e >= rank * rank) return;
    DoubleDouble sum;
    for (unsigned part = 0; part < count; ++part) sum = sum + parts[(Index)part * rank * rank + e];
    const DoubleDouble before =
        first ? exact_product(weights[e / rank] * scale, weights[e % rank] * scale) : products[e];
    products[e] = before * sum;
}

// The fit, from all products and from what `count` blocks summed up.
extern "C" __global__ void __launch_bounds__(threads)
finish(const DoubleDouble* __restrict__ products, const DoubleDouble* __restrict__ sums,
       const DoubleDouble* __restrict__ squares, unsigned count, unsigned rank, double* __restrict__ fit_of_model)
{
    DoubleDouble residual, square;
    for (unsigned e = threadIdx.x; e < rank * rank; e += threads) residual = residual + products[e];
    for (unsigned block = threadIdx.x; block < count; block += threads) {
        residual = residual + sums[block];
        square = square + squares[block];
    }
    residual = sum_of_block(residual);
    square = sum_of_block(square);
    if (threadIdx.x == 0) *fit_of_model = 1 - sqrt(residual.high < 0 ? 0 : residual.high) / sqrt(square.high);
}
