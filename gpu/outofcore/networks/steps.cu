// Gradients of activations and of the loss, and the update of parameters: in double precision, rounded once.

#include "outofcore/networks/rows.cuh"

// dy times the derivative of an activation function whose results are y, in place; numbers as in pointwise.py.
extern "C" __global__ void
activation_gradient(float* dy, Rows of_dy, const float* y, Rows of_y, int activation)
{
    dy += plane() * of_dy.apart;
    y += plane() * of_y.apart;
    each_pixel(
        of_y.count(), [=](int i) { return float2{y[i], dy[i]}; },
        [=](int i, float2 read) {
            const double result = read.x, gradient = read.y;
            if (activation == 1) dy[i] = result > 0 ? read.y : 0;
            else dy[i] = (float)(gradient * (activation == 2 ? 1 - result * result : result * (1 - result)));
        });
}

__device__ inline Index element() { return (Index)blockIdx.x * blockDim.x + threadIdx.x; }

// Add the terms of a gradient to its sums, or let them start there.
extern "C" __global__ void add_terms(const float* terms, double* sums, Index count, int starts)
{
    const Index i = element();
    if (i < count) sums[i] = (starts ? 0.0 : sums[i]) + terms[i];
}

struct Descent {
    double rate, momentum, decay;
};

// Stochastic gradient descent; the velocity is rounded before its use.
extern "C" __global__ void sgd(float* w, float* velocity, const double* gradient, Index count, Descent of)
{
    const Index i = element();
    if (i >= count) return;
    const double before = w[i];
    velocity[i] = (float)(of.momentum * velocity[i] + (gradient[i] + of.decay * before));
    w[i] = (float)(before - of.rate * (double)velocity[i]);
}

enum : int { threads = 256 };

// The largest, or the sum, of the numbers of all threads; a NaN stays one.
template <bool is_sum> __device__ inline double of_all(double mine)
{
    __shared__ double all[threads];
    __syncthreads();
    all[threadIdx.x] = mine;
    for (int half = threads / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            const double one = all[threadIdx.x], other = all[threadIdx.x + half];
            all[threadIdx.x] = is_sum ? one + other : (one > other || one != one ? one : other);
        }
    }
    __syncthreads();
    return all[0];
}

// Block i has image i: the cross-entropy of the softmax, and its gradient by the logits of the whole batch.
extern "C" __global__ void __launch_bounds__(threads)
cross_entropy(const float* logits, const int* labels, float* gradient, double* losses, int classes, double batch)
{
    logits += (Index)blockIdx.x * classes;
    gradient += (Index)blockIdx.x * classes;
    double largest = logits[0], sum = 0;
    for (int i = threadIdx.x; i < classes; i += threads)
        if (logits[i] > largest || logits[i] != logits[i]) largest = logits[i];
    largest = of_all<false>(largest);
    for (int i = threadIdx.x; i < classes; i += threads) sum += exp(logits[i] - largest);
    sum = of_all<true>(sum);
    const int label = labels[blockIdx.x];
    for (int i = threadIdx.x; i < classes; i += threads)
        gradient[i] = (float)((exp(logits[i] - largest) / sum - (i == label)) / batch);
    if (threadIdx.x == 0) losses[blockIdx.x] = log(sum) - (logits[label] - largest);
}
