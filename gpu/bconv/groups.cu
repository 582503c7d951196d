// Channels of groups: images and filters cut into the operands of one convolution each, and what these give joined.
//
//   -DELEMENT=int | -DELEMENT=short    the dot products of the groups
//   -DPOOL_NONE | -DPOOL_OR | -DPOOL_AND    how join_bits joins windows of 2 x 2 pixels
//
// Of every array of groups, group g begins at element g * part. A thread makes one element, or one word, of the output.

typedef unsigned long long Index;

enum : unsigned { threads = 256, word_bits = 32 };

__device__ inline Index number_of_this_thread() { return (Index)blockIdx.x * blockDim.x + threadIdx.x; }

// Bits `first` … `first + count - 1` of a line of words, 0 behind them.
__device__ inline unsigned bits_of(const unsigned* line, unsigned first, unsigned count)
{
    const unsigned shift = first % word_bits, mask = count < word_bits ? (1u << count) - 1 : 0xffffffffu;
    unsigned bits = line[first / word_bits] >> shift;
    if (shift + count > word_bits) bits |= line[first / word_bits + 1] << (word_bits - shift);
    return bits & mask;
}

// Pixels (lines, all channels) to (groups, lines, channels of a group).
extern "C" __global__ void __launch_bounds__(threads)
split_images(const unsigned* __restrict__ x, unsigned* __restrict__ parts, unsigned lines, unsigned words_of_line,
             unsigned channels, unsigned words, unsigned groups, unsigned part)
{
    const Index i = number_of_this_thread(), of_group = (Index)lines * words;
    if (i >= of_group * groups) return;
    const unsigned group = i / of_group, line = i % of_group / words, word = i % words, first = word * word_bits;
    unsigned bits = 0;
    if (first < channels)
        bits = bits_of(x + (Index)line * words_of_line, group * channels + first, min(channels - first, (unsigned)word_bits));
    parts[(Index)group * part + (Index)line * words + word] = bits;
}

// Filters (taps, all filters, channels) to (groups, taps, filters of a group, channels).
extern "C" __global__ void __launch_bounds__(threads)
split_filters(const unsigned* __restrict__ w, unsigned* __restrict__ parts, unsigned taps, unsigned words_of_line,
              unsigned filters, unsigned words, unsigned groups, unsigned part)
{
    const Index i = number_of_this_thread(), of_group = (Index)taps * filters * words;
    if (i >= of_group * groups) return;
    const unsigned group = i / of_group, word = i % words;
    const Index line = i % of_group / words, tap = line / filters, filter = line % filters;
    const Index from = ((tap * groups + group) * filters + filter) * words_of_line + word;
    parts[(Index)group * part + line * words + word] = word < words_of_line ? w[from] : 0;
}

// Dot products (groups, pixels, filters of a group) to (pixels, all filters).
extern "C" __global__ void __launch_bounds__(threads)
join_numbers(const ELEMENT* __restrict__ parts, ELEMENT* __restrict__ y, unsigned pixels, unsigned filters,
             unsigned groups, unsigned part)
{
    const Index i = number_of_this_thread(), of_pixel = (Index)filters * groups;
    if (i >= pixels * of_pixel) return;
    const unsigned filter = i % of_pixel, group = filter / filters;
    y[i] = parts[(Index)group * part + i / of_pixel * filters + filter % filters];
}

// The same to bits, 1 where a dot product is at least its filter's threshold, turned over by flip; windows are pooled.
extern "C" __global__ void __launch_bounds__(threads)
join_bits(const ELEMENT* __restrict__ parts, unsigned* __restrict__ y, unsigned images, unsigned height, unsigned width,
          unsigned filters, unsigned groups, unsigned part, const int* __restrict__ thresholds,
          const unsigned char* __restrict__ flip)
{
#if defined(POOL_NONE)
    enum : unsigned { window = 1 };
#else
    enum : unsigned { window = 2 };
#endif
    const unsigned rows = height / window, columns = width / window, all = filters * groups;
    const unsigned words = (all + word_bits - 1) / word_bits;
    const Index i = number_of_this_thread(), pixel = i / words;
    if (pixel >= (Index)images * rows * columns) return;
    const Index line = pixel / columns, image = line / rows;
    const unsigned first = i % words * word_bits, row = line % rows * window, column = pixel % columns * window;
    unsigned bits = 0;
    for (unsigned k = 0; k < word_bits && first + k < all; ++k) {
        const unsigned filter = first + k, group = filter / filters;
        unsigned ones = 0;
        for (unsigned at = 0; at < window * window; ++at) {
            const Index from = (image * height + row + at / window) * width + column + at % window;
            const int sum = parts[(Index)group * part + from * filters + filter % filters];
            ones += (sum >= thresholds[filter]) != (flip[filter] != 0);
        }
#if defined(POOL_AND)
        bits |= (unsigned)(ones == window * window) << k;
#else
        bits |= (unsigned)(ones != 0) << k;
#endif
    }
    y[i] = bits;
}
