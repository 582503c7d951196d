// Packed bits of pixels as bits of vectors, without the gaps that fill the last word of each pixel.

#include "bmm/warp.cuh"
#include "overlap.cuh"

// images[n][pixel][words of its channels] → vectors[word][n]; a thread for each word of a vector.
extern "C" __global__ void __launch_bounds__(256)
flatten(const unsigned* images, unsigned* vectors, unsigned batch, unsigned pixels,
        unsigned channels)
{
    let_later_launches_begin();
    wait_for_earlier_launches();
    const unsigned features = pixels * channels, words = divide_up(channels, 32);
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= batch * divide_up(features, 32)) return;
    const unsigned image = index % batch, first = index / batch * 32, last = min(first + 32, features);
    unsigned word = 0;
    for (unsigned feature = first; feature < last;) {
        const unsigned pixel = feature / channels, channel = feature % channels;
        // From here to the end of the source's word, of the pixel, or of the vector's word.
        const unsigned taken = min(min(32 - channel % 32, channels - channel), last - feature);
        const unsigned source = images[(image * pixels + pixel) * words + channel / 32] >> channel % 32;
        word |= (source & (0xffffffffu >> (32 - taken))) << (feature - first);
        feature += taken;
    }
    vectors[index] = word;
}
