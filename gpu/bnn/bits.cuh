// Where bits go: words of 32, the first bit lowest.
//
//   -DVECTORS    of vectors, word by word: words[word][row] (PackedBits, layout="column")
//   otherwise    of pixels: words[row][word] (PackedTensor, layout="NHWC")
//
// Either way words are numbered in the order of memory.

#pragma once

#include "bmm/warp.cuh"

struct WordPlace {
    unsigned row, word;
};

__device__ inline WordPlace place_of(unsigned index, unsigned rows, unsigned words)
{
#if defined(VECTORS)
    return {index % rows, index / rows};
#else
    return {index / words, index % words};
#endif
}

__device__ inline unsigned index_of(WordPlace place, unsigned rows, unsigned words)
{
#if defined(VECTORS)
    return place.word * rows + place.row;
#else
    return place.row * words + place.word;
#endif
}
