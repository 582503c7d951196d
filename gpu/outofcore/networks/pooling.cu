// Pooling and its gradients. Sums are in double precision, from the first tap to the last, and rounded once.

#include "outofcore/networks/rows.cuh"

// Window p covers `height` rows from p * stride_h - offset_h on, and columns likewise.
struct Windows {
    int height, width, stride_h, stride_w, offset_h, offset_w;
};

// Of whole images: their size and padding, and the first row of the result.
struct Images {
    int height, width, pad_h, pad_w, first;
};

struct Span {
    int begin, end;
};

// The pixels of an axis of `size` that a window covers.
__device__ inline Span covered(int window, int stride, int offset, int taps, int size)
{
    const int start = window * stride - offset;
    return {max(start, 0), min(start + taps, size)};
}

// The windows, of `count`, that cover a pixel.
__device__ inline Span covering(int pixel, int stride, int offset, int taps, int count)
{
    const int last = pixel + offset, first = last - taps + 1;
    return {first > 0 ? (first + stride - 1) / stride : 0, last < 0 ? 0 : min(last / stride + 1, count)};
}

// The place of the largest pixel of a window: the first of equal ones, or the first NaN.
__device__ inline int largest(const float* x, Rows of_x, Windows of, int row, int column)
{
    const Span down = covered(row, of.stride_h, of.offset_h, of.height, of_x.height);
    const Span across = covered(column, of.stride_w, of.offset_w, of.width, of_x.width);
    int place = down.begin * of_x.width + across.begin;
    float best = x[place];
    for (int r = down.begin; r < down.end; ++r)
        for (int s = across.begin; s < across.end; ++s) {
            const float pixel = x[r * of_x.width + s];
            if (pixel > best || (pixel != pixel && best == best)) {
                best = pixel;
                place = r * of_x.width + s;
            }
        }
    return place;
}

// The pixels of a window that are inside the image.
__device__ inline double inside(Windows of, Images images, int row, int column)
{
    const Span down = covered(images.first + row, of.stride_h, images.pad_h, of.height, images.height);
    const Span across = covered(column, of.stride_w, images.pad_w, of.width, images.width);
    return (double)(down.end - down.begin) * (double)(across.end - across.begin);
}

extern "C" __global__ void max_pool(const float* x, Rows of_x, float* y, Rows of_y, Windows of)
{
    x += plane() * of_x.apart;
    y += plane() * of_y.apart;
    for (int i = first_pixel(); i < of_y.count(); i = next_pixel(i))
        y[i] = x[largest(x, of_x, of, i / of_y.width, i % of_y.width)];
}

// dx begins `skip` rows below x. With `of_relu` pixels are results of relu, whose gradient follows.
extern "C" __global__ void max_pool_gradient(
    const float* dy, Rows of_y, const float* x, Rows of_x, float* dx, Rows of_dx, Windows of, int of_relu, int skip)
{
    dy += plane() * of_y.apart;
    x += plane() * of_x.apart;
    dx += plane() * of_dx.apart;
    for (int i = first_pixel(); i < of_dx.count(); i = next_pixel(i)) {
        const int row = i / of_dx.width + skip, column = i % of_dx.width, pixel = row * of_x.width + column;
        const Span down = covering(row, of.stride_h, of.offset_h, of.height, of_y.height);
        const Span across = covering(column, of.stride_w, of.offset_w, of.width, of_y.width);
        double sum = 0;
        for (int p = down.end - 1; p >= down.begin; --p)  // the last window has the first tap
            for (int q = across.end - 1; q >= across.begin; --q)
                if (largest(x, of_x, of, p, q) == pixel) sum += dy[p * of_y.width + q];
        dx[i] = of_relu && !(x[pixel] > 0) ? 0 : (float)sum;
    }
}

struct Window {
    float2 above, below;
    float gradient;
};

// The same for windows of 2 x 2 that cover each pixel once, and begin at even addresses: a thread has a window.
extern "C" __global__ void max_pool_gradient_of_pairs(
    const float* dy, Rows of_y, const float* x, Rows of_x, float* dx, Rows of_dx, int of_relu)
{
    dy += plane() * of_y.apart;
    x += plane() * of_x.apart;
    dx += plane() * of_dx.apart;
    const auto at = [=](int i) { return i / of_y.width * 2 * of_x.width + i % of_y.width * 2; };
    const auto read = [=](int i) {
        const float* above = x + at(i);
        return Window{*(const float2*)above, *(const float2*)(above + of_x.width), dy[i]};
    };
    const auto write = [=](int i, Window found) {
        const float pixels[] = {found.above.x, found.above.y, found.below.x, found.below.y};
        float best = pixels[0];
        int place = 0;
        for (int k = 1; k < 4; ++k)
            if (pixels[k] > best || (pixels[k] != pixels[k] && best == best)) {
                best = pixels[k];
                place = k;
            }
        const float gradient = of_relu && !(best > 0) ? 0 : found.gradient;
        const auto of_pixel = [=](int k) { return k == place ? gradient : 0; };
        float* above = dx + at(i);
        *(float2*)above = float2{of_pixel(0), of_pixel(1)};
        *(float2*)(above + of_dx.width) = float2{of_pixel(2), of_pixel(3)};
    };
    each_pixel(of_y.count(), read, write);
}

extern "C" __global__ void
average_pool(const float* x, Rows of_x, float* y, Rows of_y, Windows of, Images images)
{
    x += plane() * of_x.apart;
    y += plane() * of_y.apart;
    for (int i = first_pixel(); i < of_y.count(); i = next_pixel(i)) {
        const int row = i / of_y.width, column = i % of_y.width;
        const Span down = covered(row, of.stride_h, of.offset_h, of.height, of_x.height);
        const Span across = covered(column, of.stride_w, of.offset_w, of.width, of_x.width);
        double sum = 0;
        for (int r = down.begin; r < down.end; ++r)
            for (int s = across.begin; s < across.end; ++s) sum += x[r * of_x.width + s];
        y[i] = (float)(sum / inside(of, images, row, column));
    }
}

extern "C" __global__ void
average_pool_gradient(const float* dy, Rows of_y, float* dx, Rows of_dx, Windows of, Images images)
{
    dy += plane() * of_y.apart;
    dx += plane() * of_dx.apart;
    for (int i = first_pixel(); i < of_dx.count(); i = next_pixel(i)) {
        const Span down = covering(i / of_dx.width, of.stride_h, of.offset_h, of.height, of_y.height);
        const Span across = covering(i % of_dx.width, of.stride_w, of.offset_w, of.width, of_y.width);
        double sum = 0;
        for (int p = down.end - 1; p >= down.begin; --p)
            for (int q = across.end - 1; q >= across.begin; --q)
                sum += dy[p * of_y.width + q] / inside(of, images, p, q);
        dx[i] = (float)sum;
    }
}
