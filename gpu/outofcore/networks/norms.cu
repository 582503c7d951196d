// Sums over all pixels of a channel, and batch normalization by them: all in double precision, in one order.

#include "outofcore/networks/rows.cuh"

struct Pair {
    double first, second;
};

// Of a batch with `count` pixels of each channel.
struct Batch {
    double count, epsilon;
};

// What a channel of the batch is normalized by; `moments` are the sums of all channels, then those of squares.
struct Moments {
    double mean, factor;

    __device__ Moments(const double* moments, Batch batch, int channel, int channels)
    {
        mean = moments[channel] / batch.count;
        const double variance = moments[channels + channel] / batch.count - mean * mean;
        factor = 1 / sqrt(fmax(variance, 0.0) + batch.epsilon);
    }

    __device__ double normalized(float x) const { return ((double)x - mean) * factor; }
};

enum : int { threads = 256 };

// Block (channel, y, z) sums part z of the pixels of part y of the images, of which threads t, t + blockDim.y, …
// take one each.
template <class Terms> __device__ inline void sum_of_channel(Terms terms, int images, int pixels, Pair* parts)
{
    const Index begin = (Index)images * blockIdx.y / gridDim.y, end = (Index)images * (blockIdx.y + 1) / gridDim.y;
    const int first = (Index)pixels * blockIdx.z / gridDim.z, last = (Index)pixels * (blockIdx.z + 1) / gridDim.z;
    Pair sum = {0, 0};
    for (Index image = begin + threadIdx.y; image < end; image += blockDim.y) {
        const Index of = image * gridDim.x + blockIdx.x;
#pragma unroll 4
        for (int pixel = first + threadIdx.x; pixel < last; pixel += blockDim.x) {
            const Pair term = terms(of, pixel);
            sum.first += term.first;
            sum.second += term.second;
        }
    }
    __shared__ Pair sums[threads];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    sums[thread] = sum;
    for (int half = threads / 2; half; half /= 2) {
        __syncthreads();
        if (thread < half) {
            sums[thread].first += sums[thread + half].first;
            sums[thread].second += sums[thread + half].second;
        }
    }
    if (thread == 0) parts[((Index)blockIdx.x * gridDim.y + blockIdx.y) * gridDim.z + blockIdx.z] = sums[0];
}

// Add the parts of each channel to its sums, or let them start there. A weight is kept as `kept`.
extern "C" __global__ void add_parts(
    const Pair* parts, int count, double* first, double* second, int channels, int starts, const float* weight,
    double* kept)
{
    const int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    Pair sum = {starts ? 0.0 : first[channel], starts || !second ? 0.0 : second[channel]};
    for (int part = 0; part < count; ++part) {
        sum.first += parts[(Index)channel * count + part].first;
        sum.second += parts[(Index)channel * count + part].second;
    }
    first[channel] = sum.first;
    if (second) second[channel] = sum.second;
    if (kept && starts) kept[channel] = weight[channel];
}

extern "C" __global__ void __launch_bounds__(threads)
bias_gradient(const float* dy, Rows of, int images, Pair* parts)
{
    sum_of_channel(
        [=](Index plane, int pixel) { return Pair{dy[plane * of.apart + pixel], 0}; }, images, of.count(), parts);
}

extern "C" __global__ void __launch_bounds__(threads)
moments(const float* x, Rows of, int images, Pair* parts)
{
    sum_of_channel(
        [=](Index plane, int pixel) {
            const double found = x[plane * of.apart + pixel];
            return Pair{found, found * found};
        },
        images, of.count(), parts);
}

extern "C" __global__ void __launch_bounds__(threads) norm_parameter_gradient(
    const float* x, Rows of_x, const float* dy, Rows of_y, const double* sums, Batch batch, int images, Pair* parts)
{
    const Moments by(sums, batch, blockIdx.x, gridDim.x);
    sum_of_channel(
        [=](Index plane, int pixel) {
            const double gradient = dy[plane * of_y.apart + pixel];
            return Pair{gradient * by.normalized(x[plane * of_x.apart + pixel]), gradient};
        },
        images, of_x.count(), parts);
}

// The activation functions, by their numbers in pointwise.py.
__device__ inline double activated(double x, int activation)
{
    if (activation == 1) return x > 0 || x != x ? x : 0;
    if (activation == 2) return tanh(x);
    if (activation == 0) return x;
    const double small = exp(-fabs(x));
    return (x < 0 ? small : 1) / (1 + small);
}

extern "C" __global__ void
batch_norm(const float* x, Rows of_x, float* y, Rows of_y, const double* sums, Batch batch, const float* gamma,
           const float* beta, int channels, int activation)
{
    const int channel = plane() % channels;
    const Moments by(sums, batch, channel, channels);
    x += plane() * of_x.apart;
    y += plane() * of_y.apart;
    const double weight = gamma[channel], bias = beta[channel];
    each_pixel(
        of_y.count(), [=](int i) { return x[i]; },
        [=](int i, float pixel) { y[i] = (float)activated(weight * by.normalized(pixel) + bias, activation); });
}

// `weights` and `biases` are the gradients by both over the whole batch, `gamma` the weight before its update.
extern "C" __global__ void
batch_norm_gradient(const float* dy, Rows of_y, const float* x, Rows of_x, float* dx, Rows of_dx, const double* sums,
              Batch batch, const double* weights, const double* biases, const double* gamma, int channels)
{
    const int channel = plane() % channels;
    const Moments by(sums, batch, channel, channels);
    const double factor = gamma[channel] * by.factor, weight = weights[channel], bias = biases[channel];
    const double of_pixel = 1 / batch.count;
    dy += plane() * of_y.apart;
    x += plane() * of_x.apart;
    dx += plane() * of_dx.apart;
    each_pixel(
        of_dx.count(), [=](int i) { return float2{x[i], dy[i]}; },
        [=](int i, float2 read) {
            dx[i] = (float)(factor * (read.y - (bias + by.normalized(read.x) * weight) * of_pixel));
        });
}
