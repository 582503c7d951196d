// Products of bytes on integer tensor cores (PTX ISA 9.0, 9.7.14.5): 16 pixels by 8 filters, sums in int32 mod 2^32.
//
// Lane l has of each operand four numbers that follow one another: of k / 4 = l % 4, and of k / 4 = l % 4 + 4 where
// the product is of 32. The pixels are l / 4 and l / 4 + 8, the filter is l / 4; the sums 2 i and 2 i + 1 are of pixel
// l / 4 + 8 i and filters 2 (l % 4) and the next one. Below sm_80 a product is two or four of 8 pixels by 16 numbers.

#pragma once

#if __CUDA_ARCH__ >= 800
#define MULTIPLY_16(type)                                                                                      \
    asm("mma.sync.aligned.m16n8k16.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                       \
        : "r"(a[0]), "r"(a[1]), "r"(b[0]))
#define MULTIPLY_32(type)                                                                                      \
    asm("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 "                                               \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                      \
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
#define MULTIPLY_HALF(type, i, k)                                                                              \
    asm("mma.sync.aligned.m8n8k16.row.col.s32." type ".s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"                 \
        : "+r"(d[2 * (i)]), "+r"(d[2 * (i) + 1])                                                               \
        : "r"(a[2 * (k) + (i)]), "r"(b[k]))
#define MULTIPLY_16(type)       \
    MULTIPLY_HALF(type, 0, 0);  \
    MULTIPLY_HALF(type, 1, 0)
#define MULTIPLY_32(type)       \
    MULTIPLY_16(type);          \
    MULTIPLY_HALF(type, 0, 1);  \
    MULTIPLY_HALF(type, 1, 1)
#endif

// d += the product; the pixels' bytes are signed or not, the filters' are.
template <bool is_signed> __device__ inline void multiply_add(int (&d)[4], const unsigned (&a)[2], const unsigned (&b)[1])
{
    if (is_signed) {
        MULTIPLY_16("s8");
    } else {
        MULTIPLY_16("u8");
    }
}

template <bool is_signed> __device__ inline void multiply_add(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    if (is_signed) {
        MULTIPLY_32("s8");
    } else {
        MULTIPLY_32("u8");
    }
}
