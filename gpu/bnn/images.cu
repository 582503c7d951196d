// Images as a network's first value: integers (see source.cuh), or the planes of their bytes.
//
//   -DVECTORS    see bits.cuh

#include "bnn/bits.cuh"
#include "bnn/source.cuh"

extern "C" __global__ void __launch_bounds__(256)
integers_of_images(SOURCE, int* __restrict__ y, unsigned count, unsigned channels)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = READ(i, i % channels);
}

// Bit 7 - b of a byte is channel b of its eight: a word is four bytes, each reversed.
extern "C" __global__ void __launch_bounds__(256)
planes_of_images(const unsigned char* __restrict__ bytes, unsigned* __restrict__ bits, unsigned rows,
                 unsigned channels)
{
    const unsigned words = divide_up(channels, 4), i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * words) return;
    const WordPlace place = place_of(i, rows, words);
    unsigned word = 0;
    for (unsigned byte = 0; byte < 4 && 4 * place.word + byte < channels; ++byte)
        word |= (__brev(bytes[place.row * channels + 4 * place.word + byte]) >> 24) << 8 * byte;
    bits[i] = word;
}
