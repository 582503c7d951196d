// The signs of several elements at once, in 32-bit words of a matrix.
//
//   -DELEMENT_FLOAT64 | -DELEMENT_FLOAT32 | -DELEMENT_FLOAT16 | -DELEMENT_BFLOAT16 | -DELEMENT_INT8
//
// A word holds per_word elements, the first in its low bits. A double is folded into one word: its high half,
// and in the lowest bit whether anything is in its low half; that keeps what a sign needs.

#pragma once
#include "bmm/warp.cuh"
#if defined(ELEMENT_FLOAT64)
typedef unsigned long long Element;
enum : unsigned { per_word = 1, per_vector = 2 };
#elif defined(ELEMENT_FLOAT32)
typedef unsigned Element;
enum : unsigned { per_word = 1, per_vector = 4 };
#elif defined(ELEMENT_FLOAT16) || defined(ELEMENT_BFLOAT16)
typedef unsigned short Element;
enum : unsigned { per_word = 2, per_vector = 8 };
#elif defined(ELEMENT_INT8)
typedef unsigned char Element;
enum : unsigned { per_word = 4, per_vector = 16 };
#endif

enum : unsigned {
    vector_words = per_vector / per_word,  // of a vector of 16 bytes
    element_bits = 32 / per_word,
    tops = per_word == 4 ? 0x80808080u : per_word == 2 ? 0x80008000u : 0x80000000u,  // the top bit of each element
    top_of_first = 1u << (element_bits - 1),
};

#if defined(ELEMENT_FLOAT64)
__device__ inline unsigned word_of(Element x) { return (unsigned)(x >> 32) | ((unsigned)x != 0); }
#else
__device__ inline unsigned word_of(Element x) { return x; }  // zeros stand behind a short element
#endif

__device__ inline void words_of(unsigned (&words)[vector_words], uint4 vector)
{
#if defined(ELEMENT_FLOAT64)
    words[0] = vector.y | (vector.x != 0);
    words[1] = vector.w | (vector.z != 0);
#else
    words[0] = vector.x;
    words[1] = vector.y;
    words[2] = vector.z;
    words[3] = vector.w;
#endif
}

// In the top bit of each element whether it is negative, which minus zero is not; the other bits are any.
__device__ inline unsigned negatives(unsigned word)
{
#if defined(ELEMENT_FLOAT64)
    return word & (word - 1);
#elif defined(ELEMENT_FLOAT32)
    return __float_as_uint(__uint_as_float(word) + 0.0f);
#elif defined(ELEMENT_FLOAT16)
    unsigned less;
    asm("set.lt.u32.f16x2 %0, %1, %2;" : "=r"(less) : "r"(word), "r"(0));
    return less;
#else
    return is_bfloat16 ? word & ((word & ~tops) + ~tops) : word;
#endif
}

// Whether an element of either word is NaN.
__device__ inline bool any_nan(unsigned one, unsigned other)
{
#if defined(ELEMENT_FLOAT64)
    const unsigned infinity = 0x7ff00000;
    return max(one & ~tops, other & ~tops) > infinity;
#elif defined(ELEMENT_FLOAT32)
    unsigned nan;
    asm("set.nan.u32.f32 %0, %1, %2;" : "=r"(nan) : "f"(__uint_as_float(one)), "f"(__uint_as_float(other)));
    return nan != 0;
#elif defined(ELEMENT_FLOAT16)
    unsigned nan;
    asm("set.nan.u32.f16x2 %0, %1, %2;" : "=r"(nan) : "r"(one), "r"(other));
    return nan != 0;
#else
    return is_bfloat16 && ((((one & ~tops) + 0x007f007f) | ((other & ~tops) + 0x007f007f)) & tops) != 0;
#endif
}

// The top bits of a word's elements, in front of the bits so far.
__device__ inline unsigned in_front_of(unsigned bits, unsigned word)
{
    const unsigned gather = per_word == 4 ? 1 << 21 | 1 << 14 | 1 << 7 | 1 : per_word == 2 ? 1 << 15 | 1 : 1;
    return __funnelshift_l(per_word == 1 ? word : (word & tops) * gather, bits, per_word);
}
