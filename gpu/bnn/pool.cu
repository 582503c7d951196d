// Windows of pixels as one pixel: of packed bits OR or AND.
//
//   -DPOOL_OR | -DPOOL_AND

#include "bmm/warp.cuh"
#include "overlap.cuh"

// An image has `words` of them in a pixel. Offsets fit 32 bits.
struct PoolShape {
    unsigned batch, height, width, words, out_height, out_width;
    unsigned window_h, window_w, stride_h, stride_w, pad_top, pad_left;
};

__device__ inline unsigned join(unsigned x, unsigned y)
{
#if defined(POOL_OR)
    return x | y;
#else
    return x & y;
#endif
}

// A thread for each word of the output. Each window has a pixel inside the image.
extern "C" __global__ void __launch_bounds__(256)
pool(const unsigned* x, unsigned* y, const PoolShape shape)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= shape.batch * shape.out_height * shape.out_width * shape.words) return;
    const unsigned word = index % shape.words, pixel = index / shape.words;
    const unsigned column = pixel % shape.out_width, line = pixel / shape.out_width;
    const unsigned row = line % shape.out_height, image = line / shape.out_height;
    // Above and left of the image the differences wrap around to large numbers.
    const unsigned top = row * shape.stride_h - shape.pad_top, left = column * shape.stride_w - shape.pad_left;
    bool first = true;
    unsigned joined = 0;
    for (unsigned i = 0; i < shape.window_h; ++i) {
        if (top + i >= shape.height) continue;
        for (unsigned j = 0; j < shape.window_w; ++j) {
            if (left + j >= shape.width) continue;
            const unsigned at = (image * shape.height + top + i) * shape.width + left + j;
            const unsigned value = x[at * shape.words + word];
            joined = first ? value : join(joined, value);
            first = false;
        }
    }
    y[index] = joined;
}
